"""The memory plan: what a loaded model needs, beside what the machine has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specrt.gguf.reader import GGUFFile
from specrt.models import ARCHITECTURES
from specrt.models.decoder import MAX_ROWS
from specrt.models.loader import Dims
from specrt.ops import PAGE, KVType
from specrt.state.kv import PageLayout

DEFAULT_CONTEXT = 8192
BYTES_PER_VALUE: dict[KVType, float] = {"f32": 4, "f16": 2, "q8_0": 34 / 32}


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by purpose.

    Args:
        weights: of the file.
        kv_per_token: of one position in all layers.
        kv: of one sequence at the whole context.
        context: positions.
        kv_type: how keys and values are stored.
        drafter: of drafter weights and state.
        available: that the machine can give now, None if unknown.
    """

    weights: int
    kv_per_token: float
    kv: float
    context: int
    kv_type: KVType
    drafter: int
    available: int | None

    @property
    def needed(self) -> float:
        """The sum for one sequence."""
        return self.weights + self.kv + self.drafter

    def rows(self) -> list[tuple[str, str]]:
        """Labels and values, as ``inspect`` shows them."""
        rows = [
            ("weights", mebibytes(self.weights)),
            ("KV per 1k tokens", f"{mebibytes(self.kv_per_token * 1024)} ({self.kv_type})"),
            (f"KV at context {self.context}", f"{mebibytes(self.kv)} per sequence"),
            ("drafter", mebibytes(self.drafter) if self.drafter else "none"),
        ]
        if self.available is not None:
            rows.append(("headroom", mebibytes(self.available - self.needed)))
        return rows

    def __str__(self) -> str:
        return "memory: " + ", ".join(f"{label} {value}" for label, value in self.rows())


def mebibytes(count: float) -> str:
    """A byte count as people read it."""
    return f"{count / 2**20:,.1f} MiB"


def memory_plan(gguf: GGUFFile, context: int | None, kv_type: KVType) -> MemoryPlan:
    """Plan for one sequence of a file whose architecture runs here.

    Args:
        gguf: the open file; no weight is read.
        context: positions, None for the default.
        kv_type: how keys and values are stored.
    """
    dims = Dims.read(gguf)
    context = context or min(dims.context, DEFAULT_CONTEXT)
    windows = ARCHITECTURES[gguf.architecture].sliding_windows(gguf, dims.num_layers)
    layout = PageLayout(context, max(windows), MAX_ROWS, num_slots=1)
    sizes = [2 * heads * dims.head_dim * BYTES_PER_VALUE[kv_type] for heads in dims.kv_heads]
    kept = [PAGE * (layout.ring_pages if window else layout.pages) for window in windows]
    return MemoryPlan(
        weights=sum(tensor.nbytes for tensor in gguf.tensors.values()),
        kv_per_token=sum(sizes),
        kv=sum(size * positions for size, positions in zip(sizes, kept, strict=True)),
        context=context,
        kv_type=kv_type,
        drafter=0,
        available=available_memory(),
    )


def available_memory() -> int | None:
    """Bytes that can be used without swapping, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
