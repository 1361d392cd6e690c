"""A sequence being generated: how it draws, where it ends, who drafts for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

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

    def num_draft(self, member: str, max_draft: int, others: int) -> int:
        """K that the named speculator is to propose, 0 for none.

        Args:
            member: its name.
            max_draft: the most that there is room for.
            others: sequences beside this one in the step.
        """

    def proposed(self, member: str, num_proposed: int, seconds: float) -> None:
        """Hear what an asked speculator gave."""

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

    def forget_after_cursor(self) -> None:
        """Drop what a step that did not get to its end noted of tokens that do not count."""
        del self.logprobs[self.sequence.num_generated :]
        del self.stats.origins[self.sequence.num_generated :]

    @property
    def needs_logits(self) -> bool:
        """True if argmax ids do not decide everything about the next window."""
        return not self.params.greedy or self.params.logprobs is not None or self._holds_back_ends

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

    def _draws_in_verify(self, max_draw_ids: int | None) -> bool:
        """Log probabilities are the sampler's in every step, and so are their tokens."""
        if max_draw_ids is None or not self.needs_logits or self.params.logprobs is not None:
            return False
        return len(self.params.logit_bias or ()) + len(self.boundary.end_ids) <= max_draw_ids

    def _draw(self, draft_tokens: list[int]) -> Draw:
        sequence, holds_back = self.sequence, self._holds_back_ends
        history = sequence.history[: sequence.cursor.num_tokens]
        edits = self.sampler.edits(history, sequence.prompt_len, draft_tokens, holds_back)
        return Draw(self.params, self.sampler.seed, self.boundary.min_total, edits)

    def drawer(self, window: Window, verification: Verification, number: int) -> WindowDrawer:
        """Draws from the rows of this request's window, the one of that number."""
        rows = slice(*verification.row_offsets[number : number + 2])
        logits = None if verification.logits is None else verification.logits[rows]
        tokens = None
        if window.draw is not None or (self.params.greedy and not self._holds_back_ends):
            num_accepted, next_token, _ = verification.outcomes[number].tolist()
            tokens = [*window.tokens[1 : num_accepted + 1], next_token]
        return WindowDrawer(self, tokens, logits)

    @property
    def prompt_listeners(self) -> list[Speculator]:
        """The speculators that hear of the prompt."""
        return [member for member in self.speculators if member.wants_prompt]

    def park(self, member: Speculator, error: Exception) -> None:
        """Go on without a speculator, which failed."""
        self.stats.declined.append(f"{member.name}: failed: {error!r}")
        self.speculators = tuple(other for other in self.speculators if other is not member)
        self.stats.speculator = joined_names(self.speculators)


@dataclass(frozen=True, slots=True)
class WindowDrawer:
    """Draws from one window.

    Args:
        request: whose.
        tokens: d1 .. dm and the next token where the target's ids decide, else None: the sampler
            draws from the logits.
        logits: [rows, V] float32, None if the request needs none.
    """

    request: Request
    tokens: list[int] | None
    logits: Array | None

    def token(self, row: int, position: int) -> int:
        """The id at ``position``; the history before it is in place."""
        if self.tokens is not None:
            return self.tokens[row]
        assert self.logits is not None
        request, sequence = self.request, self.request.sequence
        return request.sampler.draw(
            self.logits[row],
            sequence.history[:position],
            sequence.prompt_len,
            position,
            position < request.boundary.min_total,
        )

    def logprob(self, row: int, token: int) -> TokenLogprob | None:
        """Its log probability, None if not asked for."""
        if self.request.params.logprobs is None:
            return None
        assert self.logits is not None
        return self.request.sampler.logprobs(self.logits[row], token, self.request.params.logprobs)
