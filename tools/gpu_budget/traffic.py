"""Bytes and operations of a launch, from its arguments.

Counted are weights, keys and values, recurrent states, table rows, and logits that are kept. Rows
on their way from op to op, norms' weights and step values are not: they stay in the L2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from specrt.kernels.linear import MAX_PAIRS
from specrt.kernels.program import Launch
from specrt.kernels.weights import block_bytes_of
from specrt.reference.quant_blocks import QUANT_TYPES
from tools.gpu_budget.cards import Card

KEYS, ROWS, WIDTH = -6, -3, -1
"""Among the arguments of ``linear``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a launch, or of several.

    Args:
        weights: bytes of matrices.
        others: bytes of all else that comes from or goes to memory.
        products: int8 operations that are asked for, two a multiply-add.
        floats: float32 operations.
        uses_dot: products are by dp4a, else on the matrix units.
    """

    weights: int = 0
    others: int = 0
    products: int = 0
    floats: int = 0
    uses_dot: bool = False

    @property
    def num_bytes(self) -> int:
        """All."""
        return self.weights + self.others

    def floor_us(self, card: Card) -> float:
        """The longest of reading and writing, of products and of float operations."""
        tops = card.dot_tops if self.uses_dot else card.tensor_tops
        memory = self.num_bytes / card.bandwidth / 1e3
        return max(memory, self.products / tops / 1e6, self.floats / card.float_tops / 1e6)


def cost_of(launch: Launch, cached: int) -> Cost:
    """A launch of one sequence that has consumed so many tokens."""
    known = COSTS.get(launch.file)
    return known(launch, cached) if known else Cost()


def _row_bytes(launch: Launch, width: int) -> int:
    """Of a row of the table whose type the module is compiled for."""
    kind = launch.defines[0].split()[1]
    size = QUANT_TYPES[kind].block
    return -(-width // size) * block_bytes_of(kind)


def _linear(launch: Launch, cached: int) -> Cost:
    pairs = [launch.args[4 * i : 4 * i + 4] for i in range(MAX_PAIRS)]
    given = [(tiles, int(height), out) for tiles, _, out, height in pairs if tiles is not None]
    is_float = launch.entry.startswith("linear_f32")
    twice = not is_float and launch.args[4 * MAX_PAIRS + 3] is not None
    rows, width = int(launch.args[ROWS]), int(launch.args[WIDTH])
    operations = sum(2 * height * width * rows for _, height, _ in given) * (2 if twice else 1)
    is_head = launch.args[KEYS] is not None
    logits = sum(out.nbytes for _, _, out in given if out is not None) if is_head else 0
    return Cost(
        weights=sum(tiles.nbytes for tiles, _, _ in given),
        others=logits,
        products=0 if is_float else operations,
        floats=operations if is_float else 0,
        uses_dot=launch.entry == "linear_dot",
    )


def _attention(launch: Launch, cached: int) -> Cost:
    if launch.entry != "attention_pages":
        return Cost()
    q, keys, values = launch.args[0], launch.args[3], launch.args[4]
    sizes = [int(size) for size in launch.args if isinstance(size, np.int32)]
    rows, heads, kv_heads, dims, _, window = sizes[:6]
    seen = min(cached + rows, window + rows) if window else cached + rows
    per_position = kv_heads * (keys.shape[-1] * keys.itemsize + values.shape[-1] * values.itemsize)
    assert q.shape == (rows, heads * dims)
    return Cost(others=seen * per_position, floats=4 * rows * heads * dims * seen)


def _gated_delta(launch: Launch, cached: int) -> Cost:
    states, log_k, log_delta, log_decay, out = launch.args[5:10]
    rows = len(out)
    one_state = states.nbytes // 2
    row = sum(log.shape[-1] for log in (log_k, log_delta, log_decay)) * 4
    values = states.size // 2
    # A row decays, reads k^T M, adds an outer product and reads q^T M; a pending one does half.
    return Cost(others=2 * one_state + 2 * rows * row, floats=(7 + 3) * rows * values)


def _causal_conv(launch: Launch, cached: int) -> Cost:
    u, weight, tails = launch.args[:3]
    others = weight.nbytes + tails.nbytes + 2 * u.nbytes
    return Cost(others=others, floats=2 * u.size * weight.shape[1])


def _embed(launch: Launch, cached: int) -> Cost:
    out = launch.args[2]
    return Cost(others=len(out) * _row_bytes(launch, out.shape[1]))


def _top_k(launch: Launch, cached: int) -> Cost:
    return Cost(others=launch.args[0].nbytes)


def _lattice(launch: Launch, cached: int) -> Cost:
    width = int(launch.args[4])
    rows, candidates = launch.args[5].shape
    tables = rows * candidates * 2 * _row_bytes(launch, width)
    return Cost(others=tables, floats=3 * rows * candidates**2 * width)


COSTS: Final[Mapping[str, Callable[[Launch, int], Cost]]] = MappingProxyType(
    {
        "linear": _linear,
        "attention": _attention,
        "gated_delta": _gated_delta,
        "causal_conv": _causal_conv,
        "embed": _embed,
        "top_k": _top_k,
        "lattice": _lattice,
    }
)
"""By the file of the kernel; what is not here moves no more than rows."""


def summed(costs: list[Cost]) -> Cost:
    """All of them together; what their products are made with is lost."""
    return Cost(
        weights=sum(cost.weights for cost in costs),
        others=sum(cost.others for cost in costs),
        products=sum(cost.products for cost in costs),
        floats=sum(cost.floats for cost in costs),
    )
