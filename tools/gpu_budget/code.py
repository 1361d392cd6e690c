"""What kernels are compiled to: registers, occupancy, and instructions a byte of weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from specrt.bench.compilers import Compiler, Usage
from specrt.bench.kernels import Module
from specrt.bench.machine_code import Instructions, disassembled
from specrt.host.machine import choose_threads
from specrt.kernels.linear import NUM_WARPS, TILED
from specrt.kernels.program import Launch
from specrt.kernels.weights import TILE_ROWS, block_bytes_of
from specrt.reference.quant_blocks import QUANT_TYPES
from tools.gpu_budget.cards import SCHEDULERS, Card, blocks_per_sm
from tools.gpu_budget.traffic import cost_of

CHUNK = 64
"""Columns that a warp takes between two looks at its ring: see tile.cuh."""

Key = tuple[Module, str]
"""A module and an entry of it."""


@dataclass(frozen=True, slots=True)
class Code:
    """An entry on one architecture."""

    usage: Usage
    instructions: Instructions

    def blocks_per_sm(self, architecture: int, threads: int, shared_bytes: int) -> int:
        """That an SM holds at a time."""
        return blocks_per_sm(architecture, threads, self.usage.registers, shared_bytes)


def key_of(launch: Launch) -> Key:
    """What a launch runs."""
    return Module(launch.file, launch.defines), launch.entry


def compiled(
    compiler: Compiler, disassembler: str, modules: Iterable[Module], architecture: int
) -> dict[Key, Code]:
    """All entries of these modules, but those that are empty for their module's type."""
    with ThreadPoolExecutor(choose_threads(None)) as pool:
        found = pool.map(lambda one: _entries(compiler, disassembler, one, architecture), modules)
        return {key: code for entries in found for key, code in entries.items()}


def _entries(
    compiler: Compiler, disassembler: str, module: Module, architecture: int
) -> dict[Key, Code]:
    result = compiler.compile(module.text, architecture)
    counted = disassembled(disassembler, result.cubin)
    return {
        (module, entry): Code(usage, counted[entry])
        for entry, usage in result.usage.items()
        if counted[entry].stores
    }


def slots_per_byte(key: Key, code: Code) -> float | None:
    """Warp instructions that are issued for a byte of weights; None where none are multiplied.

    A warp goes round its outer loop once for a unit of 16 rows, a block or two of 32 columns, and
    round the inner one for each 64 columns of it, unless a unit has no more. In the tiled form two
    warps share a unit.
    """
    module, entry = key
    with_products = [loop for loop in code.instructions.loops if loop.products]
    if not with_products:
        return None
    kind = module.defines[0].split()[1]
    block = QUANT_TYPES[kind].block
    unit_columns = max(block, CHUNK)
    unit_bytes = TILE_ROWS * block_bytes_of(kind) * unit_columns // block
    inner = min(with_products, key=lambda loop: loop.count)
    around = [loop for loop in with_products if inner.within(loop)]
    count = inner.count
    if around:
        outer = min(around, key=lambda loop: loop.count)
        count = inner.count * (unit_columns // CHUNK) + outer.count - inner.count
    return count * (2 if entry.endswith(TILED.entry.removeprefix("linear")) else 1) / unit_bytes


def issue_us(launch: Launch, codes: Mapping[Key, Code], card: Card) -> tuple[float, float]:
    """Microseconds that issuing a product's instructions takes: shared out evenly, and as it is.

    The SM that has the most blocks decides.
    """
    key = key_of(launch)
    slots = slots_per_byte(key, codes[key]) if key in codes else None
    if slots is None:
        return 0.0, 0.0
    num_blocks, repeats = launch.grid[0], math.prod(launch.grid[1:])
    per_block = cost_of(launch, 0).weights / num_blocks * repeats * slots
    block_us = per_block / (SCHEDULERS * card.gigahertz * 1e3)
    return num_blocks / card.sms * block_us, -(-num_blocks // card.sms) * block_us


@dataclass(frozen=True, slots=True)
class Expected:
    """Milliseconds of a step: the floor, and what the kernels add to it.

    Args:
        issue: where issuing instructions takes longer than the floor, all SMs sharing evenly.
        uneven: what the SMs with the most blocks take longer.
        gaps: before kernels that wait for the one before.
    """

    floor: float
    issue: float
    uneven: float
    gaps: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.floor + self.issue + self.uneven + self.gaps


def expected(
    launches: Sequence[Launch], cached: int, codes: Mapping[Key, Code], card: Card, gap_us: float
) -> Expected:
    """What these kernels can reach at best."""
    floor = even = bound = 0.0
    for launch in launches:
        least = cost_of(launch, cached).floor_us(card)
        evenly, as_is = issue_us(launch, codes, card)
        floor += least
        even += max(least, evenly)
        bound += max(least, as_is)
    gaps = gap_us * len(launches)
    return Expected(floor / 1e3, (even - floor) / 1e3, (bound - even) / 1e3, gaps / 1e3)


def stages(launch: Launch) -> int | None:
    """Units of a warp that are on their way or in use, for the forms that split K."""
    if launch.file != "linear" or launch.entry == TILED.entry:
        return None
    kind = launch.defines[0].split()[1]
    block = QUANT_TYPES[kind].block
    unit = TILE_ROWS * block_bytes_of(kind) * max(block, CHUNK) // block
    return launch.shared_bytes // NUM_WARPS // unit
