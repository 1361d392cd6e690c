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
from specrt.state.messages import Acceptance, Draft, Kept, Verification, Window


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
        verification = self._verify(requests, drafts)
        clock.append(time.perf_counter())
        acceptances = [
            self._accept(request, drafts[i], verification, i) for i, request in enumerate(requests)
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
        seconds = [after - before for before, after in pairwise(clock)]
        for request, draft, acceptance in zip(requests, drafts, acceptances, strict=True):
            request.policy.observe(
                len(draft.tokens),
                acceptance.num_accepted,
                seconds[0],
                seconds[1],
                sum(seconds[2:]),
            )
        for request, draft, acceptance, cursor in zip(
            requests, drafts, acceptances, cursors, strict=True
        ):
            del request.logprobs[request.sequence.num_generated :]
            request.logprobs += acceptance.logprobs
            request.sequence.cursor = cursor
            _account(request, len(draft.tokens), acceptance.num_accepted, seconds)
        return acceptances

    def _verify(self, requests: list[Request], drafts: list[Draft]) -> Verification:
        windows = [
            Window(
                request.sequence,
                [request.sequence.last_token, *draft.tokens],
                request.sequence.cursor.cache_len,
            )
            for request, draft in zip(requests, drafts, strict=True)
        ]
        taps = taps_of([member for request in requests for member in request.speculators])
        logits = any(request.needs_logits for request in requests)
        return self.target.verify(windows, taps=taps, logits=logits)

    def _accept(
        self, request: Request, draft: Draft, verification: Verification, number: int
    ) -> Acceptance:
        rows = slice(*verification.row_offsets[number : number + 2])
        logits = None if verification.logits is None else verification.logits[rows]
        drawer = request.drawer(verification.ids[rows], logits)
        return accept(request.sequence, draft.tokens, drawer, request.boundary)

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


def _account(request: Request, num_draft: int, num_accepted: int, seconds: list[float]) -> None:
    """Count one step and its time by phase."""
    stats, plain_seconds = request.stats, request.policy.plain_seconds
    stats.plain_step_ms = None if plain_seconds is None else plain_seconds * 1e3
    stats.count_step(num_draft, num_accepted)
    phases = ("draft", "verify" if num_draft else "plain", "accept", "rollback", "commit")
    for phase, spent in zip(phases, seconds, strict=True):
        stats.phases.add(phase, spent * 1e3)
