"""Launcher of ``cuda/moe.cu``: see ``specrt.reference.moe``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..acts import Acts
from ..array_checks import check_moe
from ..errors import MismatchError
from ..experts import Experts, Routed, sizes_of
from ..ops import Activation
from .device import Device
from .glu import glu
from .linear import (
    MMA,
    NUM_WARPS,
    THREADS,
    alike,
    choose_form,
    rows_arguments,
    shared_bytes,
)
from .weights import TILE_ROWS, KernelExperts, defines_of

Array = Any


@dataclass(frozen=True, slots=True)
class KernelRoom:
    """Rows once per expert that they go to, P of them, expert by expert: see ``moe.cu``."""

    gate: Array  # [P, F] f32
    up: Array
    gated: Acts  # of width F, as down reads them
    results: Array  # [P, D] f32, of down
    sources: Array  # [P] int32, which row each is
    places: Array  # [P] int32, where row t of rank r is, at t * k + r
    tasks: Array  # [1 + 3 P] int32

    @classmethod
    def empty(
        cls, num_pairs: int, experts: Sequence[Experts], buffer: Callable[..., Array]
    ) -> KernelRoom:
        """Room for P rows of any of these layers."""
        _, width, hidden, _ = sizes_of(experts)
        return cls(
            buffer((num_pairs, hidden), np.float32),
            buffer((num_pairs, hidden), np.float32),
            Acts.empty(num_pairs, hidden, [one.down for one in experts], buffer),
            buffer((num_pairs, width), np.float32),
            buffer((num_pairs,), np.int32),
            buffer((num_pairs,), np.int32),
            buffer((1 + 3 * num_pairs,), np.int32),
        )

    def check(self, num_pairs: int, experts: Experts) -> None:
        """Raise ``MismatchError`` unless P rows of these experts have room."""
        self.gated.check_readable(experts.down, num_pairs)
        if len(self.results) < num_pairs:
            raise MismatchError(f"moe: {num_pairs} rows of experts; the room is for fewer")


class TaskShape(NamedTuple):
    """How the rows of experts are cut into tasks.

    Args:
        of_expert: rows that forms are chosen by: no expert has more than all, and what a wider form
            reads less of, few experts would use.
        rows: of a task, at most.
        most: tasks that there may be.
    """

    of_expert: int
    rows: int
    most: int

    @classmethod
    def of(cls, experts: Experts, num_rows: int, num_pairs: int) -> TaskShape:
        """For so many rows, and pairs of one and an expert."""
        of_expert = min(num_rows, MMA[1].rows)
        rows = min(choose_form(w.form, of_expert).rows_of(w.form) for w in experts.weights)
        used = min(num_pairs, experts.gate.num_experts)
        return cls(of_expert, rows, used + (num_pairs - used) // rows)


def moe(
    device: Device,
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
    """Launch ``moe``: out, add and shared [T, D] f32, shared_gate [T, 1] f32."""
    check_moe(acts, experts, routed, out, add, shared, shared_gate)
    num_rows, num_pairs, room = len(out), routed.ids.size, routed.room
    room.check(num_pairs, experts)
    if not num_rows:
        return
    tasks = TaskShape.of(experts, num_rows, num_pairs)
    defines = defines_of(experts.gate)
    sizes = (num_pairs, routed.ids.shape[1], experts.gate.num_experts, tasks.rows)
    tables = (room.sources, room.places, room.tasks)
    args = (routed.ids, *map(np.int32, sizes), *tables)
    device.launch("moe", "moe_group", (1,), THREADS, args, 8 * NUM_WARPS, defines)
    gate, up = room.gate[:num_pairs], room.up[:num_pairs]
    gated, results = room.gated.rows(num_pairs), room.results[:num_pairs]
    for same in alike([(experts.gate, gate), (experts.up, up)]):
        _launch_products(device, same, acts, (room.sources, room.tasks), tasks)
    glu(device, gate, up, activation=activation, out=None, acts=gated)
    _launch_products(device, [(experts.down, results)], gated, (None, room.tasks), tasks)
    width = out.shape[1]
    mixed = (results, room.places, routed.weights, shared, shared_gate, add, out)
    args = (*mixed, np.int32(routed.ids.shape[1]), np.int32(width))
    device.launch("moe", "moe_mix", (-(-width // THREADS), num_rows), THREADS, args, 0, defines)


def _launch_products(
    device: Device,
    pairs: list[tuple[KernelExperts, Array]],
    acts: Acts,
    tables: tuple[Array | None, Array],
    tasks: TaskShape,
) -> None:
    """One or two stacks of one type and form times the rows of all tasks.

    Args:
        tables: which row each place is, if not its own, and the tasks.
    """
    weight = pairs[0][0]
    form = choose_form(weight.form, tasks.of_expert)
    num_tiles = sum(-(-one.shape[0] // TILE_ROWS) for one, _ in pairs)
    args: list[Any] = []
    for one, out in pairs:
        args += [one.tiles, np.int64(one.expert_bytes), out, np.int32(one.shape[0])]
    if len(pairs) == 1:
        args += [None, np.int64(0), None, np.int32(0)]
    args += [*rows_arguments(weight.form, acts), *tables, np.int32(acts.width)]
    device.launch(
        "moe",
        form.entry.replace("linear", "moe"),
        (num_tiles, tasks.most),
        THREADS,
        args,
        shared_bytes(form, weight),
        defines_of(weight),
    )
