"""Weights of the reference op set."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..acts import input_form
from ..experts import experts_of
from ..ops import Role
from .quant_blocks import Parts, dequantize, unpack

Array = Any


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


class ReferenceExperts:
    """As many matrices [N, K] as there are experts."""

    def __init__(self, tensor: Any, role: Role = "int8") -> None:
        self._experts = [ReferenceWeight(expert, role) for expert in experts_of(tensor)]
        self.num_experts = len(self._experts)
        first = self._experts[0]
        self.shape, self.role = first.shape, first.role
        self.type_name, self.form = first.type_name, first.form

    def expert(self, number: int) -> ReferenceWeight:
        """The matrix of one."""
        return self._experts[number]
