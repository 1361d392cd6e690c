"""Weights and prepared input rows of the reference op set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..ops import Role
from .quant_blocks import FLOAT_TYPES, Parts, dequantize, unpack

Array = Any
InputForm = Literal["f32", "int8", "int8x2"]


def input_form(type_name: str, role: Role) -> InputForm:
    """What a weight reads: float types always float32 rows, quantised ones what the role says."""
    return "f32" if type_name in FLOAT_TYPES else role


class ReferenceWeight:
    """A matrix [N, K] as its raw bytes, unpacked when first used."""

    def __init__(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> None:
        self.shape: tuple[int, int] = tensor.shape
        self.role = role
        self.type_name: str = tensor.type.name
        self.form = input_form(self.type_name, role)
        self.raw = tensor.raw
        self.bias = bias

    @cached_property
    def unpacked(self) -> Parts:
        return unpack(self.type_name, self.raw)

    @cached_property
    def values(self) -> Array:
        return dequantize(self.type_name, self.raw)


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """Rows in blocks of 32: x is about ``d * q``."""

    q: Array  # [T, K] int8
    d: Array  # [T, K / 32] f32
    sums: Array  # [T, K / 16] int32, of q

    def rows(self, num_rows: int) -> Int8Rows:
        return Int8Rows(self.q[:num_rows], self.d[:num_rows], self.sums[:num_rows])


@dataclass(frozen=True, slots=True)
class ReferenceActs:
    """Prepared input rows of ``linear``; forms that no weight reads are None."""

    x: Array | None  # [T, K] f32, the rows themselves
    first: Int8Rows | None
    second: Int8Rows | None  # what the first leaves over, for int8x2

    @classmethod
    def empty(cls, num_rows: int, width: int, weights: Sequence[ReferenceWeight]) -> ReferenceActs:
        """Room for the forms that the weights read."""
        forms = {weight.form for weight in weights}

        def int8_rows() -> Int8Rows:
            return Int8Rows(
                np.zeros((num_rows, width), np.int8),
                np.zeros((num_rows, width // 32), np.float32),
                np.zeros((num_rows, width // 16), np.int32),
            )

        return cls(
            x=np.zeros((num_rows, width), np.float32) if "f32" in forms else None,
            first=int8_rows() if forms & {"int8", "int8x2"} else None,
            second=int8_rows() if "int8x2" in forms else None,
        )

    def rows(self, num_rows: int) -> ReferenceActs:
        """A view of the first rows."""
        first, second = (r and r.rows(num_rows) for r in (self.first, self.second))
        return ReferenceActs(None if self.x is None else self.x[:num_rows], first, second)
