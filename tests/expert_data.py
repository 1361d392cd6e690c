"""Experts of any types, ways to route rows, and a mixture put together from other ops."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from ops.rows import forms_of
from quant_data import Tensor, random_tensor

from specrt.acts import Acts
from specrt.experts import Experts, Routed
from specrt.reference.fma import fma32


@dataclass(frozen=True)
class Mixture:
    """Sizes and types of gate, up and down."""

    types: tuple[str, str, str]
    num_experts: int
    num_used: int
    hidden: int
    width: int
    role: str = "int8"

    def tensors(self) -> list[Tensor]:
        shapes = [(self.hidden, self.width)] * 2 + [(self.width, self.hidden)]
        return [
            random_experts(kind, self.num_experts, *shape, seed)
            for seed, (kind, shape) in enumerate(zip(self.types, shapes, strict=True))
        ]

    def on(self, ops: Any) -> Experts:
        sides = (ops.expert_weight(tensor, self.role) for tensor in self.tensors())
        return Experts(*sides, self.num_used)


def random_experts(kind: str, count: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    """As many random matrices, one behind the other."""
    each = [random_tensor(kind, rows, columns, 100 * seed + number) for number in range(count)]
    raw = np.stack([tensor.raw for tensor in each])
    return Tensor("experts", (count, rows, columns), each[0].type, raw)


def expert(tensor: Tensor, number: int) -> Tensor:
    return Tensor("expert", tensor.shape[1:], tensor.type, tensor.raw[number])


def all_to_the_same(num_rows, num_experts, num_used, rng):
    ids = (num_experts - 1 - np.arange(num_used)) % num_experts
    return np.tile(ids, (num_rows, 1))


def each_to_others(num_rows, num_experts, num_used, rng):
    return np.arange(num_rows * num_used).reshape(num_rows, num_used) % num_experts


def at_random(num_rows, num_experts, num_used, rng):
    return rng.random((num_rows, num_experts)).argsort(axis=1)[:, :num_used]


ROUTINGS = {f.__name__: f for f in (all_to_the_same, each_to_others, at_random)}


def routed_on(ops: Any, experts: Experts, ids: np.ndarray, spare: int = 0, seed: int = 0) -> Routed:
    """These ids with random weights; all room is garbage."""
    routed = ops.routed(len(ids) + spare, [experts])
    poison(routed.room)
    routed = routed.rows(len(ids))
    weights = np.random.default_rng(seed).random(ids.shape, dtype=np.float32)
    ops.assign(routed.ids, ids.astype(np.int32))
    ops.assign(routed.weights, weights)
    return routed


def poison(room: Any) -> None:
    """Fill arrays and acts with bytes that are no small number."""
    for field in fields(room) if room is not None else ():
        value = getattr(room, field.name)
        for array in forms_of(value) if isinstance(value, Acts) else [value]:
            array.view(np.uint8)[:] = 0x77


def prepared(ops: Any, x: np.ndarray, weights: Any) -> Acts:
    acts, rows = ops.acts(*x.shape, weights), ops.buffer(x.shape, np.float32)
    ops.assign(rows, x)
    ops.quantize(rows, out=acts)
    return acts


def buffer_of(ops: Any, values: np.ndarray) -> np.ndarray:
    array = ops.buffer(values.shape, values.dtype)
    ops.assign(array, values)
    return array


def composed(ops: Any, mixture: Mixture, x: np.ndarray, routed: Routed, activation: str):
    """``moe`` from linear and glu, expert by expert, and exact fmas."""
    tensors, results = mixture.tensors(), np.zeros((*routed.ids.shape, mixture.width), np.float32)
    for number in np.unique(routed.ids).tolist():
        chosen = routed.ids == number
        gate, up, down = (ops.weight(expert(tensor, number), mixture.role) for tensor in tensors)
        acts = prepared(ops, x[np.nonzero(chosen)[0]], [gate, up])
        count = int(chosen.sum())
        sides = [ops.buffer((count, mixture.hidden), np.float32) for _ in range(2)]
        out = ops.buffer((count, mixture.width), np.float32)
        gated = ops.acts(count, mixture.hidden, [down])
        ops.linear([(gate, sides[0])], acts)
        ops.linear([(up, sides[1])], acts)
        ops.glu(*sides, activation=activation, out=None, acts=gated)
        ops.linear([(down, out)], gated)
        results[chosen] = out
    total = np.zeros((len(x), mixture.width), np.float32)
    for rank in range(mixture.num_used):
        total = fma32(routed.weights[:, rank, None], results[:, rank], total)
    return total


def shared_added(ops: Any, total: np.ndarray, shared: np.ndarray, gate: np.ndarray) -> np.ndarray:
    share = ops.buffer(gate.shape, np.float32)
    ops.glu(gate, buffer_of(ops, np.ones_like(gate)), activation="sigmoid", out=share)
    return fma32(share, shared, total)
