"""The op table: what every op set offers, so that a model is written once for all devices.

An op set has buffers, weights, step inputs and ops. Every op takes ``out=``; every op runs at once,
or inside ``with ops.record() as program`` is recorded for ``program.run()``. What an op means is
written in ``specrt.reference``; here stands what a caller has to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from .acts import Acts
from .experts import Experts, ExpertWeight, Routed
from .state.draw import Draw
from .state.recurrent import RecurrentLayer, RecurrentShape

Array = Any
"""An array of the op set's device (``numpy.ndarray`` on the reference and on the host)."""

Role = Literal["int8", "int8x2", "f32"]
"""How a weight's input is prepared: int8 blocks of 32, those twice, or float32."""

Activation = Literal["silu", "gelu_tanh", "sigmoid"]
RopePairing = Literal["neox", "interleaved"]
KVType = Literal["f32", "f16", "q8_0"]
DeviceName = Literal["auto", "cpu", "cuda", "emulator", "reference"]

PAGE = 64
"""Positions in a KV page, and in an attention chunk."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding: ``table[p, i] = (cos, sin)`` of pair ``i`` at position ``p``.

    ``table`` is ``[context, n_rot / 2, 2]`` float32; dims from ``n_rot`` on pass through, with
    ``n_rot`` 0 all of them.
    """

    table: Array
    pairing: RopePairing


class Weight(Protocol):
    """A matrix on the device: ``shape`` is (N, K), ``role`` says how its input is prepared."""

    shape: tuple[int, int]
    role: Role


class StepInputs(Protocol):
    """All that changes between two runs of a program, in one int32 block.

    ``tokens`` [T], ``positions`` [T], ``row_seqs`` [T] (which of the B sequences a row is of),
    ``row_offsets`` [B + 1], ``slots``, ``live`` and ``pending`` [B] (of recurrent states),
    ``lowest`` [B] (positions below it have no keys), ``page_table`` [B, pages of the context] and
    ``ring_table`` [B, ring pages]. The arrays have the
    maximal sizes; a program reads the first T rows and B sequences.
    """

    tokens: Array
    positions: Array
    row_seqs: Array
    row_offsets: Array
    slots: Array
    live: Array
    pending: Array
    lowest: Array
    page_table: Array
    ring_table: Array

    def publish(self) -> None:
        """Hand what was written to the ops: the next run reads it."""


class Draws(Protocol):
    """How the windows of a step draw, where an op set draws beside the logits."""

    def publish(self, draws: Sequence[Draw | None]) -> None:
        """Hand on how each window draws, None for one that does not: the next run reads it."""

    def sample(self, logits: Array, step: Any, *, ids: Array) -> None:
        """Put drawn ids [T] in place of the argmax, as ``reference.sampling`` says; an op.

        A window's rows behind one whose id is not the draft's may be left out. What a draw's edits
        change is changed in the other rows of the logits [T, V].
        """


class KVLayer(Protocol):
    """One layer's cached keys and values in pages of 64 positions; the layout is the op set's.

    With ``ring_pages`` > 0 the page of chunk c is ``ring_table[seq, c % ring_pages]``, else it is
    ``page_table[seq, c]``.
    """

    kv_type: KVType
    ring_pages: int


class Program(Protocol):
    """Recorded ops over fixed buffers."""

    def prepare(self) -> None:
        """Make what can be made before the next run, so that its time is that of the ops."""

    def run(self) -> None: ...

    def repeat(self, times: int, until: Array) -> int:
        """Run up to ``times`` times, while ``until`` [1] int32, which the ops write, is 0.

        Where that cannot be seen without a wait it is not looked at: the results of more runs are
        of no harm to a caller that knows which of them count.

        Returns:
            How often.
        """


class Ops(Protocol):
    """An op set: ``ReferenceOps``, ``HostOps``, ``KernelOps``.

    Weights, prepared rows, caches and step inputs are the op set's own; what it takes of them is
    what it made, hence no narrower type than Any.
    """

    device: str

    def record(self) -> AbstractContextManager[Program]: ...

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array: ...

    def assign(self, array: Array, values: np.ndarray) -> None: ...

    def to_host(self, array: Array) -> np.ndarray: ...

    def weight(self, tensor: Any, role: Role = "int8", bias: Any = None) -> Weight: ...

    def table(self, tensor: Any) -> Any:
        """A matrix of which only ``embed`` reads rows."""

    def expert_weight(self, tensor: Any, role: Role = "int8") -> ExpertWeight:
        """Matrices of one tensor [E, N, K], which ``moe`` reads."""

    def vector(self, tensor: Any) -> Array: ...

    def acts(self, num_rows: int, width: int, weights: Sequence[Any]) -> Acts: ...

    def routed(self, num_rows: int, experts: Sequence[Experts]) -> Routed:
        """Room for rows on their way to the experts of any of these layers."""

    def step_inputs(
        self, num_rows: int, num_seqs: int, num_pages: int, ring_pages: int
    ) -> StepInputs: ...

    def draws(self, num_seqs: int, max_edits: int) -> Draws | None:
        """Draws of at most so many windows, and edits of each; None: the host draws."""

    def kv_layer(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> KVLayer: ...

    def kv_read(self, cache: Any, pages: Array, positions: Array) -> tuple[Array, Array]: ...

    def kv_write(self, cache: Any, pages: Array, positions: Array, k: Array, v: Array) -> None: ...

    def recurrent_layer(self, shape: RecurrentShape, num_slots: int) -> RecurrentLayer: ...

    def embed(self, weight: Any, step: Any, *, scale: float, out: Array) -> None: ...

    def rms_norm(
        self,
        x: Array,
        weight: Array,
        eps: float,
        *,
        out: Array | None,
        add: Array | None = None,
        acts: Any | None = None,
    ) -> None: ...

    def quantize(self, x: Array, *, out: Any) -> None: ...

    def linear(
        self, pairs: Sequence[tuple[Any, Array]], acts: Any, *, add: Array | None = None
    ) -> None: ...

    def rope_kv(
        self,
        q: Array,
        k: Array,
        v: Array,
        cache: Any,
        step: Any,
        *,
        rope: Rope,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        eps: float = 0.0,
    ) -> None: ...

    def attention(
        self,
        q: Array,
        cache: Any,
        step: Any,
        *,
        scale: float,
        window: int,
        out: Array,
        softcap: float = 0.0,
        ahead: bool = False,
        sinks: Array | None = None,
    ) -> None: ...

    def causal_conv(
        self, u: Array, weight: Array, layer: Any, step: Any, *, out: Array
    ) -> None: ...

    def gated_delta(
        self,
        qkv: Array,
        alpha: Array,
        beta: Array,
        layer: Any,
        step: Any,
        *,
        a: Array,
        dt_bias: Array,
        eps: float,
        out: Array,
        states_out: Array | None = None,
    ) -> None: ...

    def glu(
        self,
        gate: Array,
        up: Array,
        *,
        activation: Activation,
        out: Array | None,
        acts: Any | None = None,
    ) -> None:
        """Gate rows; with ``out`` None they are only prepared, and gate and up are used up."""

    def route(self, logits: Array, *, out: Routed) -> None: ...

    def moe(
        self,
        acts: Acts,
        experts: Experts,
        routed: Routed,
        *,
        activation: Activation,
        out: Array,
        add: Array | None = None,
        shared: Array | None = None,
        shared_gate: Array | None = None,
    ) -> None: ...

    def head(
        self,
        weight: Any,
        acts: Any,
        *,
        ids: Array,
        logits: Array | None,
        softcap: float,
        scale: float = 1.0,
    ) -> None: ...

    def top_k(self, logits: Array, *, ids: Array, values: Array) -> None: ...

    def accept(self, ids: Array, step: Any, *, out: Array) -> None: ...

    def mtp_project(
        self,
        embedding: Any,
        hidden: Array,
        projection: Any,
        step: Any,
        *,
        embedding_norm: Array,
        hidden_norm: Array,
        scale: float,
        eps: float,
        acts: Any,
        out: Array,
    ) -> None: ...

    def draft_token(
        self,
        ids: Array,
        logits: Array,
        step: Any,
        *,
        names: Array | None,
        gates: Array,
        tokens: Array,
        shares: Array,
        stop: Array,
    ) -> None: ...

    def store_rows(self, x: Array, step: Any, *, out: Array) -> None: ...

    def load_rows(self, rings: Sequence[Array], step: Any, *, acts: Any) -> None: ...

    def block_conv(
        self,
        x: Array,
        dynamic: Array,
        base: Array,
        step: Any,
        *,
        side: int,
        out: Array | None,
        add: Array | None = None,
        acts: Any | None = None,
    ) -> None: ...

    def lattice(
        self,
        ids: Array,
        logits: Array,
        gates: Array,
        step: Any,
        *,
        predecessor: Any,
        successor: Any,
        names: Array | None,
        scores: Array,
    ) -> None: ...

    def markov(
        self,
        logits: Array,
        hidden: Array,
        step: Any,
        *,
        predecessor: Any,
        successor: Any,
        confidence: Array | None,
        names: Array | None,
        acts: Any,
        ids: Array,
        confidences: Array | None,
    ) -> None: ...

    def scale(self, x: Array, factor: float, *, out: Array, add: Array | None = None) -> None: ...

    def copy(self, x: Array, *, out: Array) -> None: ...

    def select(self, x: Array, index: Array, *, out: Array) -> None: ...


def cuda_problem() -> str | None:
    """Why kernels cannot be compiled and run on a CUDA device; None if they can.

    CuPy may be there without a driver, a device or NVRTC.
    """
    from .errors import UnsupportedError
    from .kernels._module import find_cuda  # op sets import this module

    try:
        find_cuda()
    except UnsupportedError as error:
        return str(error)
    return None


def usable_cuda() -> bool:
    """Whether kernels can be compiled and run on a CUDA device: this alone decides."""
    return cuda_problem() is None
