"""Draft, verify, accept, rollback, commit: once, for every algorithm and model."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise

from specrt.speculative import chain
from specrt.speculative.accept import accept
from specrt.speculative.request import Request
from specrt.speculative.speculator import taps_of
from specrt.speculative.target import Target
from specrt.state.messages import Acceptance, Draft, Kept, Tap, Verification, Window

HOPS = ("draft", "prepare", "verify", "accept", "rollback", "commit")


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
                kept = replace(kept, next_token=sequence.last_token)
            with stats.phases.timed("catch_up"):
                chain.commit_prompt(request, kept)

    def _step(self, requests: list[Request]) -> list[Acceptance]:
        clock = [time.perf_counter()]
        drafts = chain.draft(requests, self.target.vocab_size)
        clock.append(time.perf_counter())
        taps = taps_of([member for request in requests for member in request.speculators])
        windows = [
            request.window(draft.tokens, self.target.max_draw_ids)
            for request, draft in zip(requests, drafts, strict=True)
        ]
        logits = any(
            request.needs_logits and window.draw is None
            for request, window in zip(requests, windows, strict=True)
        )
        self.target.prepare(windows, taps=taps, logits=logits)
        clock.append(time.perf_counter())
        verification = self._verify(windows, taps, logits)
        clock.append(time.perf_counter())
        acceptances = [
            self._accept(request, windows[i], verification, i) for i, request in enumerate(requests)
        ]
        clock.append(time.perf_counter())
        cursors = [
            replace(
                self.target.rollback(request.sequence, len(acceptance.tokens)),
                num_tokens=request.sequence.cursor.num_tokens + len(acceptance.tokens),
                text_len=acceptance.text_len,
                finish_reason=acceptance.finish_reason,
            )
            for request, acceptance in zip(requests, acceptances, strict=True)
        ]
        clock.append(time.perf_counter())
        kept = [
            self._kept(request, acceptances[i], verification, i)
            for i, request in enumerate(requests)
        ]
        chain.commit(requests, kept)
        clock.append(time.perf_counter())
        spent = [after - before for before, after in pairwise(clock)]
        seconds = dict(zip(HOPS, spent, strict=True))
        num_rows = verification.row_offsets[-1]
        self._observe(requests, drafts, acceptances, num_rows, seconds)
        for i, request in enumerate(requests):
            # What an interrupted step left behind goes; the cursor decides, and moves last.
            request.forget_after_cursor()
            request.logprobs += acceptances[i].logprobs
            _account(request, len(drafts[i].tokens), acceptances[i].num_accepted, seconds)
            request.sequence.cursor = cursors[i]
        return acceptances

    def _observe(
        self,
        requests: list[Request],
        drafts: list[Draft],
        acceptances: list[Acceptance],
        num_rows: int,
        seconds: dict[str, float],
    ) -> None:
        """Tell the policies what the step cost, and what each sequence gained."""
        cost = seconds["verify"] + seconds["accept"] + seconds["rollback"]
        for rows in dict.fromkeys(request.policy.rows for request in requests):
            if rows is not None:
                rows.add(num_rows - 1, cost)
        others = len(requests) - 1
        upkeep = seconds["commit"] / len(requests)
        for request, draft, acceptance in zip(requests, drafts, acceptances, strict=True):
            num_proposed, num_matched = len(draft.tokens), acceptance.num_accepted
            request.policy.observe(num_proposed, num_matched, upkeep, others)

    def _verify(self, windows: list[Window], taps: frozenset[Tap], logits: bool) -> Verification:
        return self.target.verify(windows, taps=taps, logits=logits)

    def _accept(
        self, request: Request, window: Window, verification: Verification, number: int
    ) -> Acceptance:
        drawer = request.drawer(window, verification, number)
        return accept(request.sequence, window.tokens[1:], drawer, request.boundary)

    def _kept(
        self, request: Request, acceptance: Acceptance, verification: Verification, number: int
    ) -> Kept:
        first = verification.row_offsets[number]
        count = len(acceptance.tokens)
        return Kept(
            sequence=request.sequence,
            start_pos=request.sequence.cursor.cache_len,
            tokens=[request.sequence.last_token, *acceptance.tokens[:-1]],
            next_token=acceptance.tokens[-1],
            taps={tap: rows[first : first + count] for tap, rows in verification.taps.items()},
        )


def _account(
    request: Request, num_draft: int, num_accepted: int, seconds: dict[str, float]
) -> None:
    """Count one step and its time by phase."""
    stats, policy = request.stats, request.policy
    stats.plain_step_ms = None if policy.plain_seconds is None else policy.plain_seconds * 1e3
    stats.num_parked, stats.num_probes = policy.num_parked, policy.num_probes
    stats.count_step(num_draft, num_accepted)
    forward = "verify" if num_draft else "plain"
    for hop, spent in seconds.items():
        stats.phases.add(forward if hop in ("prepare", "verify") else hop, spent * 1e3)
