"""Commit, draft, verify, accept, rollback: once, for every algorithm and model."""

from __future__ import annotations

import threading
import time

from specrt.speculative import chain
from specrt.speculative.accept import accept
from specrt.speculative.request import Request, WindowDrawer
from specrt.speculative.row_costs import row_seconds
from specrt.speculative.speculator import taps_of
from specrt.speculative.target import Target
from specrt.state.messages import Acceptance, Draft, Tap, Verification, Window
from specrt.stats import HopSeconds


class Runtime:
    """Steps lists of requests over one target.

    A step is a transaction: it ends by assigning each sequence its new cursor, and what an
    exception leaves behind before that lies past the old cursor and does not count.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        # The target's buffers serve one forward at a time.
        self.lock = threading.Lock()

    def prefill(self, request: Request) -> None:
        """Feed all ids of the history but the last, from ``cache_len`` on."""
        with self.lock:
            self._prefill(request)

    def step(self, requests: list[Request]) -> list[Acceptance]:
        """One verify for all requests; each emits at least one token.

        Args:
            requests: of different sequences, none of them ended.

        Returns:
            What each sequence gained.
        """
        with self.lock:
            return self._step(requests)

    def settle(self, request: Request) -> None:
        """Its speculators hear of all rows, so that the next prompt need not feed them again."""
        with self.lock:
            chain.commit([request], self.target, 1)

    def _prefill(self, request: Request) -> None:
        sequence, stats = request.sequence, request.stats
        cursor = sequence.cursor
        pending = sequence.history[cursor.cache_len : cursor.num_tokens - 1].tolist()
        chunks = self.target.prefill(sequence, pending, taps_of(request.prompt_listeners))
        while True:
            with stats.phases.timed("prefill"):
                kept = next(chunks, None)
            if kept is None:
                return
            if kept.next_token is None:
                kept = kept._replace(next_token=sequence.last_token)
            with stats.phases.timed("catch_up"):
                chain.commit_prompt(request, kept)

    def _step(self, requests: list[Request]) -> list[Acceptance]:
        target, clock = self.target, time.perf_counter
        begin = clock()
        chain.commit(requests, target)
        committed = clock()
        self._seed_costs(requests)
        drafts = chain.draft(requests, target)
        drafted = clock()
        windows = [
            request.window(draft.tokens, target.max_draw_ids)
            for request, draft in zip(requests, drafts, strict=True)
        ]
        taps = taps_of([member for request in requests for member in request.speculators])
        logits = _need_logits(requests, windows)
        target.prepare(windows, taps=taps, logits=logits)
        prepared = clock()
        verification = self._verify(windows, taps, logits)
        verified = clock()
        acceptances = [
            accept(r.sequence, WindowDrawer(r, windows[i], verification, i), r.boundary)
            for i, r in enumerate(requests)
        ]
        accepted = clock()
        cursors = [
            target.rollback(request.sequence, len(tokens)).emitted(len(tokens), text_len, reason)
            for request, (tokens, _, reason, text_len) in zip(requests, acceptances, strict=True)
        ]
        seconds = HopSeconds(
            committed - begin,
            drafted - committed,
            prepared - drafted,
            verified - prepared,
            accepted - verified,
            clock() - accepted,
        )
        _observe(requests, drafts, acceptances, verification.row_offsets[-1], seconds)
        for i, request in enumerate(requests):
            _account(request, len(drafts[i].tokens), acceptances[i], seconds)
            request.sequence.cursor = cursors[i]
        return acceptances

    def _seed_costs(self, requests: list[Request]) -> None:
        """Measure what rows and drafts cost where a policy may draft from now on.

        Loading has done so where speculation is on; else nobody should wait for it until the first
        token.
        """
        for request in requests:
            rows, has_begun = request.policy.rows, request.sequence.num_generated > 0
            if rows is None or not has_begun or not request.speculators:
                continue
            if rows.wants_seed:
                rows.seed(row_seconds(self.target, request))
            chain.seed_costs(request, self.target)

    def _verify(self, windows: list[Window], taps: frozenset[Tap], logits: bool) -> Verification:
        return self.target.verify(windows, taps=taps, logits=logits)


def _need_logits(requests: list[Request], windows: list[Window]) -> bool:
    """True if a sampler reads them."""
    for request, window in zip(requests, windows, strict=True):
        if request.reads_logits(window):
            return True
    return False


def _observe(
    requests: list[Request],
    drafts: list[Draft],
    acceptances: list[Acceptance],
    num_rows: int,
    seconds: HopSeconds,
) -> None:
    """Tell the policies what the step cost, and what each sequence gained."""
    cost = seconds.verify + seconds.accept + seconds.rollback
    others = len(requests) - 1
    for rows in {request.policy.rows for request in requests}:
        if rows is not None:
            rows.add(num_rows - 1, cost)
    for request, draft, acceptance in zip(requests, drafts, acceptances, strict=True):
        upkeep, request.upkeep = request.upkeep, 0.0
        request.policy.observe(len(draft.tokens), acceptance.num_accepted, upkeep, others)


def _account(request: Request, num_draft: int, acceptance: Acceptance, seconds: HopSeconds) -> None:
    """Count one step and its time by phase."""
    stats, policy = request.stats, request.policy
    # What an interrupted step left behind goes; the cursor decides, and moves after this.
    request.forget_after_cursor()
    request.logprobs += acceptance.logprobs
    plain_seconds = policy.plain_seconds
    stats.plain_step_ms = None if plain_seconds is None else plain_seconds * 1e3
    stats.num_parked, stats.num_probes = policy.num_parked, policy.num_probes
    stats.count_step(num_draft, acceptance.num_accepted)
    stats.phases.add_step(seconds, plain=not num_draft)
