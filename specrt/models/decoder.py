"""The target over one architecture's trunk: prefill, verify, rollback and rewind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from weakref import ref

import numpy as np

from specrt.errors import ContextError, MismatchError
from specrt.models.blocks import Forward, Trunk, Workspace
from specrt.models.programs import Programs
from specrt.models.saved_state import SavedState
from specrt.models.step_rows import StepRows
from specrt.models.tap_rows import TapRows
from specrt.ops import Acts, Array, KVLayer, KVType, Ops, Program
from specrt.options import MAX_DRAFT
from specrt.state.kv import PageLayout
from specrt.state.messages import (
    FINAL_HIDDEN,
    Kept,
    Tap,
    Verification,
    Window,
    joined_taps,
    residual_entering,
)
from specrt.state.recurrent import RecurrentLayer
from specrt.state.sequence import Cursor, Sequence

MAX_ROWS = 512
"""The most rows of one forward, and the length of a prefill chunk."""

MAX_DRAW_IDS = 1024
"""That bias and suppression may name in a window's draw, beside all ids of its context."""

NUMERICS = 1
"""Counts changes to the bits that an op set computes: older saved states are refused then."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A program, and where one of prefill leaves the taps of its rows."""

    program: Program
    taps: dict[Tap, Array]


class Decoder:
    """A causal language model; fulfils ``speculative.target.Target``.

    Programs are recorded per number of rows, taps and outputs, and replayed over the same buffers.

    Args:
        trunk: the architecture.
        ops: the op set that the trunk's weights are on.
        context: positions of a sequence.
        kv_type: how keys and values are stored.
        max_sequences: slots.

    Attributes:
        trunk: the architecture.
        caches: what each layer keeps.
        tap_rows: the tapped rows that are kept for a while.
        logits_shape: of the logits of the longest windows of all sequences; they are made when a
            verify first asks for them.
    """

    def __init__(
        self,
        trunk: Trunk,
        ops: Ops,
        *,
        context: int,
        kv_type: KVType,
        max_sequences: int,
    ) -> None:
        dims = trunk.dims
        self.ops = ops
        self.kv_type = kv_type
        self.context = context
        self.vocab_size = dims.vocab_size
        self.max_sequences = max_sequences
        self.preferred_num_draft = trunk.preferred_num_draft
        self.taps = frozenset({FINAL_HIDDEN, *map(residual_entering, range(dims.num_layers + 1))})
        self.layout = PageLayout(context, max(trunk.windows), MAX_ROWS, max_sequences)
        self.caches = [self._cache(trunk, layer) for layer in range(dims.num_layers)]
        self._is_recurrent = any(isinstance(cache, RecurrentLayer) for cache in self.caches)
        self._saved = SavedState(ops, self.caches, trunk.windows, self.layout)
        self.trunk = trunk
        self._work = Workspace(
            ops, MAX_ROWS, dims.width, trunk.weights, trunk.output, trunk.num_outs,
            trunk.experts,
        )  # fmt: skip
        self._rows = StepRows(ops, self.layout, MAX_ROWS)
        self._ids = ops.buffer((MAX_ROWS,), np.int32)
        self._outcomes = ops.buffer((max_sequences, 3), np.int32)
        self._draws = ops.draws(max_sequences, min(context + MAX_DRAW_IDS, dims.vocab_size))
        self.max_draw_ids = None if self._draws is None else MAX_DRAW_IDS
        self.logits_shape = (min(max_sequences * (MAX_DRAFT + 1), MAX_ROWS), dims.vocab_size)
        self._logits: Array | None = None
        self._prefilled_taps: dict[Tap, Array] = {}
        self.tap_rows = TapRows(ops, max_sequences, dims.width)
        self._programs = Programs(self._record)
        # Weak, so that a sequence which nobody holds any more gives its slot back.
        self._slots: list[ref[Sequence] | None] = [None] * max_sequences
        self._slots_lock = threading.Lock()

    def _cache(self, trunk: Trunk, layer: int) -> KVLayer | RecurrentLayer:
        shape, layout = trunk.recurrent_shape(layer), self.layout
        if shape is not None:
            return self.ops.recurrent_layer(shape, self.max_sequences)
        pages, ring_pages = layout.layer_pages(trunk.windows[layer])
        heads, head_dim = trunk.dims.kv_heads[layer], trunk.dims.head_dim
        return self.ops.kv_layer(pages, heads, head_dim, self.kv_type, ring_pages)

    def open_sequence(self) -> Sequence:
        """A new, empty sequence in a free slot.

        Raises:
            ContextError: all slots are in use.
        """
        with self._slots_lock:
            slot = self._free_slot()
            if slot is None:
                gc.collect()  # what nobody holds may still hang in a cycle
                slot = self._free_slot()
            if slot is None:
                raise ContextError(
                    f"all {self.max_sequences} sequences are in use: close a session or a stream, "
                    "or load with a higher max_sequences"
                )
            sequence = Sequence(slot, self.context)
            self._slots[slot] = ref(sequence)
            return sequence

    def _free_slot(self) -> int | None:
        return next((i for i in range(self.max_sequences) if self._holder(i) is None), None)

    def _holder(self, slot: int) -> Sequence | None:
        held = self._slots[slot]
        sequence = None if held is None else held()
        return None if sequence is None or sequence.closed else sequence

    def close_sequence(self, sequence: Sequence) -> None:
        """Give its slot back; a second call changes nothing."""
        sequence.closed = True  # nothing else: whoever holds the slot meanwhile keeps it

    @property
    def num_open(self) -> int:
        """Sequences in use."""
        return sum(self._holder(slot) is not None for slot in range(self.max_sequences))

    def prefill(
        self, sequence: Sequence, tokens: list[int], taps: Collection[Tap] = ()
    ) -> Iterator[Kept]:
        """Feed ``tokens`` at ``cache_len``, chunk by chunk.

        A chunk with taps comes in pieces, since its rows are kept where those of steps are. Asking
        for what follows a chunk, be it the end, moves ``cache_len`` past it: a caller that fails
        over a chunk finds the cursor before it. Feeding it again changes nothing.

        No chunk crosses a multiple of 512 positions; within, lengths are powers of two.

        Raises:
            MismatchError: the target has no such taps.
        """
        start = sequence.cursor.cache_len
        end = start + len(tokens)
        done = 0
        while start < end:
            rows = min(end - start, MAX_ROWS - start % MAX_ROWS)
            rows = 1 << (rows.bit_length() - 1)
            chunk = tokens[done : done + rows]
            tap_rows = self.feed([Window(sequence, chunk, start)], taps)
            following = tokens[done + rows] if done + rows < len(tokens) else None
            yield from self.tap_rows.fed(sequence, start, chunk, following, tap_rows)
            done += rows
            start += rows
            sequence.cursor = sequence.cursor.fed(rows)

    def feed(self, windows: list[Window], taps: Collection[Tap] = ()) -> dict[Tap, Array]:
        """Forward all windows without the LM head; no cursor moves.

        Returns:
            [T, D] float32 of each tap, the target's own buffers.

        Raises:
            MismatchError: the target has no such taps.
        """
        recorded = self._recorded(_rows(windows)[0], False, False, frozenset(taps))
        self._run(recorded, windows)
        return recorded.taps

    def prepare(
        self, windows: list[Window], *, taps: Collection[Tap] = (), logits: bool = False
    ) -> None:
        """Record the program of this verify, if it was not."""
        num_rows, draws = _rows(windows)
        if num_rows <= MAX_ROWS:
            self._recorded(num_rows, True, logits or draws, frozenset(taps)).program.prepare()

    def verify(
        self, windows: list[Window], *, taps: Collection[Tap] = (), logits: bool = False
    ) -> Verification:
        """Forward all windows in one call; no cursor moves.

        Raises:
            ContextError: a window ends behind the context, or all windows have too many rows.
            MismatchError: the target has no such taps.
        """
        num_rows, draws = _rows(windows)
        stored = logits or draws
        most = self.logits_shape[0] if stored else MAX_ROWS
        if num_rows > most:
            kind = " with logits" if stored else ""
            raise ContextError(f"{num_rows} rows{kind} in one verify: expected at most {most}")
        recorded = self._recorded(num_rows, True, stored, frozenset(taps))
        if stored and self._draws is not None:
            self._draws.publish([window.draw for window in windows])
        offsets = self._run(recorded, windows)
        rows = None
        if logits and self._logits is not None:
            rows = self.ops.to_host(self._logits[:num_rows])
        outcomes = self.ops.to_host(self._outcomes)[: len(windows)].copy()
        return Verification(self._ids[:num_rows], offsets, outcomes, rows)

    def kept_rows(
        self, sequence: Sequence, start: int, end: int, taps: Collection[Tap]
    ) -> Iterator[Kept]:
        """Rows start .. end - 1 of the steps since the prompt, with taps that all of them had.

        They are among the newest ``tap_rows.RING`` that were verified, kept or not.
        """
        return self.tap_rows.kept(sequence, start, end, taps)

    def make_taps(self, taps: Collection[Tap]) -> None:
        """Make the room for taps that else their first use makes."""
        for tap in taps:
            self.tap_rows.ring(tap)
            self._prefilled(tap)

    def rollback(self, sequence: Sequence, num_kept: int) -> Cursor:
        """The cursor after the last verify if its first ``num_kept`` rows are kept.

        Of a window of more than ``MOST_KEPT`` rows a recurrent layer has kept none or all.
        """
        return sequence.cursor.fed(num_kept)

    def rewind(self, sequence: Sequence, num_tokens: int) -> int:
        """Go back to ``num_tokens`` consumed tokens, or to none if a layer has lost what it needs.

        A sliding window may have lost its keys; a recurrent state knows no way back past the rows
        that are pending.
        """
        cursor = sequence.cursor
        num_tokens = min(num_tokens, cursor.cache_len)
        lost = cursor.cache_len - num_tokens
        finished = self._is_recurrent and lost > cursor.pending
        if finished or not self.layout.can_rewind(sequence, num_tokens):
            num_tokens = 0
        if num_tokens == 0:
            sequence.high_water = sequence.lowest_kept = 0
        pending = max(0, cursor.pending - lost) if num_tokens else 0
        sequence.cursor = cursor._replace(cache_len=num_tokens, pending=pending)
        return num_tokens

    @property
    def numerics(self) -> str:
        """Names everything that decides the bits of a saved state, apart from the model."""
        return f"{self.ops.device} {self.kv_type} {NUMERICS}"

    def export_state(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """What the target has of a sequence: see ``SavedState``."""
        return self._saved.export(sequence)

    def import_state(
        self, sequence: Sequence, cache_len: int, arrays: dict[str, np.ndarray]
    ) -> None:
        """Take what ``export_state`` gave: see ``SavedState``."""
        self._saved.restore(sequence, cache_len, arrays)

    def _run(self, recorded: _Recorded, windows: list[Window]) -> list[int]:
        """Fill the step inputs, run, and return the windows' row offsets."""
        offsets = self._rows.publish([window[:3] for window in windows])
        for sequence, tokens, start_pos, _ in windows:
            sequence.high_water = max(sequence.high_water, start_pos + len(tokens))
        recorded.program.prepare()
        recorded.program.run()
        return offsets

    def _recorded(self, num_rows: int, head: bool, logits: bool, taps: frozenset[Tap]) -> _Recorded:
        """The program for these."""
        return self._programs.get(num_rows, head, logits, taps)

    def _record(self, num_rows: int, head: bool, logits: bool, taps: frozenset[Tap]) -> _Recorded:
        if missing := taps - self.taps:
            raise MismatchError(
                f"taps {joined_taps(missing)}, expected some of {joined_taps(self.taps)}: ask only "
                "for what the target has"
            )
        ops, trunk, work, step = self.ops, self.trunk, self._work, self._rows.inputs
        x, h = work.residual[:num_rows], work.hidden[:num_rows]
        prefilled = {} if head else {tap: self._prefilled(tap)[:num_rows] for tap in taps}
        if logits and self._logits is None:
            self._logits = ops.buffer(self.logits_shape, np.float32)
        f = Forward(ops, work, step, x, h, self.caches)

        def keep(tap: Tap, rows: Array) -> None:
            if tap in prefilled:
                ops.copy(rows, out=prefilled[tap])
            elif tap in taps:
                ops.store_rows(rows, step, out=self.tap_rows.ring(tap))

        with ops.record() as program:
            trunk.embed(f)
            for layer in range(trunk.dims.num_layers):
                keep(residual_entering(layer), x)
                trunk.block(f, layer)
            keep(residual_entering(trunk.dims.num_layers), x)
            acts = work.acts(*x.shape) if head else None
            hidden = prefilled.get(FINAL_HIDDEN, h) if FINAL_HIDDEN in taps else None
            if acts is not None or hidden is not None:
                ops.rms_norm(x, trunk.output_norm, trunk.dims.eps, out=hidden, acts=acts)
            if hidden is h:
                keep(FINAL_HIDDEN, h)
            if acts is not None:
                self._record_head(acts, num_rows, logits)
        return _Recorded(program, prefilled)

    def _record_head(self, acts: Acts, num_rows: int, logits: bool) -> None:
        """Record ids, with logits drawn ones, and what they accept."""
        ops, trunk, ids = self.ops, self.trunk, self._ids[:num_rows]
        rows = self._logits[:num_rows] if logits and self._logits is not None else None
        ops.head(
            trunk.output, acts, ids=ids, logits=rows,
            softcap=trunk.softcap, scale=trunk.logit_scale,
        )  # fmt: skip
        if rows is not None and self._draws is not None:
            self._draws.sample(rows, self._rows.inputs, ids=ids)
        ops.accept(ids, self._rows.inputs, out=self._outcomes)

    def _prefilled(self, tap: Tap) -> Array:
        """Where a chunk's rows are left for who hears of it at once."""
        if tap not in self._prefilled_taps:
            shape = (MAX_ROWS, self.trunk.dims.width)
            self._prefilled_taps[tap] = self.ops.buffer(shape, np.float32)
        return self._prefilled_taps[tap]


def _rows(windows: list[Window]) -> tuple[int, bool]:
    """How many rows the windows have, and whether one of them is drawn."""
    num_rows, draws = 0, False
    for _, tokens, _, draw in windows:
        num_rows += len(tokens)
        draws = draws or draw is not None
    return num_rows, draws
