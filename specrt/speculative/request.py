"""A sequence being generated: how it draws, where it ends, who drafts for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from specrt._ext.governor import CostCurve
from specrt._ext.sampler import Sampler
from specrt.options import MAX_DRAFT, SamplingParams
from specrt.speculative.accept import Boundary
from specrt.speculative.speculator import Speculator, joined_names
from specrt.state.draw import Draw
from specrt.state.messages import Array, TokenLogprob, Verification, Window
from specrt.state.sequence import Sequence
from specrt.stats import Stats


class Policy(Protocol):
    """How many tokens to draft, for one sequence.

    Args:
        rows: what steps cost by their rows but one, to be told of every step; None if it needs
            no costs.
        num_parked: steps in which it let no speculator be asked.
        num_probes: drafts that were tried though they did not look worth it.
    """

    rows: CostCurve | None
    num_parked: int
    num_probes: int

    @property
    def plain_seconds(self) -> float | None:
        """What a step without a draft costs as far as it was measured."""

    def wants_draft_costs(self, member: str) -> bool:
        """True if it would know what the named speculator's drafts take, and does not."""

    def seed_draft_costs(self, member: str, seconds: dict[int, float]) -> None:
        """Hear what they take by their tokens, as measured."""

    def num_draft(self, member: str, max_draft: int, others: int, gate: float) -> int:
        """K that the named speculator is to propose, 0 for none.

        Args:
            member: its name.
            max_draft: the most that there is room for.
            others: sequences beside this one in the step.
            gate: its drafts are cut before the first token less likely than this.
        """

    def proposed(
        self, member: str, num_proposed: int, seconds: float, confidences: list[float]
    ) -> None:
        """Hear what an asked speculator gave, and how sure it is of each, if it says so."""

    def observe(self, num_proposed: int, num_matched: int, upkeep: float, others: int) -> None:
        """Hear what the step gained, and the seconds that speculators spent on its rows."""


@dataclass(slots=True, eq=False)
class Request:
    """What the runtime steps.

    Args:
        sequence: the target's.
        params: how tokens are drawn.
        sampler: draws from logits where the target's ids do not decide.
        boundary: where it ends.
        speculators: who drafts, in the order asked; none for plain decoding. One that fails is
            parked: taken out.
        policy: how many tokens to draft.
        max_draft: the most tokens of a draft.
        pmin: the gate of drafts, None for the speculator's own.
        stats: what happened.
        logprobs: one per emitted id.
        told: the rows that each speculator has heard of, if more than the prompt's.
        upkeep: seconds that they spent on it since the policy heard of that, but for what belongs
            to drafts.
    """

    sequence: Sequence
    params: SamplingParams
    sampler: Sampler
    boundary: Boundary
    speculators: tuple[Speculator, ...]
    policy: Policy
    max_draft: int = MAX_DRAFT
    pmin: float | None = None
    stats: Stats = field(default_factory=Stats)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    told: dict[Speculator, int] = field(default_factory=dict)
    upkeep: float = 0.0
    _samples: bool = field(init=False)  # the params', which takes a while to find out
    _steady_draw: Draw | None = field(init=False, default=None)  # of all steps from some one on

    def forget_after_cursor(self) -> None:
        """Drop what a step that did not get to its end noted of tokens that do not count."""
        del self.logprobs[self.sequence.num_generated :]
        del self.stats.origins[self.sequence.num_generated :]

    def __post_init__(self) -> None:
        self._samples = not self.params.greedy

    @property
    def needs_logits(self) -> bool:
        """True if argmax ids do not decide everything about the next window."""
        return self.draws_from_logits or self.params.logprobs is not None

    @property
    def draws_from_logits(self) -> bool:
        """True if argmax ids are not the next window's tokens."""
        return self._samples or self.sequence.cursor.num_tokens < self.boundary.min_total

    @property
    def _holds_back_ends(self) -> bool:
        return self.sequence.cursor.num_tokens < self.boundary.min_total

    def window(self, draft_tokens: list[int], max_draw_ids: int | None) -> Window:
        """What is verified next.

        Args:
            max_draw_ids: the target's.
        """
        sequence, cursor = self.sequence, self.sequence.cursor
        tokens = [sequence.last_token, *draft_tokens]
        draw = self._draw(draft_tokens) if self._draws_in_verify(max_draw_ids) else None
        return Window(sequence, tokens, cursor.cache_len, draw)

    def reads_logits(self, window: Window) -> bool:
        """True if this window's rows are drawn, or reported on, by the sampler."""
        return window.draw is None and self.needs_logits

    def _draws_in_verify(self, max_draw_ids: int | None) -> bool:
        """Log probabilities are the sampler's in every step, and so are their tokens."""
        if max_draw_ids is None or not self.needs_logits or self.params.logprobs is not None:
            return False
        return len(self.params.logit_bias or ()) + len(self.boundary.end_ids) <= max_draw_ids

    def _draw(self, draft_tokens: list[int]) -> Draw:
        if self._steady_draw is not None:
            return self._steady_draw
        sequence, holds_back = self.sequence, self._holds_back_ends
        history = sequence.history[: sequence.cursor.num_tokens]
        edits = self.sampler.edits(history, sequence.prompt_len, draft_tokens, holds_back)
        draw = Draw(self.params, self.sampler.seed, self.boundary.min_total, edits)
        if not holds_back and not self.params.penalises:
            self._steady_draw = draw
        return draw

    @property
    def prompt_listeners(self) -> list[Speculator]:
        """The speculators that hear of the prompt."""
        return [member for member in self.speculators if member.wants_prompt]

    def untold(self, member: Speculator) -> tuple[int, int]:
        """The kept rows that a speculator has not heard of, from and to."""
        sequence = self.sequence
        start = self.told.get(member, sequence.prompt_len - 1)
        return start, sequence.cursor.cache_len

    def park(self, member: Speculator, error: Exception) -> None:
        """Go on without a speculator, which failed."""
        self.stats.declined.append(f"{member.name}: failed: {error!r}")
        self.speculators = tuple(other for other in self.speculators if other is not member)
        self.stats.speculator = joined_names(self.speculators)


class WindowDrawer(NamedTuple):
    """Draws from one window.

    Args:
        request: whose.
        window: as verified.
        verification: of all windows.
        number: the window's among them.
    """

    request: Request
    window: Window
    verification: Verification
    number: int

    def run(self) -> list[int]:
        """d1 .. dm and the next token: the target's where it drew them, else the sampler's."""
        if self.window.draw is None and self.request.draws_from_logits:
            return self._drawn()
        num_accepted, next_token, _ = self.verification.outcomes[self.number].tolist()
        return [*self.window.tokens[1 : num_accepted + 1], next_token]

    def _drawn(self) -> list[int]:
        sequence = self.request.sequence
        return self.request.sampler.draw_run(
            self._logits(),
            sequence.history,
            sequence.prompt_len,
            sequence.cursor.num_tokens,
            self.request.boundary.min_total,
            self.window.tokens[1:],
        )

    def logprobs(self, tokens: list[int]) -> list[TokenLogprob]:
        """From the logits, of the run's first tokens; none if they are not asked for."""
        num_listed = self.request.params.logprobs
        if num_listed is None:
            return []
        sampler = self.request.sampler
        return [
            sampler.logprobs(logits, token, num_listed)
            for logits, token in zip(self._logits(), tokens, strict=False)
        ]

    def _logits(self) -> Array:
        assert self.verification.logits is not None
        first, end = self.verification.row_offsets[self.number : self.number + 2]
        return self.verification.logits[first:end]
