"""Targets that take recurrent rows back in other ways than by the log: to be compared with it.

Keys and values need nothing in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, cast

from specrt.bench.ops_around import StatesOut
from specrt.models.blocks import Trunk
from specrt.models.decoder import Decoder
from specrt.ops import Array, Ops, Program
from specrt.state.messages import Tap, Verification, Window
from specrt.state.recurrent import RecurrentLayer
from specrt.state.sequence import Cursor, Sequence


class Copies:
    """Copies of many arrays at once: each set of them is recorded once.

    Args:
        ops: the op set.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._programs: dict[Hashable, Program] = {}

    def run(self, key: Hashable, pairs: Callable[[], Iterable[tuple[Array, Array]]]) -> None:
        """Copy.

        Args:
            key: of the set.
            pairs: from where to where.
        """
        program = self._programs.get(key)
        if program is None:
            with self._ops.record() as program:
                for x, out in pairs():
                    self._ops.copy(_rows(x), out=_rows(out))
            self._programs[key] = program
        program.prepare()
        program.run()


class SnapshotTarget(Decoder):
    """Writes the state behind every row of a window, and takes the kept row's.

    Args:
        trunk: the architecture.
        ops: the op set that the trunk's weights are on.
        least_rows, most_rows: of all windows together; where they have others, the log serves. One
            row has nothing to take back: with 1 and 1 a plain step is settled at once instead of
            by the next one.
        options: a decoder's.
    """

    def __init__(
        self, trunk: Trunk, ops: Ops, least_rows: int, most_rows: int, **options: Any
    ) -> None:
        self._written = StatesOut(ops, least_rows, most_rows)
        super().__init__(trunk, cast(Ops, self._written), **options)
        self._copies = Copies(ops)
        self._places: dict[int, int] = {}

    def verify(
        self, windows: list[Window], *, taps: Collection[Tap] = (), logits: bool = False
    ) -> Verification:
        """A decoder's, which leaves the rows' states behind."""
        verification = super().verify(windows, taps=taps, logits=logits)
        offsets = verification.row_offsets
        written = self._written.writes(offsets[-1])
        slots = [window.sequence.slot for window in windows]
        self._places = dict(zip(slots, offsets, strict=False)) if written else {}
        return verification

    def rollback(self, sequence: Sequence, num_kept: int) -> Cursor:
        """The cursor behind the kept rows, whose last one's state is now the other one."""
        cursor, slot = sequence.cursor, sequence.slot
        if slot not in self._places:
            return super().rollback(sequence, num_kept)
        row, other = self._places[slot] + num_kept - 1, 1 - cursor.live
        self._copies.run(
            (slot, other, row),
            lambda: [
                (states[row], layer.states[slot, other])
                for layer, states in self._written.states.items()
            ],
        )
        for layer in self._written.states:
            self._move_tail(layer, slot, cursor, num_kept)
        return cursor.fed(num_kept)._replace(pending=0)

    def _move_tail(self, layer: RecurrentLayer, slot: int, cursor: Cursor, num_kept: int) -> None:
        """The convolution's inputs before the next row: the newest of the old tail and the log."""
        tail, log = layer.tails[slot, 1 - cursor.live], layer.log_u[slot]
        count = min(len(tail), cursor.pending + num_kept)
        place = (cursor.cache_len + num_kept - count) % len(log)
        pieces = [
            layer.tails[slot, cursor.live][count:],
            log[place : place + count],
            log[: max(0, place + count - len(log))],
        ]
        end = 0
        for piece in pieces:
            begin, end = end, end + len(piece)
            if len(piece):
                self.ops.copy(piece, out=tail[begin:end])


class ReplayTarget(Decoder):
    """Copies the state before a window, and after a partial acceptance forwards the kept rows anew.

    Args:
        trunk: the architecture.
        ops: the op set that the trunk's weights are on.
        options: a decoder's.
    """

    def __init__(self, trunk: Trunk, ops: Ops, **options: Any) -> None:
        super().__init__(trunk, ops, **options)
        self._copies = Copies(ops)
        self._windows: dict[int, Window] = {}
        layers = [cache for cache in self.caches if isinstance(cache, RecurrentLayer)]
        self._kept = [
            (array, ops.buffer((len(array), *array.shape[2:]), array.dtype))
            for layer in layers
            for array in (layer.states, layer.tails)
        ]

    def verify(
        self, windows: list[Window], *, taps: Collection[Tap] = (), logits: bool = False
    ) -> Verification:
        """A decoder's, behind the copies."""
        self._windows = {w.sequence.slot: w for w in windows if len(w.tokens) > 1}
        for window in self._windows.values():
            self._copy(window.sequence, back=False)
        return super().verify(windows, taps=taps, logits=logits)

    def rollback(self, sequence: Sequence, num_kept: int) -> Cursor:
        """The cursor behind the kept rows, of which the model has seen no more."""
        window = self._windows.get(sequence.slot)
        if window is not None and num_kept < len(window.tokens):
            self._copy(sequence, back=True)
            self.feed([window._replace(tokens=window.tokens[:num_kept])])
        return super().rollback(sequence, num_kept)

    def _copy(self, sequence: Sequence, back: bool) -> None:
        slot, live = sequence.slot, sequence.cursor.live
        pairs = [(array[slot, live], kept[slot]) for array, kept in self._kept]
        turned = [(kept, array) for array, kept in pairs] if back else pairs
        self._copies.run((slot, live, back), lambda: turned)


def _rows(x: Array) -> Array:
    """[T, N]."""
    return x.reshape(len(x), -1)
