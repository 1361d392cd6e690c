"""The forwards of a NextN head: rows that only leave keys and values, and rows that draft."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np

from specrt.drafters.nextn import NextNWeights
from specrt.models.blocks import Forward, Trunk, Workspace
from specrt.models.decoder import Decoder
from specrt.models.programs import Programs
from specrt.models.step_rows import SequenceRows, StepRows
from specrt.ops import Array, Program
from specrt.options import MAX_DRAFT
from specrt.state.messages import Draft
from specrt.state.sequence import Sequence

TOP = 10
"""The likelihood of an id is that among so many of the likeliest."""

DRAFTED = 2 * MAX_DRAFT
"""Places of drafted tokens, by position: two neighbouring drafts share none."""


class NextNPasses:
    """Forwards of the head, recorded by their numbers of rows and sequences.

    A draft is one pass over the rows that wait and the last token, and passes over one more token
    each, for which the ops themselves take the token from the pass before: nothing waits for the
    host in between.

    Args:
        weights: bound to the target.
        target: its ops, its slots and its context.
        trunk: the target's.
        hidden: [slots, R, D] float32, hidden rows by position: the target's, and behind them the
            head's own.
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
        self._embedding_scale = trunk.embedding_scale
        self._logit_scale, self._softcap = trunk.logit_scale, trunk.softcap
        heads, head_dim = weights.dims.kv_heads[layer], weights.dims.head_dim
        pages, ring_pages = target.layout.layer_pages(0)
        self.cache = ops.kv_layer(pages, heads, head_dim, target.kv_type, ring_pages)
        self._caches = {layer: self.cache}
        self._rows, self._ends = (
            StepRows(ops, target.layout, rows) for rows in (most_rows, num_slots)
        )
        matrices, experts = [*weights.block.weights, weights.projection], weights.block.experts
        self._work = Workspace(
            ops, most_rows, width, matrices, weights.output, trunk.num_outs, experts
        )
        self._last = ops.buffer((num_slots,), np.int32)
        self._own_hidden = ops.buffer((num_slots, width), np.float32)
        self._logits = ops.buffer((num_slots, vocab_size), np.float32)
        self._ids = ops.buffer((num_slots,), np.int32)
        top = (num_slots, min(TOP, vocab_size))
        self._top_ids, self._top_logits = ops.buffer(top, np.int32), ops.buffer(top, np.float32)
        self._names: Array | None = None
        if weights.ids is not None:
            self._names = ops.buffer((vocab_size,), np.int32)
            ops.assign(self._names, weights.ids.astype(np.int32))
        self._gates = ops.buffer((num_slots,), np.float32)
        self._assigned_gates: list[float] = []
        self._stop = ops.buffer((1,), np.int32)
        self._drafted = ops.buffer((2, num_slots, DRAFTED), np.int32)  # tokens, and bits of shares
        self._programs = Programs(self._record)

    def record(self, most_drafting: int, most_taken_in: int) -> None:
        """Record what one sequence with up to so many rows needs: else drafts would wait for it."""
        for num_rows in range(1, most_drafting + 1):
            self._programs.get(num_rows, 1)
        for num_rows in range(most_drafting, most_taken_in + 1):
            self._programs.get(num_rows, 0)

    def chain(self, rows: Rows[SequenceRows], wanted: Rows[tuple[int, float]]) -> list[Draft]:
        """Take rows in and draft behind each sequence's last one, token by token.

        Args:
            wanted: per sequence the most tokens, and the gate: a draft ends before the first token
                whose share among the likeliest is below it.
        """
        num_seqs, num_rows = len(rows), sum([len(tokens) for _, tokens, _ in rows])
        gates = [gate for _, gate in wanted]
        if gates != self._assigned_gates:
            self._ops.assign(self._gates[:num_seqs], _rounded_down(gates))
            self._assigned_gates = gates
        if num_rows > num_seqs:
            offsets = self._rows.publish(rows)
            if num_seqs > 1:
                last = [end - 1 for end in offsets[1:]]
                self._ops.assign(self._last[:num_seqs], np.array(last, np.int32))
        self._ends.publish([(s, t[-1:], start + len(t) - 1) for s, t, start in rows])
        program = self._programs.get(num_rows, num_seqs)
        program.prepare()
        program.run()
        most = max([num_draft for num_draft, _ in wanted])
        if most > 1:
            program = self._programs.get(num_seqs, num_seqs)
            program.prepare()
            program.repeat(most - 1, self._stop)
        tokens, shares = self._ops.to_host(self._drafted)
        return [
            _draft(tokens[b], shares[b].view(np.float32), start + len(ids), *wanted[b])
            for b, (_, ids, start) in enumerate(rows)
        ]

    def take_in(self, sequence: Sequence, first: int, num_rows: int) -> None:
        """Leave keys and values of rows of a sequence's history."""
        tokens = sequence.history[first : first + num_rows].tolist()
        self._rows.publish([(sequence, tokens, first)])
        program = self._programs.get(num_rows, 0)
        program.prepare()
        program.run()

    def _record(self, num_rows: int, num_seqs: int) -> Program:
        """Rows before each sequence's last leave keys and values, the last ones a draft."""
        ops, work, block = self._ops, self._work, self._weights.block
        x, h = work.residual[:num_rows], work.hidden[:num_rows]
        step = (self._rows if num_rows > num_seqs else self._ends).inputs
        with ops.record() as program:
            self._record_input(Forward(ops, work, step, x, h, self._caches))
            if num_rows > num_seqs:
                block.remember(Forward(ops, work, step, x, h, self._caches))
                x, h = self._record_ends(x, h, num_seqs)
            if num_seqs:
                block.record(Forward(ops, work, self._ends.inputs, x, h, self._caches))
                self._record_head(x)
        return program

    def _record_input(self, f: Forward) -> None:
        """Record ``projection [norm(embedding), norm(hidden row before it)]`` into the residual."""
        weights = self._weights
        self._ops.mtp_project(
            weights.embedding, self._hidden, weights.projection, f.step,
            embedding_norm=weights.embedding_norm, hidden_norm=weights.hidden_norm,
            scale=self._embedding_scale, eps=weights.dims.eps,
            acts=self._work.acts(f.num_rows, 2 * weights.dims.width), out=f.x,
        )  # fmt: skip

    def _record_ends(self, x: Array, h: Array, num_seqs: int) -> tuple[Array, Array]:
        """Choose each sequence's last row."""
        if num_seqs <= 1:
            return x[len(x) - num_seqs :], h[:num_seqs]
        self._ops.select(x, self._last[:num_seqs], out=h[:num_seqs])
        return h[:num_seqs], x[:num_seqs]

    def _record_head(self, x: Array) -> None:
        """Record the likeliest ids behind rows x, their shares, and what the next pass reads."""
        ops, weights, num_seqs = self._ops, self._weights, len(x)
        acts, logits = self._work.acts(*x.shape), self._logits[:num_seqs]
        hidden, ends = self._own_hidden[:num_seqs], self._ends.inputs
        top_ids, top_logits = self._top_ids[:num_seqs], self._top_logits[:num_seqs]
        ops.rms_norm(x, weights.norm, weights.dims.eps, out=hidden, acts=acts)
        ops.store_rows(hidden, ends, out=self._hidden)
        ops.head(
            weights.output, acts, ids=self._ids[:num_seqs], logits=logits,
            softcap=self._softcap, scale=self._logit_scale,
        )  # fmt: skip
        ops.top_k(logits, ids=top_ids, values=top_logits)
        ops.draft_token(
            top_ids, top_logits, ends, names=self._names, gates=self._gates[:num_seqs],
            tokens=self._drafted[0], shares=self._drafted[1].view(np.float32), stop=self._stop,
        )  # fmt: skip


def _rounded_down(gates: list[float]) -> np.ndarray:
    """As float32, so that whoever passes a gate passes the rounded one."""
    exact, rounded = np.array(gates), np.array(gates, np.float32)
    return np.where(rounded > exact, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _draft(
    tokens: np.ndarray, shares: np.ndarray, first: int, num_draft: int, gate: float
) -> Draft:
    """What the rings hold from a position on, up to the first share below the gate.

    Behind that they may hold what earlier drafts left.
    """
    begin = first % DRAFTED
    if begin + num_draft > DRAFTED:
        tokens, shares, begin = np.roll(tokens, -begin), np.roll(shares, -begin), 0
    confidences: list[float] = []
    for share in shares[begin : begin + num_draft].tolist():
        if not share >= gate:
            break
        confidences.append(share)
    return Draft(tokens[begin : begin + len(confidences)].tolist(), confidences, "")
