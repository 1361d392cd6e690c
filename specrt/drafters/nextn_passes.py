"""The forwards of a NextN head: rows that only leave keys and values, and rows that draft."""

from __future__ import annotations

import math
from collections.abc import Sequence as Rows

import numpy as np

from specrt.drafters.nextn import NextNWeights
from specrt.models.blocks import Forward, Trunk, Workspace
from specrt.models.decoder import MAX_PROGRAMS, Decoder
from specrt.models.step_rows import SequenceRows, StepRows
from specrt.ops import Array, Program

TOP = 10
"""The likelihood of an id is that among so many of the likeliest."""


class NextNPasses:
    """Forwards of the head, recorded by their numbers of rows and sequences.

    Args:
        weights: bound to the target.
        target: its ops, its slots and its context.
        trunk: the target's.
        hidden: [rows, D] float32, hidden rows of the target's.
        most_rows: of a forward.

    Attributes:
        cache: the block's keys and values.
    """

    def __init__(
        self,
        weights: NextNWeights,
        target: Decoder,
        trunk: Trunk,
        hidden: Array,
        most_rows: int,
    ) -> None:
        ops, layer, width = target.ops, weights.layer, weights.dims.width
        num_slots, vocab_size = target.max_sequences, weights.output.shape[0]
        self._ops, self._weights, self._hidden = ops, weights, hidden
        self._embedding_scale, self._softcap = trunk.embedding_scale, trunk.softcap
        heads, head_dim = weights.dims.kv_heads[layer], weights.dims.head_dim
        num_pages = num_slots * target.layout.pages
        self.cache = ops.kv_layer(num_pages, heads, head_dim, target.kv_type, 0)
        self._caches = {layer: self.cache}
        self._rows, self._ends = (
            StepRows(ops, target.layout, rows) for rows in (most_rows, num_slots)
        )
        matrices, experts = [*weights.block.weights, weights.projection], weights.block.experts
        self._work = Workspace(
            ops, most_rows, width, matrices, weights.output, trunk.num_outs, experts
        )
        self._chosen = ops.buffer((most_rows,), np.int32)
        self._last = ops.buffer((num_slots,), np.int32)
        self._halves, self._joined = (
            ops.buffer((2 * most_rows, width), np.float32) for _ in range(2)
        )
        self._next_hidden = ops.buffer((num_slots, width), np.float32)
        self._logits = ops.buffer((num_slots, vocab_size), np.float32)
        self._ids = ops.buffer((num_slots,), np.int32)
        top = (num_slots, min(TOP, vocab_size))
        self._top_ids, self._top_logits = ops.buffer(top, np.int32), ops.buffer(top, np.float32)
        self._programs: dict[tuple[int, int, bool], Program] = {}

    def record(self, most_rows: int) -> None:
        """Record what drafts of one sequence with up to so many rows need: else they would wait."""
        for num_rows in range(1, most_rows + 1):
            self._program(num_rows, 1, False)
        self._program(1, 1, True)

    def likeliest(
        self, rows: Rows[SequenceRows], hidden: list[int], chained: bool
    ) -> list[tuple[int, float]]:
        """The likeliest id behind each sequence's last row, and its share among the top ones."""
        num_seqs = len(rows)
        self.run(rows, hidden, num_seqs, chained)
        found = self._ops.to_host(self._top_ids[:num_seqs])[:, 0]
        ids = (found if self._weights.ids is None else self._weights.ids[found]).tolist()
        top = self._ops.to_host(self._top_logits[:num_seqs]).tolist()
        return [(token, share_of_first(logits)) for token, logits in zip(ids, top, strict=True)]

    def run(
        self,
        rows: Rows[SequenceRows],
        hidden: list[int],
        num_seqs: int,
        chained: bool,
    ) -> None:
        """Forward rows, each beside the hidden row of that number in the ring or the last pass.

        Args:
            num_seqs: draft behind the last row of so many sequences: all, or 0 for none.
            chained: the hidden rows are the last pass's.
        """
        num_rows = len(hidden)
        if num_rows > num_seqs:
            offsets = self._rows.publish(rows)
            if num_seqs:
                last = [end - 1 for end in offsets[1:]]
                self._ops.assign(self._last[:num_seqs], np.array(last, np.int32))
        if num_seqs:
            self._ends.publish([(s, t[-1:], start + len(t) - 1) for s, t, start in rows])
        self._ops.assign(self._chosen[:num_rows], np.array(hidden, np.int32))
        program = self._program(num_rows, num_seqs, chained)
        program.prepare()
        program.run()

    def _program(self, *key: *tuple[int, int, bool]) -> Program:
        program = self._programs.pop(key, None) or self._record(*key)
        self._programs[key] = program
        if len(self._programs) > MAX_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        return program

    def _record(self, num_rows: int, num_seqs: int, chained: bool) -> Program:
        """Rows before each sequence's last leave keys and values, the last ones a draft."""
        ops, work, block = self._ops, self._work, self._weights.block
        x, h = work.residual[:num_rows], work.hidden[:num_rows]
        step = (self._rows if num_rows > num_seqs else self._ends).inputs
        with ops.record() as program:
            self._record_input(Forward(ops, work, step, x, h, self._caches), chained)
            if num_rows > num_seqs:
                block.remember(Forward(ops, work, step, x, h, self._caches))
                ends, h = h[:num_seqs], x[:num_seqs]
                ops.select(x, self._last[:num_seqs], out=ends)
                x = ends
            if num_seqs:
                block.record(Forward(ops, work, self._ends.inputs, x, h, self._caches))
                self._record_head(x)
        return program

    def _record_input(self, f: Forward, chained: bool) -> None:
        """Record ``projection [norm(embedding), norm(hidden row before it)]`` into the residual."""
        ops, weights, num_rows = self._ops, self._weights, f.num_rows
        source = self._next_hidden if chained else self._hidden
        halves, joined = self._halves[: 2 * num_rows], self._joined[: 2 * num_rows]
        eps, turns = weights.dims.eps, ops.buffer((2 * num_rows,), np.int32)
        ops.assign(turns, np.arange(2 * num_rows, dtype=np.int32).reshape(2, -1).T.ravel())
        ops.embed(weights.embedding, f.step, scale=self._embedding_scale, out=f.x)
        ops.select(source, self._chosen[:num_rows], out=f.h)
        ops.rms_norm(f.x, weights.embedding_norm, eps, out=halves[:num_rows])
        ops.rms_norm(f.h, weights.hidden_norm, eps, out=halves[num_rows:])
        ops.select(halves, turns, out=joined)
        self._work.linear(joined.reshape(num_rows, -1), [(weights.projection, f.x)])

    def _record_head(self, x: Array) -> None:
        """Record the likeliest ids behind rows x, and the hidden rows for the next pass."""
        ops, weights, num_seqs = self._ops, self._weights, len(x)
        acts, logits = self._work.acts(*x.shape), self._logits[:num_seqs]
        out, ids = self._next_hidden[:num_seqs], self._ids[:num_seqs]
        top_ids, top_logits = self._top_ids[:num_seqs], self._top_logits[:num_seqs]
        ops.rms_norm(x, weights.norm, weights.dims.eps, out=out, acts=acts)
        ops.head(weights.output, acts, ids=ids, logits=logits, softcap=self._softcap)
        ops.top_k(logits, ids=top_ids, values=top_logits)


def share_of_first(logits: Rows[float]) -> float:
    """exp(l_0) / sum exp(l_i), NaN if any is."""
    first = logits[0]
    return 1 / sum([math.exp(logit - first) for logit in logits])
