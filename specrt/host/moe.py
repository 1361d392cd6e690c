"""Launcher of ``moe``: see ``specrt.reference.moe``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._ext.host_ops import ACTIVATIONS, Tape, record_moe
from ..acts import Acts
from ..array_checks import check_moe
from ..errors import MismatchError, UnsupportedError
from ..experts import Experts, Routed, sizes_of
from ..ops import Activation
from .acts import HostInt8Rows, check_exact

Array = Any


@dataclass(frozen=True, slots=True)
class HostRoom:
    """Rows once per expert that they go to, P of them, expert by expert.

    A group is the rows of one expert. Prepared rows lie in panels of their own group.
    """

    rows: Acts  # of width D, as gate and up read them
    gated: Acts  # of width F, as down reads them
    results: Array  # [P, D] f32, of down
    sources: Array  # [P] int32, which row each is
    places: Array  # [P] int32, where row t of rank r is, at t * k + r
    group_of: Array  # [P] int32
    starts: Array  # [P + 1] int32, of each group, and behind the last
    experts: Array  # [P] int32, of each group
    num_groups: Array  # [1] int32

    @classmethod
    def empty(
        cls, num_pairs: int, experts: Sequence[Experts], buffer: Callable[..., Array]
    ) -> HostRoom:
        """Room for P rows of any of these layers."""
        _, width, hidden, _ = sizes_of(experts)
        inner = [weight for one in experts for weight in (one.gate, one.up)]
        return cls(
            Acts.empty(num_pairs, width, inner, buffer, HostInt8Rows),
            Acts.empty(num_pairs, hidden, [one.down for one in experts], buffer, HostInt8Rows),
            buffer((num_pairs, width), np.float32),
            sources=buffer((num_pairs,), np.int32),
            places=buffer((num_pairs,), np.int32),
            group_of=buffer((num_pairs,), np.int32),
            starts=buffer((num_pairs + 1,), np.int32),
            experts=buffer((num_pairs,), np.int32),
            num_groups=buffer((1,), np.int32),
        )

    def check(self, num_pairs: int, experts: Experts) -> None:
        """Raise ``MismatchError`` unless P rows of these experts have room."""
        for acts, weights in (
            (self.rows, (experts.gate, experts.up)),
            (self.gated, (experts.down,)),
        ):
            for weight in weights:
                acts.check_readable(weight, num_pairs)
        if len(self.results) < num_pairs:
            raise MismatchError(f"moe: {num_pairs} rows of experts; the room is for fewer")


def moe(
    tape: Tape,
    acts: Acts,
    experts: Experts,
    routed: Routed,
    *,
    activation: Activation,
    out: Array,
    add: Array | None = None,
    shared: Array | None = None,
    shared_gate: Array | None = None,
) -> None:
    """Record ``moe``: out, add and shared [T, D] f32, shared_gate [T, 1] f32."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"moe: activation {activation!r}; expected {', '.join(ACTIVATIONS)}")
    check_moe(acts, experts, routed, out, add, shared, shared_gate)
    check_exact(acts, len(out))
    routed.room.check(routed.ids.size, experts)
    record_moe(tape, acts, experts, routed, activation, out, add, shared, shared_gate)
