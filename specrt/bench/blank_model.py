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
SURE = 1000.0
"""The logit of the text's id, beside zeros."""


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
        watch: has the time of all runs.
        raised: the logits that the last run raised.
    """

    text: np.ndarray
    weights: np.ndarray
    watch: Stopwatch = field(default_factory=Stopwatch)
    raised: list[tuple[Array, int]] = field(default_factory=list)


class ScriptedProgram:
    """Leaves the text's ids where a forward leaves what it drew, and what they accept.

    Args:
        script: what it follows.
        tape: without phases; it wakes the threads and is told times as any other.
    """

    step: Any
    ids: Array
    logits: Array | None
    outcomes: Array

    def __init__(self, script: Script, tape: Tape) -> None:
        self._script, self._tape = script, tape

    def prepare(self) -> None:
        """Wake the threads."""
        self._tape.prepare()

    def run(self) -> None:
        """One step of one sequence."""
        self._tape.run()
        start = perf_counter_ns()
        self._script.weights.max()
        rows, first = len(self.ids), int(self.step.positions[0]) + 1
        expected = self._script.text[first : first + rows]
        self.ids[:] = expected
        if self.logits is not None:
            self._raise(self.logits, expected.tolist())
        wrong = np.flatnonzero(self.step.tokens[1:rows] != expected[:-1])
        m = int(wrong[0]) if len(wrong) else rows - 1
        self.outcomes[0] = m, expected[m], first + m
        self._script.watch.stop(start)

    def _raise(self, logits: Array, tokens: list[int]) -> None:
        for row, token in self._script.raised:
            row[token] = 0
        self._script.raised = list(zip(logits, tokens, strict=True))
        for row, token in self._script.raised:
            row[token] = SURE


class ScriptedOps(HostOps):
    """The host op set, of which only the buffers are used.

    Args:
        script: what its programs follow.
    """

    def __init__(self, script: Script) -> None:
        super().__init__(threads=2)
        self._script = script

    @contextmanager
    def record(self) -> Iterator[Any]:
        """Within the block nothing is recorded but where the results go."""
        with super().record() as tape:
            self._program = ScriptedProgram(self._script, tape)
            yield self._program

    def embed(self, weight: Any, step: Any, *, scale: float, out: Array) -> None:
        """The step inputs."""
        self._program.step = step

    def rms_norm(self, *args: Any, **keywords: Any) -> None:
        """Nothing."""

    def head(self, weight: Any, acts: Any, *, ids: Array, logits: Any, softcap: float) -> None:
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
    ops = ScriptedOps(script)
    return Decoder(
        BlankTrunk(ops, vocab_size),
        ops,
        context=len(script.text),
        kv_type="f16",
        max_sequences=MAX_ROWS // (MAX_DRAFT + 1),
    )
