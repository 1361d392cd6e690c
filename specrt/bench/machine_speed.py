"""What the machine can do at most, in the threads that run the ops: read memory, and multiply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from specrt._ext.host_ops import (
    MULTIPLY_CHAINS,
    record_multiply_floats,
    record_multiply_ints,
    record_read_memory,
)
from specrt.bench.timing import WrongResultError
from specrt.host import HostOps
from specrt.host.huge_pages import huge_bytes

PART_BYTES: Final = 256 << 10
"""Of memory that one thread takes at a time."""
CACHES: Final = 4
"""Times the largest cache that is read, so that no cache holds what comes next."""
UNKNOWN_CACHE: Final = 64 << 20
MULTIPLY_STEPS: Final = 10_000
MULTIPLY_PARTS: Final = 16
"""Of each thread."""


class Products(NamedTuple):
    """Of one register; a sum takes 32 bits."""

    of_bytes: int
    of_floats: int


PRODUCTS: Final[Mapping[str, Products]] = MappingProxyType(
    {"portable": Products(16, 4), "avx2": Products(32, 8), "avx512": Products(64, 16)}
)


@dataclass(frozen=True, slots=True)
class Speed:
    """Something that can be repeated, and how much it does.

    Args:
        run: once.
        amount: bytes, or multiply-adds.
    """

    run: Callable[[], None]
    amount: int


def read_speed(ops: HostOps, num_bytes: int) -> Speed:
    """One pass over so many bytes, in whole parts, of huge pages.

    Raises:
        WrongResultError: the sum of what was read is not that of what is there.
    """
    parts = max(1, round(num_bytes / PART_BYTES))
    memory = huge_bytes(parts * PART_BYTES)
    words = memory.view(np.uint64)
    words[:] = np.arange(len(words), dtype=np.uint64)
    sums = ops.buffer((parts,), np.uint64)
    with ops.record() as program:
        record_read_memory(program, memory, sums, PART_BYTES)
    program.run()
    if int(sums.sum()) != len(words) * (len(words) - 1) // 2:
        raise WrongResultError("the read loop does not read all of its memory")
    return Speed(program.run, memory.nbytes)


def int_speed(ops: HostOps) -> Speed:
    """Multiply-adds of bytes onto int32, in registers; see ``_multiply_speed``."""
    return _multiply_speed(ops, record_multiply_ints, np.uint32, PRODUCTS[ops.level].of_bytes, 1)


def float_speed(ops: HostOps) -> Speed:
    """Multiply-adds of float32, in registers; see ``_multiply_speed``."""
    lanes = PRODUCTS[ops.level].of_floats
    return _multiply_speed(ops, record_multiply_floats, np.float32, lanes, 0.25)


def _multiply_speed(
    ops: HostOps, record: Callable[..., None], dtype: type, products: int, each: float
) -> Speed:
    """Chains of multiply-adds that do not wait for each other.

    Args:
        record: appends them to a program.
        dtype: of their sums.
        products: of one register.
        each: what one product is; a sum of all is exact.

    Raises:
        WrongResultError: there were fewer.
    """
    ends = ops.buffer((MULTIPLY_PARTS * ops.threads,), dtype)
    with ops.record() as program:
        record(program, ends, MULTIPLY_STEPS)
    program.run()
    in_part = MULTIPLY_CHAINS * MULTIPLY_STEPS * products
    lane = in_part // PRODUCTS[ops.level].of_floats * each
    if (ends != lane).any():
        raise WrongResultError(f"multiply-adds sum to {ends[0]}, expected {lane}")
    return Speed(program.run, in_part * len(ends))


def largest_cache() -> int:
    """Bytes of the last cache before memory; a guess where the system does not tell."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = [path.read_text().strip() for path in folder.glob("index*/size")]
    known = [int(text[:-1]) * units[text[-1]] for text in sizes if text[-1:] in units]
    return max(known, default=UNKNOWN_CACHE)
