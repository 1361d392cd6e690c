"""Weights and prepared input rows of the host op set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._ext.host_ops import WEIGHT_TYPES
from ..array_checks import check
from ..errors import MismatchError, UnsupportedError
from ..ops import Role
from ..reference.weights import input_form

Array = Any


class HostWeight:
    """A matrix [N, K] over its raw GGUF rows, which stay where they are."""

    def __init__(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> None:
        self.shape: tuple[int, int] = tensor.shape
        self.role = role
        self.type_name: str = tensor.type.name
        if self.type_name not in WEIGHT_TYPES:
            raise UnsupportedError(
                f"{tensor.name} has type {self.type_name}; the host runs {', '.join(WEIGHT_TYPES)}"
            )
        self.form = input_form(self.type_name, role)
        num_rows, width = self.shape
        block_size, block_bytes = tensor.type.block_size, tensor.type.block_bytes
        if width % block_size:
            raise MismatchError(
                f"{tensor.name} has {width} columns, not a multiple of {block_size} "
                f"({self.type_name})"
            )
        self.raw = np.ascontiguousarray(tensor.raw)
        check(tensor.name, self.raw, np.uint8, (num_rows, width // block_size * block_bytes))
        if bias is not None:
            check(f"the bias of {tensor.name}", bias, np.float32, (num_rows,))
        self.bias = bias


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """Rows in blocks of 32: x is about ``d * q``."""

    q: Array  # [T, K] int8
    d: Array  # [T, K / 32] f32
    sums: Array  # [T, K / 16] int32, of q

    @classmethod
    def empty(cls, num_rows: int, width: int, buffer: Callable[..., Array]) -> Int8Rows:
        return cls(
            buffer((num_rows, width), np.int8),
            buffer((num_rows, width // 32), np.float32),
            buffer((num_rows, width // 16), np.int32),
        )

    def rows(self, num_rows: int) -> Int8Rows:
        return Int8Rows(self.q[:num_rows], self.d[:num_rows], self.sums[:num_rows])


@dataclass(frozen=True, slots=True)
class HostActs:
    """Prepared input rows of ``linear``; forms that no weight reads are None."""

    num_rows: int
    width: int
    x: Array | None  # [T, K] f32, the rows themselves
    first: Int8Rows | None
    second: Int8Rows | None  # what the first leaves over, for int8x2

    @classmethod
    def empty(
        cls,
        num_rows: int,
        width: int,
        weights: Sequence[HostWeight],
        buffer: Callable[..., Array] = np.zeros,
    ) -> HostActs:
        """Room for the forms that the weights read, made by ``buffer(shape, dtype)``."""
        forms = {weight.form for weight in weights}
        int8 = bool(forms & {"int8", "int8x2"})
        if int8 and width % 32:
            raise MismatchError(f"int8 rows have blocks of 32; the width is {width}")
        return cls(
            num_rows,
            width,
            x=buffer((num_rows, width), np.float32) if "f32" in forms else None,
            first=Int8Rows.empty(num_rows, width, buffer) if int8 else None,
            second=Int8Rows.empty(num_rows, width, buffer) if "int8x2" in forms else None,
        )

    def rows(self, num_rows: int) -> HostActs:
        """A view of the first rows.

        Raises:
            MismatchError: these are fewer.
        """
        if not 0 <= num_rows <= self.num_rows:
            raise MismatchError(
                f"{num_rows} rows of acts that hold {self.num_rows}: make them with more rows in "
                "ops.acts(...)"
            )
        return HostActs(
            num_rows,
            self.width,
            x=None if self.x is None else self.x[:num_rows],
            first=self.first and self.first.rows(num_rows),
            second=self.second and self.second.rows(num_rows),
        )

    def check_readable(self, weight: HostWeight, num_rows: int) -> None:
        """Raise ``MismatchError`` unless a weight can read ``num_rows`` rows of these."""
        have = {"f32": self.x, "int8": self.first, "int8x2": self.second}[weight.form]
        if have is None or self.width != weight.shape[1] or self.num_rows < num_rows:
            forms = [n for n in ("x", "first", "second") if getattr(self, n) is not None]
            raise MismatchError(
                f"acts of {self.num_rows} rows of width {self.width} with forms {forms}; expected "
                f"at least {num_rows} of width {weight.shape[1]} for a {weight.form} "
                f"{weight.type_name} weight: name that weight in ops.acts(...)"
            )
