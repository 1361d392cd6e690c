"""The GPUs, as their makers describe them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

DOT_LANES, FLOAT_LANES, SCHEDULERS = 64, 128, 4
"""Of an SM and a clock: dp4a results (an assumption: as many as of integer multiply-adds), float32
multiply-adds, and warp instructions."""
REGISTERS, REGISTER_UNIT = 65536, 256
"""Of an SM; a warp is given its registers by so many."""
SHARED_UNIT, SHARED_TAKEN = 128, 1024
"""Bytes of shared memory: what a block's are rounded up to, and what each block takes besides."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an SM of an architecture holds at a time."""

    warps: int
    blocks: int
    shared_bytes: int


LIMITS: Final = MappingProxyType(
    {
        86: Limits(48, 16, 100 << 10),
        89: Limits(48, 24, 100 << 10),
        90: Limits(64, 32, 228 << 10),
    }
)
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU.

    Args:
        architecture: 86 for sm_86.
        sms: multiprocessors.
        gigahertz: the boost clock.
        bandwidth: of the memory, 10^9 bytes a second.
        memory: 10^9 bytes.
        tensor_tops: 10^12 dense int8 operations a second on the matrix units.
        source: of these.
    """

    name: str
    architecture: int
    sms: int
    gigahertz: float
    bandwidth: float
    memory: float
    tensor_tops: float
    source: str

    @property
    def dot_tops(self) -> float:
        """10^12 int8 operations a second by dp4a: eight a lane."""
        return self.sms * self.gigahertz * DOT_LANES * 8 / 1e3

    @property
    def float_tops(self) -> float:
        """10^12 float32 operations a second."""
        return self.sms * self.gigahertz * FLOAT_LANES * 2 / 1e3

    @property
    def issue_rate(self) -> float:
        """10^9 warp instructions a second."""
        return self.sms * self.gigahertz * SCHEDULERS


CARDS: Final = (
    Card(
        "RTX 3080 Laptop", 86, 48, 1.71, 448, 16 * 1.073741824, 168.1,
        "wccftech 2021-01-12 (GA104, 6144 cores, 1710 MHz, 256 bit at 14 Gbit/s, 16 GB); int8 at "
        "2048 operations an SM and clock, as NVIDIA's data sheet of the A40 has it for the same "
        "SMs (299.3 TOPS of 84 SMs at 1.74 GHz)",
    ),
    Card(
        "RTX 4090", 89, 128, 2.52, 1008, 24 * 1.073741824, 660.6,
        "NVIDIA Ada whitepaper; waredb.com/processor/nvidia-geforce-rtx-4090",
    ),
    Card(
        "H200 SXM", 90, 132, 1.83, 4800, 141, 1979,
        "NVIDIA H200 datasheet (4.8 TB/s, 141 GB, 3958 sparse int8 TOPS, so 1979 dense); 132 SMs; "
        "the clock is the one at which 8192 operations an SM and clock give that peak",
    ),
)  # fmt: skip


def blocks_per_sm(architecture: int, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks that an SM holds at a time: by warps, registers, shared memory and their number."""
    limits = LIMITS[architecture]
    warps = -(-threads // 32)
    per_warp = -(-32 * registers // REGISTER_UNIT) * REGISTER_UNIT
    # Each of the four schedulers has a quarter of the registers.
    by_registers = REGISTERS // SCHEDULERS // per_warp * SCHEDULERS // warps
    taken = -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT + SHARED_TAKEN
    return min(limits.blocks, limits.warps // warps, by_registers, limits.shared_bytes // taken)
