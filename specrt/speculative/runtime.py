"""Draft, verify, accept, rollback, commit: once, for every algorithm and model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from operator import index

from specrt.speculative.accept import accept
from specrt.speculative.request import Request
from specrt.speculative.speculator import Speculator
from specrt.speculative.target import Target
from specrt.state.messages import (
    NO_DRAFT,
    Acceptance,
    Draft,
    DraftContext,
    Kept,
    Tap,
    Verification,
    Window,
)


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
        hears = request.speculator is not None and request.speculator.wants_prompt
        taps = request.speculator.taps if request.speculator and hears else frozenset()
        chunks = self.target.prefill(sequence, pending, taps)
        while True:
            with stats.phases.timed("prefill"):
                kept = next(chunks, None)
            if kept is None:
                return
            if request.speculator is not None and request.speculator.wants_prompt:
                if kept.next_token is None:
                    kept = replace(kept, next_token=sequence.last_token)
                with stats.phases.timed("catch_up"):
                    self._commit(request.speculator, [request], [kept])

    def _step(self, requests: list[Request]) -> list[Acceptance]:
        clock = [time.perf_counter()]
        drafts = self._draft(requests)
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
        for speculator, members in _by_speculator(requests):
            self._commit(speculator, [requests[i] for i in members], [kept[i] for i in members])
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

    def _draft(self, requests: list[Request]) -> list[Draft]:
        """Ask each request's speculator for as many tokens as the policy and the room allow."""
        drafts = [NO_DRAFT] * len(requests)
        for speculator, members in _by_speculator(requests):
            contexts: dict[int, DraftContext] = {}
            for i in members:
                request = requests[i]
                room = request.boundary.max_total - request.sequence.cursor.num_tokens - 1
                most = min(room, request.max_draft, speculator.max_draft)
                num_draft = min(most, request.policy.num_draft(most)) if most > 0 else 0
                if num_draft > 0:
                    contexts[i] = DraftContext(request.sequence, num_draft, request.pmin)
            if not contexts:
                continue
            try:
                proposed = speculator.propose(list(contexts.values()))
                checked = {
                    i: self._checked(draft, context.num_draft)
                    for (i, context), draft in zip(contexts.items(), proposed, strict=True)
                }
            except Exception as error:
                for i in members:
                    requests[i].park_speculator(error)
                continue
            for i, draft in checked.items():
                drafts[i] = draft
        return drafts

    def _checked(self, draft: Draft, num_draft: int) -> Draft:
        """The draft up to its first impossible id, at most ``num_draft`` long.

        Raises:
            TypeError: an id is no integer.
        """
        valid = 0
        for token in draft.tokens[:num_draft]:
            if not 0 <= index(token) < self.target.vocab_size:
                break
            valid += 1
        if valid == len(draft.tokens):
            return draft
        return replace(draft, tokens=draft.tokens[:valid], confidences=draft.confidences[:valid])

    def _verify(self, requests: list[Request], drafts: list[Draft]) -> Verification:
        windows = [
            Window(
                request.sequence,
                [request.sequence.last_token, *draft.tokens],
                request.sequence.cursor.cache_len,
            )
            for request, draft in zip(requests, drafts, strict=True)
        ]
        taps: set[Tap] = set()
        for request in requests:
            taps |= request.speculator.taps if request.speculator else frozenset()
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

    def _commit(self, speculator: Speculator, requests: list[Request], kept: list[Kept]) -> None:
        """Tell the speculator; one that fails is parked, the sequences go on."""
        try:
            speculator.commit(kept)
        except Exception as error:
            for request in requests:
                request.park_speculator(error)


def _account(request: Request, num_draft: int, num_accepted: int, seconds: list[float]) -> None:
    """Count one step and its time by phase."""
    stats, plain_seconds = request.stats, request.policy.plain_seconds
    stats.plain_step_ms = None if plain_seconds is None else plain_seconds * 1e3
    stats.count_step(num_draft, num_accepted)
    phases = ("draft", "verify" if num_draft else "plain", "accept", "rollback", "commit")
    for phase, spent in zip(phases, seconds, strict=True):
        stats.phases.add(phase, spent * 1e3)


def _by_speculator(requests: list[Request]) -> Iterator[tuple[Speculator, list[int]]]:
    """Each speculator with the indices of the requests that it drafts for."""
    groups: dict[int, tuple[Speculator, list[int]]] = {}
    for i, request in enumerate(requests):
        if request.speculator is not None:
            groups.setdefault(id(request.speculator), (request.speculator, []))[1].append(i)
    yield from groups.values()
