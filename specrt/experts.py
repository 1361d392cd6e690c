"""The experts of a layer, and which of them rows go to; the same for all op sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from .acts import InputForm
from .errors import MismatchError

Array = Any


class ExpertWeight(Protocol):
    """As many matrices [N, K] of one type as there are experts; to acts it is one of them."""

    num_experts: int
    shape: tuple[int, int]
    type_name: str
    form: InputForm


@dataclass(frozen=True, slots=True)
class Experts:
    """The gated feed-forwards of one layer: gate and up [E, F, D], down [E, D, F].

    A row goes to ``num_used`` of them, k.
    """

    gate: Any
    up: Any
    down: Any
    num_used: int

    @property
    def weights(self) -> tuple[Any, ...]:
        """All three."""
        return self.gate, self.up, self.down

    def check(self) -> None:
        """Raise ``MismatchError`` unless they are as many, k or more, and of sizes that fit."""
        width = self.gate.shape[1]
        expected = (self.gate.shape, self.gate.shape, (width, self.gate.shape[0]))
        shapes = tuple(weight.shape for weight in self.weights)
        counts = {weight.num_experts for weight in self.weights}
        if shapes != expected or len(counts) != 1 or not 0 < self.num_used <= min(counts):
            raise MismatchError(
                f"experts: gate, up and down are {shapes} of {sorted(counts)} experts, of which a "
                f"row goes to {self.num_used}; expected {expected} of as many, and 1 to all"
            )


class Sizes(NamedTuple):
    """E, D, F and k."""

    num_experts: int
    width: int
    hidden: int
    num_used: int


@dataclass(frozen=True, slots=True)
class Routed:
    """Which experts each row goes to, the best one first, and with which weights.

    Args:
        ids: [T, k] int32, each less than the number of experts.
        weights: [T, k] f32.
        room: what the op set keeps of the rows between the phases of ``moe``.
    """

    ids: Array
    weights: Array
    room: Any = None

    @classmethod
    def empty(
        cls,
        num_rows: int,
        experts: Sequence[Experts],
        buffer: Callable[..., Array],
        make_room: Callable[..., Any] = lambda *_: None,
    ) -> Routed:
        """Room for so many rows of any of these layers.

        Args:
            make_room: the op set's part, of the most pairs of a row and its expert, ``experts``
                and ``buffer``.
        """
        shape = (num_rows, sizes_of(experts).num_used)
        room = make_room(math.prod(shape), experts, buffer)
        return cls(buffer(shape, np.int32), buffer(shape, np.float32), room)

    def rows(self, num_rows: int) -> Routed:
        """A view of the first rows."""
        return replace(self, ids=self.ids[:num_rows], weights=self.weights[:num_rows])


def experts_of(tensor: Any) -> Iterator[Any]:
    """The matrix [N, K] of each expert of a tensor [E, N, K].

    Raises:
        MismatchError: the tensor is no stack of matrices.
    """
    if len(tensor.shape) != 3 or not tensor.shape[0]:
        raise MismatchError(
            f"{tensor.name} has shape {tensor.shape}; expected [E, N, K] of one expert or more"
        )
    for raw in tensor.raw:
        yield replace(tensor, shape=tensor.shape[1:], raw=raw)


def sizes_of(experts: Sequence[Experts]) -> Sizes:
    """What the experts of several layers have in common.

    Raises:
        MismatchError: they are not of one size.
    """
    sizes = {
        Sizes(one.gate.num_experts, one.down.shape[0], one.down.shape[1], one.num_used)
        for one in experts
    }
    if len(sizes) != 1:
        raise MismatchError(f"experts of layers: {sorted(sizes)}; expected all of one size")
    return sizes.pop()
