"""Prepared input rows of ``linear``, in the forms that weights read; the same for all op sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from .errors import MismatchError

Array = Any
InputForm = Literal["f32", "int8", "int8x2"]

FLOAT_TYPES = ("F32", "F16", "BF16")


def input_form(type_name: str, role: InputForm) -> InputForm:
    """What a weight reads: float types always float32 rows, quantised ones what the role says."""
    return "f32" if type_name in FLOAT_TYPES else role


class Reader(Protocol):
    """A weight [N, K], as far as prepared rows look."""

    shape: tuple[int, int]
    type_name: str
    form: InputForm


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
class Acts:
    """Prepared input rows of ``linear``; forms that no weight reads are None."""

    num_rows: int
    width: int
    x: Array | None  # [T, K] f32, the rows themselves
    first: Any | None  # Int8Rows, or what the op set lays them as
    second: Any | None  # what the first leaves over, for int8x2

    @classmethod
    def empty(
        cls,
        num_rows: int,
        width: int,
        weights: Sequence[Reader],
        buffer: Callable[..., Array] = np.zeros,
        int8_rows: type[Any] = Int8Rows,
    ) -> Acts:
        """Room for the forms that the weights read, made by ``buffer(shape, dtype)``.

        Args:
            int8_rows: how the op set lays int8 rows.
        """
        forms = {weight.form for weight in weights}
        int8 = bool(forms & {"int8", "int8x2"})
        if int8 and width % 32:
            raise MismatchError(f"int8 rows have blocks of 32; the width is {width}")
        return cls(
            num_rows,
            width,
            x=buffer((num_rows, width), np.float32) if "f32" in forms else None,
            first=int8_rows.empty(num_rows, width, buffer) if int8 else None,
            second=int8_rows.empty(num_rows, width, buffer) if "int8x2" in forms else None,
        )

    def rows(self, num_rows: int) -> Acts:
        """A view of the first rows.

        Raises:
            MismatchError: these are fewer.
        """
        if not 0 <= num_rows <= self.num_rows:
            raise MismatchError(
                f"{num_rows} rows of acts that hold {self.num_rows}: make them with more rows in "
                "ops.acts(...)"
            )
        return Acts(
            num_rows,
            self.width,
            x=None if self.x is None else self.x[:num_rows],
            first=self.first and self.first.rows(num_rows),
            second=self.second and self.second.rows(num_rows),
        )

    def check_readable(self, weight: Reader, num_rows: int) -> None:
        """Raise ``MismatchError`` unless a weight can read ``num_rows`` rows of these."""
        have = {"f32": self.x, "int8": self.first, "int8x2": self.second}[weight.form]
        if have is None or self.width != weight.shape[1] or self.num_rows < num_rows:
            forms = [n for n in ("x", "first", "second") if getattr(self, n) is not None]
            raise MismatchError(
                f"acts of {self.num_rows} rows of width {self.width} with forms {forms}; expected "
                f"at least {num_rows} of width {weight.shape[1]} for a {weight.form} "
                f"{weight.type_name} weight: name that weight in ops.acts(...)"
            )
