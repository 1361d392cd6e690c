"""Gated linear units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..acts import Acts
from ..ops import Activation
from .quantize import quantize

Array = Any


def glu(
    gate: Array,
    up: Array,
    *,
    activation: Activation,
    out: Array | None,
    acts: Acts | None = None,
) -> None:
    """Write ``act(gate) * up``.

    ``silu(g) = g / (1 + exp(-g))``; ``sigmoid(g) = 1 / (1 + exp(-g))``;
    ``gelu_tanh(g) = g / 2 * (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))``.

    Args:
        gate, up: [T, F] f32.
        out: [T, F] f32, or None where nobody reads it; it may be gate or up.
        acts: Rows that get what ``quantize`` writes of the result.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = ACTIVATIONS[activation](gate) * up
    if out is not None:
        out[:] = result
    if acts is not None:
        quantize(result, out=acts)


def _silu(g: Array) -> Array:
    return g / (np.float32(1) + np.exp(-g))


def _gelu_tanh(g: Array) -> Array:
    cubic = np.float32(1) + np.float32(0.044715) * (g * g)
    inner = np.float32(math.sqrt(2 / math.pi)) * g * cubic
    return np.float32(0.5) * g * (np.float32(1) + np.tanh(inner))


def _sigmoid(g: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-g))


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {"silu": _silu, "gelu_tanh": _gelu_tanh, "sigmoid": _sigmoid}
)
