"""Weights of the host op set."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import WEIGHT_TYPES
from ..acts import input_form
from ..array_checks import check_matrix
from ..errors import UnsupportedError
from ..ops import Role

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
        check_matrix(tensor, bias)
        self.raw = np.ascontiguousarray(tensor.raw)
        self.bias = bias
