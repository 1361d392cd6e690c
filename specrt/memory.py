"""The memory plan: what a loaded model needs, beside what the machine has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from specrt.devices import available_memory
from specrt.drafters.loading import load_head
from specrt.errors import OptionError
from specrt.experts import experts_of
from specrt.gguf.reader import GGUFFile
from specrt.host import HostOps
from specrt.host.weights import HostExperts, HostTable, HostWeight
from specrt.models import load_trunk
from specrt.models.decoder import Decoder
from specrt.models.loader import Dims
from specrt.ops import PAGE, Array, KVType, Role
from specrt.plain_calls import OPS
from specrt.state.messages import Declined
from specrt.state.recurrent import RecurrentLayer, RecurrentShape

DEFAULT_CONTEXT = 8192
DEFAULT_SEQUENCES = 4


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by purpose on one device, each as much as can come to be used.

    Not in it: the tokenizer and the metadata (about 40 bytes a token), n-gram indexes (about 90
    bytes a position and sequence), and Python itself; on CUDA its context, its graphs, and the
    scratch of attention (at most 128 MiB) and of the head.

    Args:
        weights: matrices as the device holds them, rows filled up to 16; on the CPU also the rows
            of the embedding, which stay in the mapped file and come to memory as they are read.
        kv_per_token: of one position in all layers.
        kv: of all sequences at the whole context; a page of it is taken when it is first written,
            2 MiB at a time where the system gives huge pages.
        state: of recurrent layers, of all sequences; a page is taken likewise.
        buffers: rotary tables, norms, and what a step of the most rows works in.
        logits: of the longest windows of all sequences; made when a token is first sampled.
        context: positions.
        max_sequences: sequences.
        kv_type: how keys and values are stored.
        drafter: of drafter weights and state.
        drafter_kind: as ``inspect`` calls it.
        available: that the device can give now, None if unknown.
    """

    weights: int
    kv_per_token: int
    kv: int
    state: int
    buffers: int
    logits: int
    context: int
    max_sequences: int
    kv_type: KVType
    drafter: int
    available: int | None
    drafter_kind: str = ""

    @property
    def needed(self) -> int:
        """The sum."""
        return self.weights + self.kv + self.state + self.buffers + self.logits + self.drafter

    def rows(self) -> list[tuple[str, str]]:
        """Labels and values, as ``inspect`` shows them."""
        count = self.max_sequences
        sequences = f"{count} sequence{'s' if count > 1 else ''}"
        drafter = f"{mebibytes(self.drafter)} ({self.drafter_kind})" if self.drafter else "none"
        rows = [
            ("weights", mebibytes(self.weights)),
            ("KV per 1k tokens", f"{mebibytes(self.kv_per_token * 1024)} ({self.kv_type})"),
            (f"KV at context {self.context}", f"{mebibytes(self.kv)} in {sequences}"),
            *([("recurrent states", mebibytes(self.state))] if self.state else []),
            ("work buffers", mebibytes(self.buffers)),
            ("logits of sampled tokens", f"up to {mebibytes(self.logits)}"),
            ("drafter", drafter),
        ]
        if self.available is not None:
            rows.append(("headroom", mebibytes(self.available - self.needed)))
        return rows

    def __str__(self) -> str:
        return "memory: " + ", ".join(f"{label} {value}" for label, value in self.rows())


def mebibytes(count: float) -> str:
    """A byte count as people read it."""
    return f"{count / 2**20:,.1f} MiB"


class Counting:
    """Of an op set: counts what a model makes and holds none of it.

    A buffer is one value under any shape, and a weight stays in its file.
    """

    made = made_kv = made_state = made_weights = kv_per_token = 0

    def __getattribute__(self, name: str) -> Any:
        """Ops do nothing: there is nothing to compute with, or to record programs of."""
        return _nothing if name in OPS else super().__getattribute__(name)

    @property
    def total(self) -> int:
        """All bytes that were made."""
        return self.made + self.made_kv + self.made_state + self.made_weights

    def mapped_bytes(self, embedding: Any) -> int:
        """Of the file, where ``embed`` reads rows: none."""
        return 0

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Looks like an array of that shape."""
        value = np.zeros(1, dtype)
        self.made += math.prod(shape) * value.itemsize
        return np.lib.stride_tricks.as_strided(value, shape, (0,) * len(shape))

    def assign(self, array: Array, values: np.ndarray) -> None:
        """Nothing is held."""

    def kv_layer(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> Any:
        """A layer that looks like one of so many pages."""
        before = self.made
        layer = super().kv_layer(num_pages, num_heads, head_dim, kv_type, ring_pages)  # type: ignore[misc]
        size, self.made = self.made - before, before
        self.made_kv += size
        self.kv_per_token += size // (num_pages * PAGE)
        return layer

    def recurrent_layer(self, shape: RecurrentShape, num_slots: int) -> RecurrentLayer:
        """A layer that looks like one of so many sequences."""
        before = self.made
        layer = super().recurrent_layer(shape, num_slots)  # type: ignore[misc]
        self.made_state += self.made - before
        self.made = before
        return cast(RecurrentLayer, layer)


def _nothing(*args: Any, **keywords: Any) -> None:
    pass


class CountingHostOps(Counting, HostOps):
    """What the CPU holds."""

    def __init__(self) -> None:
        super().__init__(threads=1)

    def pages(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A buffer as any other."""
        return self.buffer(shape, dtype)

    def weight(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> HostWeight:
        """A weight as far as it is not computed with."""
        return HostWeight(tensor, role, bias, self._count)

    def expert_weight(self, tensor: Any, role: Role = "int8") -> HostExperts:
        """The same of all experts."""
        return HostExperts(tensor, role, self._count)

    def table(self, tensor: Any) -> HostTable:
        """Rows that stay in their file."""
        table = HostTable(tensor)
        self.made_weights += table.raw.nbytes
        return table

    def mapped_bytes(self, embedding: HostTable) -> int:
        """All rows of one that is packed for the head; those of a table count already."""
        return embedding.raw.nbytes if isinstance(embedding, HostWeight) else 0

    def _count(self, num_bytes: int) -> Array:
        self.made_weights += num_bytes
        return np.zeros(0, np.uint8)


def counting_ops(device: str) -> Any:
    """An op set of the device that counts and holds nothing."""
    if device not in ("cuda", "emulator"):
        return CountingHostOps()
    from specrt.kernels import KernelOps  # who computes on the CPU need not wait for these
    from specrt.kernels.emulator import Emulator
    from specrt.kernels.weights import tiles_shape

    class CountingKernelOps(Counting, KernelOps):
        """What a CUDA device, or the emulator, holds."""

        def weight(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> Any:
            """A weight as far as it is not computed with."""
            self.made_weights += math.prod(tiles_shape(tensor.type.name, tensor.raw.shape))
            return HostWeight(tensor, role, bias, lambda num_bytes: np.zeros(0, np.uint8))

        def expert_weight(self, tensor: Any, role: Role = "int8") -> Any:
            """The same of all experts."""
            for expert in experts_of(tensor):
                self.made_weights += math.prod(tiles_shape(expert.type.name, expert.raw.shape))
            return HostExperts(tensor, role, lambda num_bytes: np.zeros(0, np.uint8))

    return CountingKernelOps(Emulator())


def memory_plan(
    gguf: GGUFFile,
    context: int | None = None,
    kv_type: KVType = "f16",
    max_sequences: int = DEFAULT_SEQUENCES,
    device: str = "cpu",
    head: GGUFFile | None = None,
    head_ids: np.ndarray | None = None,
) -> MemoryPlan:
    """Plan for a file whose architecture runs here, by loading it and holding nothing.

    Args:
        gguf: the open file; of its tensors only vectors are read.
        context: positions, None for the default.
        kv_type: how keys and values are stored.
        max_sequences: sequences.
        device: an op set's, which lays caches and buffers out as it likes.
        head: the file of the draft head that is loaded too, the target's own or another; None for
            none.
        head_ids: those that it guesses, None for all.

    Raises:
        SpecrtError: what loading raises.
    """
    context = usable_context(gguf, context)
    ops = counting_ops(device)
    trunk = load_trunk(gguf, ops, context)
    target = Decoder(
        trunk,
        ops,
        context=context,
        kv_type=kv_type,
        max_sequences=max_sequences,
    )
    plan = MemoryPlan(
        weights=ops.made_weights + ops.mapped_bytes(trunk.token_embd),
        kv_per_token=ops.kv_per_token,
        kv=ops.made_kv,
        state=ops.made_state,
        buffers=ops.made,
        logits=math.prod(target.logits_shape) * 4,
        context=context,
        max_sequences=max_sequences,
        kv_type=kv_type,
        drafter=0,
        available=available_memory(device),
    )
    if head is None:
        return plan
    before = ops.total
    loaded = load_head(head, trunk, target, head_ids)
    if loaded is None or isinstance(loaded, Declined):
        return plan
    target.make_taps(loaded.taps)
    return replace(plan, drafter=ops.total - before, drafter_kind=loaded.title)


def usable_context(gguf: GGUFFile, context: int | None) -> int:
    """The context, where it is None the model's own up to the default.

    Raises:
        OptionError: the model was not trained for it.
    """
    trained = Dims.read(gguf).context
    if context is None:
        return min(trained, DEFAULT_CONTEXT)
    if not 1 <= context <= trained:
        raise OptionError(
            f"context = {context}: expected 1 to {trained}, the context of {gguf.path}"
        )
    return context
