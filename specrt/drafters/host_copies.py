"""What block drafters do beside other ops, computed by the reference over copies on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specrt.acts import Acts
from specrt.ops import Array, Ops, Role, Weight
from specrt.reference.block_conv import block_conv
from specrt.reference.lattice import lattice
from specrt.reference.load_rows import load_rows
from specrt.reference.markov import markov
from specrt.reference.weights import ReferenceWeight
from specrt.state.step import StepInputs


class HostCopies:
    """Another op set; ``load_rows``, ``block_conv``, ``lattice`` and ``markov`` are reference.

    Args:
        ops: the other one.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._plain: dict[Any, ReferenceWeight] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def weight(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> Weight:
        """The other's matrix, whose file's rows are kept in mind."""
        weight = self._ops.weight(tensor, role, bias)
        self._plain[weight] = ReferenceWeight(tensor, role)
        return weight

    def table(self, tensor: Any) -> Weight:
        """The other's table likewise."""
        table = self._ops.table(tensor)
        self._plain[table] = ReferenceWeight(tensor)
        return table

    def load_rows(self, rings: Sequence[Array], step: StepInputs, *, acts: Acts) -> None:
        """See ``specrt.reference.load_rows``."""
        rows = np.empty((acts.num_rows, acts.width), np.float32)
        plain = Acts(*rows.shape, rows, None, None)
        load_rows([self._ops.to_host(ring) for ring in rings], step, acts=plain)
        self._prepare(rows, acts)

    def block_conv(
        self, x: Array, dynamic: Array, base: Array, step: StepInputs, *, side: int,
        out: Array | None, add: Array | None = None, acts: Acts | None = None,
    ) -> None:  # fmt: skip
        """See ``specrt.reference.block_conv``."""
        host, rows = self._ops.to_host, np.empty(x.shape, np.float32)
        added = None if add is None else host(add)
        block_conv(host(x), host(dynamic), host(base), step, side=side, out=rows, add=added)
        if out is not None:
            self._ops.assign(out, rows)
        if acts is not None:
            self._prepare(rows, acts)

    def lattice(
        self, ids: Array, logits: Array, gates: Array, step: StepInputs, *, predecessor: Weight,
        successor: Weight, names: Array | None, scores: Array,
    ) -> None:  # fmt: skip
        """See ``specrt.reference.lattice``."""
        host, found = self._ops.to_host, np.empty(scores.shape, np.float32)
        lattice(
            host(ids), host(logits), host(gates), step, predecessor=self._plain[predecessor],
            successor=self._plain[successor], names=None if names is None else host(names),
            scores=found,
        )  # fmt: skip
        self._ops.assign(scores, found)

    def markov(
        self, logits: Array, hidden: Array, step: StepInputs, *, predecessor: Weight,
        successor: Weight, confidence: Array | None, names: Array | None, acts: Acts, ids: Array,
        confidences: Array | None,
    ) -> None:  # fmt: skip
        """See ``specrt.reference.markov``."""
        host, plain = self._ops.to_host, self._plain[successor]
        biased, found = np.array(host(logits)), np.empty(ids.shape, np.int32)
        sure = None if confidences is None else np.empty(confidences.shape, np.float32)
        markov(
            biased, host(hidden), step, predecessor=self._plain[predecessor], successor=plain,
            confidence=None if confidence is None else host(confidence),
            names=None if names is None else host(names),
            acts=Acts.empty(len(ids), plain.shape[1], [plain]), ids=found, confidences=sure,
        )  # fmt: skip
        self._ops.assign(logits, biased)
        self._ops.assign(ids, found)
        if sure is not None:
            self._ops.assign(confidences, sure)

    def _prepare(self, rows: np.ndarray, acts: Acts) -> None:
        there = self._ops.buffer(rows.shape, np.float32)
        self._ops.assign(there, rows)
        self._ops.quantize(there, out=acts)
