"""What a request did: counts, and milliseconds by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

Origin = Literal["accepted", "corrected", "bonus", "plain"]
"""Where an emitted token came from; plain is the next token of a step without a draft."""


class HopSeconds(NamedTuple):
    """Seconds of one step, hop by hop; ``prepare`` makes what must not count as the verify's."""

    commit: float
    draft: float
    prepare: float
    verify: float
    accept: float
    rollback: float


@dataclass(slots=True)
class Phases:
    """Milliseconds spent in each phase; a step without a draft counts as plain, not as verify.

    Who is asked for a draft hears of kept rows in its draft phase; ``commit`` is the rest.
    """

    prefill: float = 0.0
    catch_up: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    accept: float = 0.0
    rollback: float = 0.0
    commit: float = 0.0
    plain: float = 0.0

    def add(self, phase: str, milliseconds: float) -> None:
        """Count time for a phase of that name."""
        setattr(self, phase, getattr(self, phase) + milliseconds)

    def add_step(self, seconds: HopSeconds, *, plain: bool) -> None:
        """Count a step, one without a draft as plain."""
        commit, draft, prepare, verify, accept, rollback = seconds
        forward = (prepare + verify) * 1e3
        if plain:
            self.plain += forward
        else:
            self.verify += forward
        self.draft += draft * 1e3
        self.accept += accept * 1e3
        self.rollback += rollback * 1e3
        self.commit += commit * 1e3

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the time of a with block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(phase, (time.perf_counter() - start) * 1e3)

    @property
    def total(self) -> float:
        """The sum."""
        return sum(getattr(self, f.name) for f in fields(self))


@dataclass(slots=True)
class Stats:
    """Statistics of one completion.

    Args:
        speculator: the active ones' names, joined by commas, or None.
        declined: why others did not serve, as "name: reason".
        prompt_tokens: ids of the prompt.
        cached_tokens: of them, those that a session had consumed before.
        steps: forwards of the target after prefill.
        draft_steps: of them, those that verified a draft.
        num_drafted: sum of K.
        num_accepted: sum of m.
        origins: of every emitted token.
        time_to_first_token: milliseconds from when the request was given to its first id: for a
            list from the call, with the wait for the other prompts; for a stream from its start.
        phases: milliseconds by phase.
        num_draft: the most tokens of a draft, as resolved; None for plain decoding.
        pmin: the gate of drafts, None for each speculator's own.
        num_parked: steps in which the governor let no speculator be asked.
        num_probes: drafts that it tried though they did not look worth it.
        num_draft_counts: how many steps verified K draft tokens, by K.
        num_accepted_counts: how many steps accepted m of them, by m.
        plain_step_ms: what the policy measured a step without a draft to cost, None if it did not.
        seed: that the draws used, None if greedy.
    """

    speculator: str | None = None
    declined: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    steps: int = 0
    draft_steps: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    origins: list[Origin] = field(default_factory=list)
    time_to_first_token: float | None = None
    phases: Phases = field(default_factory=Phases)
    num_draft: int | None = None
    pmin: float | None = None
    num_parked: int = 0
    num_probes: int = 0
    num_draft_counts: dict[int, int] = field(default_factory=dict)
    num_accepted_counts: dict[int, int] = field(default_factory=dict)
    plain_step_ms: float | None = None
    seed: int | None = None

    def count_step(self, num_draft: int, num_accepted: int) -> None:
        """Count a step with K = ``num_draft`` of which m = ``num_accepted`` landed."""
        drafts, accepts = self.num_draft_counts, self.num_accepted_counts
        drafts[num_draft] = drafts.get(num_draft, 0) + 1
        accepts[num_accepted] = accepts.get(num_accepted, 0) + 1
        self.steps += 1
        self.origins += ["accepted"] * num_accepted
        if not num_draft:
            self.origins.append("plain")
            return
        self.origins.append("corrected" if num_accepted < num_draft else "bonus")
        self.draft_steps += 1
        self.num_drafted += num_draft
        self.num_accepted += num_accepted

    @property
    def drafted_at(self) -> list[int]:
        """How often a draft reached position k (index 0 is d1)."""
        return self._longer(self.num_draft_counts)

    @property
    def accepted_at(self) -> list[int]:
        """How often the token at position k was accepted."""
        return self._longer(self.num_accepted_counts)

    def _longer(self, counts: dict[int, int]) -> list[int]:
        """How many were longer than k, for every position that a draft reached."""
        longest = max(self.num_draft_counts, default=0)
        return [sum(n for size, n in counts.items() if size > k) for k in range(longest)]

    @property
    def emitted(self) -> int:
        """Ids generated."""
        return len(self.origins)

    @property
    def acceptance_rate(self) -> float:
        """sum m / sum K, 0 without drafts."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def acceptance_length(self) -> float:
        """Mean of m + 1 over the steps that verified a draft, 1 without any."""
        return 1 + self.num_accepted / self.draft_steps if self.draft_steps else 1.0

    @property
    def decode_ms(self) -> float:
        """Milliseconds after prefill."""
        return self.phases.total - self.phases.prefill - self.phases.catch_up

    @property
    def tokens_per_second(self) -> float:
        """Emitted ids per second of decoding."""
        return 1e3 * self.emitted / self.decode_ms if self.decode_ms > 0 else 0.0

    @property
    def ratio_to_plain(self) -> float | None:
        """How many times faster than plain steps of the measured cost, None if unknown.

        The cost is the lower of the mean over this completion's own plain steps and of what the
        policy measured: neither a slow first step nor a passing stall may flatter the ratio.
        """
        num_plain = self.num_draft_counts.get(0, 0)
        costs = [self.phases.plain / num_plain] if num_plain else []
        if self.plain_step_ms is not None:
            costs.append(self.plain_step_ms)
        if not costs or self.decode_ms <= 0:
            return None
        return self.emitted * min(costs) / self.decode_ms
