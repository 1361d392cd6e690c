"""A ``dflash`` drafter at work: what it follows of each sequence, and its drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from specrt.drafters.dflash import DFlashWeights
from specrt.drafters.dflash_passes import WAITING, DFlashPasses
from specrt.drafters.host_copies import HostCopies
from specrt.errors import MismatchError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Trunk
from specrt.models.decoder import Decoder
from specrt.models.loader import Loader
from specrt.models.tap_rows import MOST_HELD, PIECE
from specrt.ops import PAGE, Ops
from specrt.plain_calls import PlainCalls
from specrt.settings import DFLASH
from specrt.state.messages import NO_DRAFT, Draft, DraftContext, Kept, residual_entering
from specrt.state.sequence import Sequence


@dataclass(slots=True)
class Followed:
    """How far the drafter follows a sequence.

    Args:
        first: rows before it were never heard of.
        injected: the keys of rows first .. n - 1 are in its caches.
        heard: rows first .. n - 1 were heard of.
        oldest: the first of them that the target still keeps.
        written: one past the highest position that was ever written to the caches.
    """

    first: int
    injected: int
    heard: int
    oldest: int
    written: int = 0

    @classmethod
    def anew(cls, position: int) -> Followed:
        """From that row on."""
        return cls(position, position, position, position)

    def hear(self, start_pos: int, end: int) -> None:
        """The target has kept those rows, and what was heard of behind them is gone."""
        self.injected = min(self.injected, start_pos)
        self.heard = end
        self.oldest = start_pos if start_pos < self.oldest else max(self.oldest, end - MOST_HELD)

    def leave_out(self, reach: int | None) -> None:
        """Go on behind rows that wait in vain: blocks see no further back, or they are lost."""
        begin = self.oldest if reach is None else max(self.oldest, self.heard - reach)
        if self.injected < min(begin, self.heard):
            self.first = self.injected = begin


class DFlashHead:
    """Fulfils ``speculative.draft_head.BlockHead``: a block behind the injected rows of the target.

    Kept rows wait until the next draft injects them before its block, in one call; where more wait,
    they are injected at once. Where no layer sees further back than the target keeps its rows, any
    number waits, and only those are injected that the next block sees.

    Args:
        weights: bound to the target.
        target: its slots, its context and its tapped rows.
        ops: that the weights are on.

    Attributes:
        title: what it is, for people.
        weights: as given.
        passes: its forwards.
    """

    kind: Literal["block"] = "block"

    def __init__(self, weights: DFlashWeights, target: Decoder, ops: Ops) -> None:
        keys = weights.keys
        self.title = f"{keys.generation}, blocks of {keys.block_size}"
        self.block_size = keys.block_size
        self.num_drafting = keys.num_drafting
        self.taps = frozenset(map(residual_entering, keys.target_layers))
        self.weights = weights
        self._ops, self._windows = ops, keys.windows
        reach = max(keys.windows) - 1 if all(keys.windows) else MOST_HELD + 1
        self._reach = reach if reach <= MOST_HELD else None
        self.passes = DFlashPasses(weights, target, ops)
        self.passes.record()

    def catch_up(self, rows: list[Kept]) -> None:
        """Follow rows, which the target keeps, and inject them if many wait."""
        for sequence, start_pos, tokens, _, _ in rows:
            state = sequence.drafter_states.get(self)
            if state is None or not self._goes_on(state, start_pos):
                state = sequence.drafter_states[self] = Followed.anew(start_pos)
            state.hear(start_pos, start_pos + len(tokens))
            if self._reach is None and state.heard - state.injected > WAITING:
                self._inject(sequence, state)

    def draft_block(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context; an empty one where the newest rows were not heard of."""
        asked, waiting, lowest = [], [], []
        for number, (sequence, num_draft, _) in enumerate(contexts):
            position, state = sequence.cursor.cache_len, sequence.drafter_states.get(self)
            if state is None or not self._can_see(state, position):
                continue
            state.injected = min(state.injected, position)
            state.heard = position
            state.leave_out(self._reach)
            if state.first >= position:
                continue
            if position - state.injected > WAITING:
                self._inject(sequence, state)
            rows = [0] * (position - state.injected)
            waiting.append((sequence, rows, state.injected))
            state.written = max(state.written, position + self.block_size)
            lowest.append(self._lowest(state, position))
            asked.append((number, min(num_draft, self.num_drafting)))
        drafts = [NO_DRAFT] * len(contexts)
        if asked:
            picked = self.passes.draft(waiting, lowest, [num for _, num in asked])
            for (number, _), (tokens, confidences) in zip(asked, picked, strict=True):
                sequence = contexts[number].sequence
                sequence.drafter_states[self].injected = sequence.cursor.cache_len
                drafts[number] = Draft(tokens, confidences, "")
        return drafts

    def reset(self, sequence: Sequence) -> None:
        """Follow the sequence back."""
        state, length = sequence.drafter_states[self], sequence.cursor.cache_len
        has_gap = state.injected < length <= state.oldest
        if length <= state.first or has_gap or self._has_lost(state, length):
            del sequence.drafter_states[self]
            return
        state.injected, state.heard = min(state.injected, length), min(state.heard, length)

    def heard(self, sequence: Sequence) -> int:
        """How many leading positions it has heard of, if it still counts them from the first on."""
        state = sequence.drafter_states.get(self)
        return 0 if state is None or state.first else state.heard

    def export_state(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """Keys and values that a next block can see, of rows up to the cursor."""
        state, length = sequence.drafter_states.get(self), sequence.cursor.cache_len
        if state is None or not self._can_see(state, length):
            return {}
        state.injected, state.heard = min(state.injected, length), length
        self._inject(sequence, state)
        if state.first >= length:
            return {}
        lowest = self._lowest(state, length)
        layout, arrays = self.passes.layout, {"first": np.array([lowest], np.int32)}
        for layer, cache in enumerate(self.passes.caches):
            seen = layout.seen(sequence.slot, self._windows[layer], length, lowest)
            read = self._ops.kv_read(cache, *seen)
            arrays |= {f"{n}{layer}": np.array(x) for n, x in zip("kv", read, strict=True)}
        return arrays

    def import_state(self, sequence: Sequence, arrays: dict[str, np.ndarray]) -> None:
        """Take what ``export_state`` gave.

        Raises:
            MismatchError: an array is missing or has another shape.
        """
        if not arrays:
            return
        length = sequence.cursor.cache_len
        first = np.atleast_1d(arrays.get("first", ()))
        if first.shape != (1,) or first.dtype.kind != "i" or not 0 <= first[0] < length:
            raise MismatchError(
                f"saved drafter: its first row is {first}, expected one before {length}; save the "
                "session again"
            )
        layout, lowest, writes = self.passes.layout, int(first[0]), []
        for layer, cache in enumerate(self.passes.caches):
            seen = layout.seen(sequence.slot, self._windows[layer], length, lowest)
            k, v = (np.atleast_1d(arrays.get(f"{name}{layer}", ())) for name in "kv")
            like = self._ops.kv_read(cache, *seen)[0]
            for values in (k, v):
                if (values.shape, values.dtype) != (like.shape, like.dtype):
                    raise MismatchError(
                        f"saved drafter: {values.shape} {values.dtype}, expected {like.shape} "
                        f"{like.dtype}; save the session again"
                    )
            writes.append((cache, *seen, k, v))
        for write in writes:
            self._ops.kv_write(*write)
        state = sequence.drafter_states[self] = Followed(lowest, length, length, length, length)
        if window := layout.window:  # older rows are not saved: as if written over
            state.written = length - window + 1 + self._ring_rows

    def _inject(self, sequence: Sequence, state: Followed) -> None:
        """All that waits, and that the next block sees."""
        state.leave_out(self._reach)
        while (first := state.injected) < state.heard:
            left = state.heard - first
            count = min(PIECE, 1 << (left.bit_length() - 1))
            self.passes.inject(sequence, first, count)
            state.injected = first + count
            state.written = max(state.written, state.injected)

    @property
    def _ring_rows(self) -> int:
        return self.passes.layout.ring_pages * PAGE

    def _goes_on(self, state: Followed, position: int) -> bool:
        """Whether rows from a position on join what was heard of."""
        return state.first <= position <= state.heard and not self._has_lost(state, position)

    def _can_see(self, state: Followed, position: int) -> bool:
        """Whether the newest rows before a position were heard of, and some are there."""
        return state.first < position and self._goes_on(state, position)

    def _has_lost(self, state: Followed, position: int) -> bool:
        """Whether sliding layers have no keys of a row before it: later ones, gone since, do."""
        return state.written - self._ring_rows >= position > 0 and self.passes.layout.window > 0

    def _lowest(self, state: Followed, position: int) -> int:
        """The first position that a block sees keys of.

        Where the sequence went back so far that sliding layers have lost some of a window, others
        do not see those rows either.
        """
        window, oldest = self.passes.layout.window, state.written - self._ring_rows
        has_all = not window or oldest <= max(state.first, position - window + 1)
        return state.first if has_all else oldest


def load_dflash(gguf: GGUFFile, trunk: Trunk, target: Decoder) -> DFlashHead:
    """The drafter of a file that was checked against the target's.

    The environment may leave parts of it out, or have it run op by op: see ``settings.DFLASH``.

    Raises:
        MismatchError, FormatError, UnsupportedError: it cannot be bound, and why.
        OptionError: a variable holds something else than a switch.
    """
    selector, conv, fused = (setting.from_environment() is not False for setting in DFLASH)
    ops = target.ops if fused else cast(Ops, PlainCalls(cast(Ops, HostCopies(target.ops))))
    loader = Loader(gguf, ops)
    if not selector:
        loader.hide("selector_")
    if not conv:
        loader.hide("_conv_")
    weights = DFlashWeights.load(loader, trunk, target.context, target.max_sequences)
    return DFlashHead(weights, target, ops)
