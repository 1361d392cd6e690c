"""The plain messages of one step: models and speculators know these, and not each other.

What every step makes is a tuple, which takes a third of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from specrt.state.draw import Draw

if TYPE_CHECKING:
    from specrt.state.sequence import Sequence

Array = Any

FinishReason = Literal["stop", "length", "abort"]
"""An end token, stop id or stop string; max_tokens or the end of the context; or the caller."""


@dataclass(frozen=True, slots=True, order=True)
class Tap:
    """A named inner row of the target: ``residual_entering`` a layer, or ``final_hidden``."""

    name: str
    layer: int = -1


FINAL_HIDDEN = Tap("final_hidden")

DRAFT_HEAD = "draft-head"
"""The algorithm that drafts token by token, and whoever serves the attached draft head."""


def residual_entering(layer: int) -> Tap:
    """The residual entering that layer; the number of layers means after the last one."""
    return Tap("residual_entering", layer)


def joined_taps(taps: Iterable[Tap]) -> str:
    """Taps as a message names them: their layers together, "none" for no taps."""
    layers: dict[str, list[int]] = {}
    for tap in sorted(taps):
        layers.setdefault(tap.name, []).append(tap.layer)
    return ", ".join(map(_named, layers, layers.values())) or "none"


def _named(name: str, layers: list[int]) -> str:
    first, last = layers[0], layers[-1]
    if last < 0:
        return name
    if len(layers) > 2 and last - first == len(layers) - 1:
        return f"{name}({first} .. {last})"
    return f"{name}({', '.join(map(str, layers))})"


class Window(NamedTuple):
    """What one verify forwards for one sequence: ``tokens`` = [last_token, d1 .. dK].

    Args:
        draw: how the target draws the rows' ids, None for the argmax; only for a target that draws.
    """

    sequence: Sequence
    tokens: list[int]
    start_pos: int
    draw: Draw | None = None


class Verification(NamedTuple):
    """What a verify computed, flat over the rows of all windows.

    Args:
        ids: [T] int32, each row's drawn token, or the argmax of its logits (ties to the lowest id);
            a drawing window's rows behind the first whose id is not the draft's may have either.
        row_offsets: the rows of window b are ``row_offsets[b] : row_offsets[b + 1]``.
        outcomes: [B, 3] int32 on the host, what each window's ids accept: m, the next token, and
            the cache length behind the rows that are kept then.
        logits: [T, V] float32 on the host, or None if not asked for; of windows with a draw as it
            left them.

    The arrays but ``outcomes`` are the target's own buffers: the next verify overwrites them.
    """

    ids: Array
    row_offsets: list[int]
    outcomes: np.ndarray
    logits: np.ndarray | None


class DraftContext(NamedTuple):
    """What a speculator may look at to propose for one sequence.

    Args:
        sequence: its history ends with the last token, which is not yet fed.
        num_draft: the most ids that may be proposed (>= 1).
        pmin: the draft is cut before the first token less likely than this; None means the
            speculator's own default (in a chain: each member's).
    """

    sequence: Sequence
    num_draft: int
    pmin: float | None = None


class Draft(NamedTuple):
    """Proposed ids, at most ``num_draft``; empty means a plain step.

    Args:
        tokens: the ids d1 .. dK.
        confidences: the drafter's own probability of each id, or empty if it has none.
        source: the name of the speculator that proposed them.
    """

    tokens: list[int]
    confidences: list[float]
    source: str


NO_DRAFT = Draft([], [], "")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of an emitted token and of the likeliest ones, from the raw logits."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Acceptance(NamedTuple):
    """What one sequence gains in a step: m accepted draft tokens and the next token.

    A boundary may cut the run; then its last token takes the place of the next token.

    Args:
        tokens: the m + 1 emitted ids; as many rows are kept.
        logprobs: one per emitted id, empty if not asked for.
        finish_reason: None while the sequence goes on.
        text_len: bytes of the sequence's text, without a stop string.
    """

    tokens: list[int]
    logprobs: list[TokenLogprob]
    finish_reason: FinishReason | None
    text_len: int

    @property
    def num_accepted(self) -> int:
        """m."""
        return len(self.tokens) - 1


class Kept(NamedTuple):
    """Rows that the target kept, in prefill or after a step, as a speculator hears of them.

    Args:
        sequence: whose rows.
        start_pos: the position of row 0.
        tokens: the ids fed in those rows, one per row.
        next_token: the id that follows the last row, if it is known.
        taps: [rows, F] float32 per tap that the speculator asked for.
    """

    sequence: Sequence
    start_pos: int
    tokens: list[int]
    next_token: int | None
    taps: dict[Tap, Array]


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a speculator cannot serve this target; shown to the user."""

    name: str
    reason: str
