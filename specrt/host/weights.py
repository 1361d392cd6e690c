"""Weights of the host op set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._ext.host_ops import WEIGHT_TYPES, Tape, packed_bytes, record_pack
from ..acts import input_form
from ..array_checks import check_matrix
from ..errors import UnsupportedError
from ..experts import experts_of
from ..ops import Role

Array = Any


class HostTable:
    """A matrix [N, K] over its raw GGUF rows, which stay where they are; ``embed`` reads it."""

    def __init__(self, tensor: Any) -> None:
        self.shape: tuple[int, int] = tensor.shape
        self.type_name: str = tensor.type.name
        if self.type_name not in WEIGHT_TYPES:
            raise UnsupportedError(
                f"{tensor.name} has type {self.type_name}; the host runs {', '.join(WEIGHT_TYPES)}"
            )
        check_matrix(tensor, None)
        self.raw = np.ascontiguousarray(tensor.raw)


class HostWeight(HostTable):
    """A matrix [N, K] in tiles as ``_ext/host/quant_types.h`` says, once ``pack`` has run.

    Args:
        tensor: of the file.
        role: how its input is prepared.
        bias: [N] f32.
        memory: makes room for so many bytes, aligned to 64.
    """

    def __init__(
        self, tensor: Any, role: Role, bias: Array | None, memory: Callable[[int], Array]
    ) -> None:
        super().__init__(tensor)
        check_matrix(tensor, bias)
        self.role = role
        self.form = input_form(self.type_name, role)
        self.bias = bias
        self.tiles = memory(packed_bytes(self.type_name, self.form, self.shape))

    def pack(self, tape: Tape) -> None:
        """Fill the tiles, with all threads of the tape's team."""
        record_pack(tape, self)
        tape.run()


class HostExperts:
    """As many matrices [N, K] as there are experts, each in tiles of its own, one behind the other.

    Args:
        tensor: of the file, [E, N, K].
        role: how the input is prepared.
        memory: makes room for so many bytes, aligned to 64.
    """

    bias = None

    def __init__(self, tensor: Any, role: Role, memory: Callable[[int], Array]) -> None:
        first = HostWeight(next(experts_of(tensor)), role, None, lambda size: np.zeros(0, np.uint8))
        self.num_experts: int = tensor.shape[0]
        self.shape, self.role = first.shape, role
        self.type_name, self.form = first.type_name, first.form
        self.tiles = memory(self.num_experts * self.expert_bytes)

    @property
    def expert_bytes(self) -> int:
        """From one expert's tiles to the next one's."""
        return packed_bytes(self.type_name, self.form, self.shape)

    def pack(self, tape: Tape, tensor: Any) -> None:
        """Fill the tiles, with all threads of the tape's team."""
        places = self.tiles.reshape(self.num_experts, -1)
        for expert, tiles in zip(experts_of(tensor), places, strict=True):
            record_pack(tape, HostWeight(expert, self.role, None, partial(_given, tiles)))
        tape.run()


def _given(tiles: Array, num_bytes: int) -> Array:
    """Memory that is there already."""
    return tiles
