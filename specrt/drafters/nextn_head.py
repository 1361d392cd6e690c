"""A NextN head at work: what it follows of each sequence, and its drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from specrt.drafters.nextn import NextNWeights, load_weights
from specrt.drafters.nextn_passes import NextNPasses
from specrt.errors import MismatchError, SpecrtError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Trunk
from specrt.models.decoder import Decoder
from specrt.models.step_rows import SequenceRows
from specrt.models.tap_rows import MOST_HELD
from specrt.state.messages import (
    DRAFT_HEAD,
    FINAL_HIDDEN,
    NO_DRAFT,
    Declined,
    Draft,
    DraftContext,
    Kept,
)
from specrt.state.sequence import Sequence

WAITING = 8
"""So many rows wait at most for the next draft, which takes them in with its first row."""
TAKEN_IN = 32
"""So many rows are taken in at a time where more wait."""


@dataclass(slots=True)
class Followed:
    """How far the head follows a sequence.

    Args:
        taken_in: rows 0 .. n - 1 are in its cache, each with the target's hidden row before it.
        heard: hidden rows 0 .. n - 1 were heard of.
        oldest: the first of them that the target still keeps.
    """

    taken_in: int = 0
    heard: int = 0
    oldest: int = 0

    def has_hidden(self, position: int) -> bool:
        """True if the hidden row is there; before position 0 stands a row of zeros."""
        return position < 0 or self.oldest <= position < self.heard

    def hear(self, start_pos: int, end: int) -> None:
        """Those rows are there, and what was heard of behind them is gone."""
        self.taken_in = min(self.taken_in, start_pos + 1)
        self.heard = end
        self.oldest = start_pos if start_pos < self.oldest else max(self.oldest, end - MOST_HELD)


class NextNHead:
    """Fulfils ``speculative.draft_head.DraftHead``: a token a pass, each from its own hidden row.

    Row p is token p beside the hidden row of p - 1: the target's for tokens it has consumed, behind
    them the head's own, all in the ring that the target keeps its hidden rows in. Kept rows wait
    until the next draft takes them in with its first row, in one call; where many wait, they are
    taken in before, without the LM head.

    Args:
        weights: bound to the target.
        target: its ops, its slots and its context.
        trunk: the target's.
    """

    kind: Literal["per_token"] = "per_token"
    title = "NextN"
    block_size = 1
    taps = frozenset({FINAL_HIDDEN})

    def __init__(self, weights: NextNWeights, target: Decoder, trunk: Trunk) -> None:
        self._ops, num_slots = target.ops, target.max_sequences
        self._layout = target.layout
        self._hidden = target.tap_rows
        ring, most_rows = self._hidden.ring(FINAL_HIDDEN), max(TAKEN_IN, num_slots * (WAITING + 1))
        self._passes = NextNPasses(weights, target, trunk, ring, most_rows)
        self._passes.record(WAITING + 1, TAKEN_IN)

    def catch_up(self, rows: list[Kept]) -> None:
        """Note the rows, and take in what has waited long."""
        for sequence, start_pos, tokens, _, _ in rows:
            state, end = self._state(sequence), start_pos + len(tokens)
            if start_pos > state.heard:
                continue  # rows between are missing, so these are of no use
            if start_pos - state.taken_in > WAITING:  # a call for earlier rows has failed
                del sequence.drafter_states[self]
                continue
            state.hear(start_pos, end)
            while (first := state.taken_in) < end - WAITING:
                count = min(end - first, TAKEN_IN)
                self._passes.take_in(sequence, first, count)
                state.taken_in = first + count

    def draft_chain(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context; an empty one where the target's hidden rows are not all known."""
        started = [context for context in contexts if self._can_start(context.sequence)]
        if not started:
            return [NO_DRAFT] * len(contexts)
        rows = [self._waiting(context.sequence) for context in started]
        drafted = self._passes.chain(rows, [(num, pmin or 0.0) for _, num, pmin in started])
        for sequence, tokens, start_pos in rows:
            sequence.drafter_states[self].taken_in = start_pos + len(tokens)
        drafts = {context.sequence: draft for context, draft in zip(started, drafted, strict=True)}
        return [drafts.get(context.sequence, NO_DRAFT) for context in contexts]

    def reset(self, sequence: Sequence) -> None:
        """Follow the sequence back, or start anew where the hidden row before it is lost."""
        state, length = self._state(sequence), sequence.cursor.cache_len
        state.heard = min(state.heard, length)
        state.taken_in = min(state.taken_in, length)
        if not state.has_hidden(state.heard - 1):
            del sequence.drafter_states[self]

    def heard(self, sequence: Sequence) -> int:
        """How many leading hidden rows it has heard of."""
        return self._state(sequence).heard

    def export_state(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """Keys and values of what is taken in, and the hidden rows that the others wait with."""
        state, length = self._state(sequence), sequence.cursor.cache_len
        taken_in = min(state.taken_in, length)
        first, end = max(0, taken_in - 1), min(state.heard, length)
        if not state.has_hidden(first):
            return {}
        k, v = self._ops.kv_read(self._passes.cache, *self._layout.seen(sequence.slot, 0, taken_in))
        hidden = self._hidden.read(FINAL_HIDDEN, sequence.slot, first, end)
        return {"k": np.array(k), "v": np.array(v), "hidden": hidden}

    def import_state(self, sequence: Sequence, arrays: dict[str, np.ndarray]) -> None:
        """Take what ``export_state`` gave.

        Raises:
            MismatchError: an array is missing or has another shape.
        """
        k, v, hidden = (np.atleast_1d(arrays.get(name, ())) for name in ("k", "v", "hidden"))
        taken_in = len(k)
        first, end = max(0, taken_in - 1), max(0, taken_in - 1) + len(hidden)
        if not taken_in <= end <= sequence.cursor.cache_len or end - first > WAITING + 1:
            raise MismatchError(
                f"saved draft head: {taken_in} rows and {len(hidden)} hidden ones of "
                f"{sequence.cursor.cache_len}; save the session again"
            )
        pages = self._layout.seen(sequence.slot, 0, taken_in)
        stored = self._ops.kv_read(self._passes.cache, *pages)[0]
        rows = (len(hidden), self._hidden.ring(FINAL_HIDDEN).shape[2])
        shapes = (stored.shape, stored.shape, rows)
        types = (stored.dtype, stored.dtype, np.dtype(np.float32))
        for values, shape, dtype in zip((k, v, hidden), shapes, types, strict=True):
            if (values.shape, values.dtype) != (shape, dtype):
                raise MismatchError(
                    f"saved draft head: {values.shape} {values.dtype}, expected {shape} {dtype}; "
                    "save the session again"
                )
        self._ops.kv_write(self._passes.cache, *pages, k, v)
        self._hidden.assign(FINAL_HIDDEN, sequence.slot, first, hidden)
        sequence.drafter_states[self] = Followed(taken_in, end, first)

    def _state(self, sequence: Sequence) -> Followed:
        state = sequence.drafter_states.get(self)
        if state is None:
            state = sequence.drafter_states[self] = Followed()
        return state

    def _can_start(self, sequence: Sequence) -> bool:
        state, position = self._state(sequence), sequence.cursor.cache_len
        before = min(state.taken_in, position) - 1
        return state.heard >= position and state.has_hidden(before)

    def _waiting(self, sequence: Sequence) -> SequenceRows:
        """The rows up to the last token that are not taken in, that of the last token in any case.

        The head's own hidden row of it begins the chain.
        """
        position = sequence.cursor.cache_len
        start_pos = min(self._state(sequence).taken_in, position)
        return sequence, sequence.history[start_pos : position + 1].tolist(), start_pos


def own_nextn(
    gguf: GGUFFile, trunk: Trunk, target: Decoder, ids: np.ndarray | None = None
) -> NextNHead | Declined | None:
    """``load_nextn`` of a model's own file: what is wrong with the head is a reason to decline."""
    try:
        return load_nextn(gguf, trunk, target, ids)
    except SpecrtError as error:
        return Declined(DRAFT_HEAD, str(error))


def load_nextn(
    gguf: GGUFFile, trunk: Trunk, target: Decoder, ids: np.ndarray | None = None
) -> NextNHead | Declined | None:
    """The NextN head of a file, None if it promises none.

    Args:
        gguf: the target's file, or one of a head that was checked against it.
        trunk: the target's.
        target: whose slots the head follows.
        ids: those that the head drafts, ascending; None for all.

    Raises:
        MismatchError, UnsupportedError: a tensor is missing, has another shape, or is one too many.
    """
    weights = load_weights(gguf, trunk, ids)
    return NextNHead(weights, target, trunk) if isinstance(weights, NextNWeights) else weights
