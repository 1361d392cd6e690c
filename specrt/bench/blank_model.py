"""A decoder that emits a given text: all of a step is real but what its program computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from specrt._ext.host_ops import Tape
from specrt.bench.op_calls import random_tensor
from specrt.host import HostOps
from specrt.models.blocks import Forward, Trunk
from specrt.models.decoder import MAX_ROWS, Decoder
from specrt.models.loader import Dims
from specrt.ops import Array, Ops
from specrt.options import MAX_DRAFT

WIDTH = 32
SURE = 20.0
"""The logit of the text's id. All others are normal, so at a temperature of 0.8 nearly each has a
weight, as draws take longest, and one draw in a million is of another id."""


class Stopwatch:
    """Nanoseconds that are not the step's own."""

    def __init__(self) -> None:
        self._nanoseconds = 0

    def stop(self, started: int) -> None:
        """Count what went by since ``perf_counter_ns`` gave ``started``."""
        self._nanoseconds += perf_counter_ns() - started

    def take(self) -> int:
        """What came together since the last call."""
        taken, self._nanoseconds = self._nanoseconds, 0
        return taken


@dataclass(slots=True)
class Script:
    """What all programs follow.

    Args:
        text: [n] int32, the one sequence.
        weights: bytes that each run reads, so that it leaves the caches as a model of that size.
        watch: has the time of all runs but their draws.
        draws: has the time of those.
    """

    text: np.ndarray
    weights: np.ndarray
    watch: Stopwatch = field(default_factory=Stopwatch)
    draws: Stopwatch = field(default_factory=Stopwatch)


class ScriptedProgram:
    """Leaves the text's ids where a head does, draws, and leaves what the ids accept.

    Args:
        script: what it follows.
        others: [V] float32, the logits of all ids but the text's.
        tape: of which only draws are a phase; it wakes the threads and is told times as any other.
    """

    step: Any
    ids: Array
    logits: Array | None
    outcomes: Array

    def __init__(self, script: Script, others: np.ndarray, tape: Tape) -> None:
        self._script, self._others, self._tape = script, others, tape

    def prepare(self) -> None:
        """Wake the threads."""
        self._tape.prepare()

    def run(self) -> None:
        """One step of one sequence."""
        start = perf_counter_ns()
        self._script.weights.max()
        rows, first = len(self.ids), int(self.step.positions[0]) + 1
        self.ids[:] = self._script.text[first : first + rows]
        if self.logits is not None:
            self._raise(self.logits)
        self._script.watch.stop(start)
        start = perf_counter_ns()
        self._tape.run()
        if self.logits is not None:
            self._script.draws.stop(start)
        start = perf_counter_ns()
        wrong = np.flatnonzero(self.step.tokens[1:rows] != self.ids[:-1])
        m = int(wrong[0]) if len(wrong) else rows - 1
        self.outcomes[0] = m, self.ids[m], first + m
        self._script.watch.stop(start)

    def _raise(self, logits: Array) -> None:
        logits[:] = self._others
        np.put_along_axis(logits, self.ids[:, None], SURE, axis=1)


class ScriptedOps(HostOps):
    """The host op set, of which only buffers and draws are used.

    Args:
        script: what its programs follow.
        vocab_size: V.
    """

    def __init__(self, script: Script, vocab_size: int) -> None:
        super().__init__(threads=2)
        self._script = script
        self._others = np.random.default_rng(0).standard_normal(vocab_size, np.float32)

    @contextmanager
    def record(self) -> Iterator[Any]:
        """Within the block nothing is recorded but draws, and where the results go."""
        with super().record() as tape:
            self._program = ScriptedProgram(self._script, self._others, tape)
            yield self._program

    def embed(self, weight: Any, step: Any, *, scale: float, out: Array) -> None:
        """The step inputs."""
        self._program.step = step

    def rms_norm(self, *args: Any, **keywords: Any) -> None:
        """Nothing."""

    def head(
        self,
        weight: Any,
        acts: Any,
        *,
        ids: Array,
        logits: Any,
        softcap: float,
        scale: float = 1.0,
    ) -> None:
        """Where ids and logits go."""
        self._program.ids, self._program.logits = ids, logits

    def accept(self, ids: Array, step: Any, *, out: Array) -> None:
        """Where the outcomes go."""
        self._program.outcomes = out


class BlankTrunk(Trunk):
    """One layer that records nothing."""

    def __init__(self, ops: Ops, vocab_size: int) -> None:
        self.dims = Dims(
            num_layers=1, width=WIDTH, heads=(1,), kv_heads=(1,), head_dim=WIDTH,
            ffn_width=(WIDTH,), eps=0.0, context=0, vocab_size=vocab_size,
        )  # fmt: skip
        self.windows = (0,)
        self.token_embd = self.output = ops.weight(random_tensor("F32", WIDTH, WIDTH))
        self.weights = (self.output,)
        self.output_norm = None

    def block(self, f: Forward, layer: int) -> None:
        """Nothing."""


def blank_decoder(script: Script, vocab_size: int) -> Decoder:
    """A decoder whose context is the script's text."""
    ops = ScriptedOps(script, vocab_size)
    return Decoder(
        BlankTrunk(ops, vocab_size),
        ops,
        context=len(script.text),
        kv_type="f16",
        max_sequences=MAX_ROWS // (MAX_DRAFT + 1),
    )
