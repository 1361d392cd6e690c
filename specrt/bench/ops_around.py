"""Op sets around another one: what is recorded does something else, the models stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from specrt._ext.host_ops import Tape
from specrt.host import HostOps
from specrt.ops import Array, Ops
from specrt.state.recurrent import RecurrentLayer, RecurrentShape


class StatesOut:
    """Another op set that writes out the recurrent states behind every row of short forwards.

    Args:
        ops: the other one.
        least_rows, most_rows: of a forward whose states are written.

    Attributes:
        states: [most_rows, Hv, Dk, Dv] f32 of each layer.
    """

    def __init__(self, ops: Ops, least_rows: int, most_rows: int) -> None:
        self._ops = ops
        self._least_rows, self._most_rows = least_rows, most_rows
        self.states: dict[RecurrentLayer, Array] = {}

    def writes(self, num_rows: int) -> bool:
        """Whether the states of a forward of so many rows are written."""
        return self._least_rows <= num_rows <= self._most_rows

    def recurrent_layer(self, shape: RecurrentShape, num_slots: int) -> RecurrentLayer:
        """A layer, and room for its rows' states."""
        layer = self._ops.recurrent_layer(shape, num_slots)
        states = layer.states
        self.states[layer] = self._ops.buffer((self._most_rows, *states.shape[2:]), states.dtype)
        return layer

    def gated_delta(self, qkv: Array, alpha: Array, beta: Array, layer: Any, *rest: Any,
                    **keywords: Any) -> None:  # fmt: skip
        """Recurrent states, with ``states_out``."""
        if self.writes(len(qkv)):
            keywords["states_out"] = self.states[layer][: len(qkv)]
        self._ops.gated_delta(qkv, alpha, beta, layer, *rest, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


class TimedOps:
    """The host's op set, whose programs tell what each op takes.

    Args:
        ops: where they run.

    Attributes:
        seconds: of each op, in all runs since somebody cleared it.
    """

    def __init__(self, ops: HostOps) -> None:
        self._ops = ops
        self.seconds: Counter[str] = Counter()

    @contextmanager
    def record(self) -> Iterator[TimedProgram]:
        """Within the block ops are recorded and not run."""
        with self._ops.record() as tape:
            yield TimedProgram(tape, self.seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


class TimedProgram:
    """A tape that adds to the seconds of its ops.

    Args:
        tape: recorded, or being so.
        seconds: grows.
    """

    def __init__(self, tape: Tape, seconds: Counter[str]) -> None:
        self._tape, self._seconds = tape, seconds

    def prepare(self) -> None:
        """Wake the threads."""
        self._tape.prepare()

    def run(self) -> None:
        """Run every phase, and count its time."""
        for op, seconds in self._tape.run_timed():
            self._seconds[op] += seconds


class HeardOps:
    """The host's op set, whose programs tell the time of each phase while somebody listens.

    Args:
        ops: where they run.
    """

    def __init__(self, ops: HostOps) -> None:
        self._ops = ops
        self._heard: list[tuple[str, float]] | None = None

    @contextmanager
    def record(self) -> Iterator[HeardProgram]:
        """Within the block ops are recorded and not run."""
        with self._ops.record() as tape:
            yield HeardProgram(tape, self)

    @contextmanager
    def listening(self) -> Iterator[list[tuple[str, float]]]:
        """What runs within the block: (its op, its seconds) of each phase in turn."""
        self._heard = []
        try:
            yield self._heard
        finally:
            self._heard = None

    def run(self, tape: Tape) -> None:
        """Run every phase, with a clock if somebody listens."""
        if self._heard is None:
            tape.run()
        else:
            self._heard += tape.run_timed()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


class HeardProgram:
    """A tape that runs as those who listen want it.

    Args:
        tape: recorded, or being so.
        ops: who may be listened to.
    """

    def __init__(self, tape: Tape, ops: HeardOps) -> None:
        self._tape, self._ops = tape, ops

    def run(self) -> None:
        """Run every phase."""
        self._ops.run(self._tape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)
