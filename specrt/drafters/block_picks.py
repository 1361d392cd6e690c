"""From the logits of a block's rows to ids, as each generation of block drafters does it.

Each records what runs on the device, and reads from there what the ids and their probabilities are
made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specrt._ext.lattice_walk import pick, walk
from specrt.errors import FormatError
from specrt.models.loader import Dims, Loader
from specrt.ops import Acts, Array, Ops, StepInputs, Weight

MAX_TOP = 64
"""Candidates of a row at most."""

TOP = 10
"""The likelihood of an id is that among so many of the likeliest."""

Picked = tuple[list[int], list[float]]
"""Ids, and the probability that the drafter gives to each behind those before it."""


@dataclass(frozen=True, slots=True)
class BlockRows:
    """The drafting rows of a forward's blocks, n of each.

    Args:
        step: the inputs of the whole blocks, each of which begins with its anchor.
        hidden: [B n, D] float32, the rows that the head reads.
        acts: those, prepared.
        logits: [B n, Vd] float32.
        num_seqs: B.
    """

    step: StepInputs
    hidden: Array
    acts: Acts
    logits: Array
    num_seqs: int


class Picks(Protocol):
    """A generation's way; its arrays are of the most sequences.

    Attributes:
        weights: the matrices that read the head's rows.
    """

    weights: list[Weight]

    def record(self, rows: BlockRows) -> None:
        """Record what the device computes of the logits, which it may change."""

    def read(self, number: int, num_rows: int, num_draft: int) -> Picked:
        """The ids of a block, after a run.

        Args:
            number: the block's.
            num_rows: n that was recorded.
            num_draft: the most ids.
        """


class Candidates:
    """The likeliest ids of each row.

    Args:
        ops: the op set.
        shape: the most sequences, their drafting rows, and Vd.
        num: k, at most Vd.
    """

    def __init__(self, ops: Ops, shape: tuple[int, int, int], num: int) -> None:
        num_seqs, num_rows, vocab_size = shape
        size = (num_seqs * num_rows, min(num, vocab_size))
        self._ops = ops
        self.ids, self.logits = ops.buffer(size, np.int32), ops.buffer(size, np.float32)

    def record(self, logits: Array) -> None:
        """Record the choice from logits [T, Vd]."""
        num_rows = len(logits)
        self._ops.top_k(logits, ids=self.ids[:num_rows], values=self.logits[:num_rows])

    def read(self, number: int, num_rows: int, names: np.ndarray | None) -> np.ndarray:
        """[n, k] ids of a block."""
        ids = self._ops.to_host(self.ids)[number * num_rows : (number + 1) * num_rows]
        return ids if names is None else names[ids]

    def read_logits(self, number: int, num_rows: int) -> np.ndarray:
        """[n, k] logits of a block."""
        return self._ops.to_host(self.logits)[number * num_rows : (number + 1) * num_rows]


class Likeliest:
    """First generation: each row's argmax."""

    def __init__(self, ops: Ops, shape: tuple[int, int, int], names: np.ndarray | None) -> None:
        self.weights: list[Weight] = []
        self._names = names
        self.candidates = Candidates(ops, shape, TOP)

    def record(self, rows: BlockRows) -> None:
        """Record the likeliest ids."""
        self.candidates.record(rows.logits)

    def read(self, number: int, num_rows: int, num_draft: int) -> Picked:
        """Each row's first."""
        ids = self.candidates.read(number, num_rows, self._names)
        return pick(ids, self.candidates.read_logits(number, num_rows), num_draft)


class Selector:
    """DFlash2: a walk through candidates, each scored beside the one before it.

    Args:
        ops: the op set.
        shape: the most sequences, their drafting rows, and Vd.
        names: [Vd], the ids that rows of the logits stand for.
        num_candidates: k.
        gate: [R, D], from a hidden row to the weights of the codebooks' columns.
        predecessor, successor: [V, R], the codebooks.
    """

    def __init__(
        self,
        ops: Ops,
        shape: tuple[int, int, int],
        names: np.ndarray | None,
        num_candidates: int,
        gate: Weight,
        predecessor: Weight,
        successor: Weight,
    ) -> None:
        num_seqs, num_rows, _ = shape
        self.weights = [gate]
        self._ops, self._gate = ops, gate
        self.tables = {"predecessor": predecessor, "successor": successor}
        self._names, self._names_there = names, on_device(ops, names)
        self.candidates = Candidates(ops, shape, num_candidates)
        k = self.candidates.ids.shape[1]
        self._gates = ops.buffer((num_seqs * num_rows, gate.shape[0]), np.float32)
        self._all_scores = ops.buffer((num_seqs * (k + k * k * (num_rows - 1)),), np.float32)

    @classmethod
    def load(
        cls,
        loader: Loader,
        dims: Dims,
        shape: tuple[int, int, int],
        names: np.ndarray | None,
    ) -> Selector:
        """Claim ``selector_*``.

        Raises:
            FormatError: the rank or the number of candidates is impossible.
        """
        gguf = loader.gguf
        rank, num = (gguf.get(f"dflash.selector_{key}", int) for key in ("rank", "top_k"))
        most = min(MAX_TOP, shape[2])
        if rank < 1 or not 1 <= num <= most:
            raise FormatError(
                f"{gguf.path}: dflash.selector_rank = {rank} and dflash.selector_top_k = {num}, "
                f"expected at least 1, and 1 to {most}"
            )
        gate = loader.weight("selector_hidden.weight", rank, dims.width, role="int8x2")
        tables = [
            loader.table(f"selector_{name}.weight", dims.vocab_size, rank)
            for name in ("predecessor", "successor")
        ]
        return cls(loader.ops, shape, names, num, gate, *tables)

    def record(self, rows: BlockRows) -> None:
        """Record candidates and scores."""
        num_rows, found = len(rows.logits), self.candidates
        scores = self.scores(rows.num_seqs, num_rows // rows.num_seqs)
        gates = self._gates[:num_rows]
        self._ops.linear([(self._gate, gates)], rows.acts)
        found.record(rows.logits)
        self._ops.lattice(
            found.ids[:num_rows], found.logits[:num_rows], gates, rows.step,
            **self.tables, names=self._names_there, scores=scores,
        )  # fmt: skip

    def scores(self, num_seqs: int, num_rows: int) -> Array:
        """[B, k + k k (n - 1)] float32, of blocks of so many rows that draft."""
        k = self.candidates.ids.shape[1]
        size = k + k * k * (num_rows - 1)
        return self._all_scores[: num_seqs * size].reshape(num_seqs, size)

    def read(self, number: int, num_rows: int, num_draft: int) -> Picked:
        """The greedy walk."""
        ids = self.candidates.read(number, num_rows, self._names)
        scores = self._ops.to_host(self.scores(number + 1, num_rows))[number]
        return walk(ids, scores, num_draft)


class Markov:
    """DSpark: each row's logits are biased by the id before it.

    Args:
        ops: the op set.
        shape: the most sequences, their drafting rows, and Vd.
        names: [Vd], the ids that rows of the logits stand for.
        predecessor: [V, R], a row for each id.
        successor: [Vd, R], from such a row to the bias.
        confidence: [D + R + 1], weights and bias of the confidence head; None without.
    """

    def __init__(
        self,
        ops: Ops,
        shape: tuple[int, int, int],
        names: np.ndarray | None,
        predecessor: Weight,
        successor: Weight,
        confidence: Array | None,
    ) -> None:
        num_seqs, num_rows, _ = shape
        self.weights: list[Weight] = []
        self._ops, self._confidence = ops, confidence
        self.tables = {"predecessor": predecessor, "successor": successor}
        self._names, self._names_there = names, on_device(ops, names)
        self._acts = ops.acts(num_seqs, successor.shape[1], [successor])
        self._ids = ops.buffer((num_seqs * num_rows,), np.int32)
        self._confidences: Array | None = None
        self.candidates: Candidates | None = None
        if confidence is not None:
            self._confidences = ops.buffer((num_seqs * num_rows,), np.float32)
        else:
            self.candidates = Candidates(ops, shape, TOP)

    @classmethod
    def load(
        cls,
        loader: Loader,
        dims: Dims,
        shape: tuple[int, int, int],
        names: np.ndarray | None,
    ) -> Markov:
        """Claim ``markov_*`` and ``conf_proj``."""
        rank = loader.gguf.tensors["markov_w1.weight"].shape[-1]
        predecessor = loader.table("markov_w1.weight", dims.vocab_size, rank)
        successor = loader.weight("markov_w2.weight", shape[2], rank, role="int8x2")
        confidence = None
        if loader.has("conf_proj.weight"):
            confidence = loader.ops.buffer((dims.width + rank + 1,), np.float32)
            weights = loader.values("conf_proj.weight", (1, dims.width + rank))
            bias = loader.values("conf_proj.bias", (1,))
            loader.ops.assign(confidence, np.concatenate([weights.reshape(-1), bias]))
        return cls(loader.ops, shape, names, predecessor, successor, confidence)

    def record(self, rows: BlockRows) -> None:
        """Record the ids, row by row."""
        num_seqs, num_rows = rows.num_seqs, len(rows.logits)
        ids, confidences = (
            None if every is None else every[:num_rows].reshape(num_seqs, -1)
            for every in (self._ids, self._confidences)
        )
        self._ops.markov(
            rows.logits, rows.hidden, rows.step,
            **self.tables, confidence=self._confidence, names=self._names_there,
            acts=self._acts.rows(num_seqs), ids=ids, confidences=confidences,
        )  # fmt: skip
        if self.candidates is not None:
            self.candidates.record(rows.logits)

    def read(self, number: int, num_rows: int, num_draft: int) -> Picked:
        """The ids, with the confidence head's estimates, else their shares among the likeliest."""
        if self.candidates is not None:
            ids = self.candidates.read(number, num_rows, self._names)
            return pick(ids, self.candidates.read_logits(number, num_rows), num_draft)
        begin = number * num_rows
        ids, confidences = (
            self._ops.to_host(every)[begin : begin + num_draft].tolist()
            for every in (self._ids, self._confidences)
        )
        return ids, confidences


def on_device(ops: Ops, names: np.ndarray | None) -> Array | None:
    """The ids where ops read them."""
    if names is None:
        return None
    array = ops.buffer(names.shape, np.int32)
    ops.assign(array, names)
    return array
