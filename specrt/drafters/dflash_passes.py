"""The forwards of a ``dflash`` drafter: rows of the target injected, and a block behind them."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np

from specrt.drafters.block_picks import BlockRows, Picked
from specrt.drafters.dflash import DFlashWeights
from specrt.drafters.dflash_layer import NUM_OUTS
from specrt.models.blocks import Forward, Workspace
from specrt.models.decoder import Decoder
from specrt.models.programs import Programs
from specrt.models.step_rows import SequenceRows, StepRows
from specrt.models.tap_rows import PIECE
from specrt.ops import Array, KVLayer, Ops, Program
from specrt.state.kv import PageLayout
from specrt.state.messages import residual_entering
from specrt.state.sequence import Sequence

WAITING = 9
"""Rows of a sequence that a draft's own program injects at most; more have one before it."""


class DFlashPasses:
    """Forwards of a drafter, recorded by their numbers of injected rows and of blocks.

    Args:
        weights: bound to the target.
        target: its slots, its context, and its tapped rows, which are injected from where
            the target keeps them.
        ops: that the weights are on.

    Attributes:
        layout: where a slot's keys and values are; a block may end behind the context.
        caches: each layer's.
        encoded: [rows, D] float32, what the last injection took keys and values of.
        logits: [B n, Vd] float32, of the n rows of each block that the last draft was cut from.
    """

    def __init__(self, weights: DFlashWeights, target: Decoder, ops: Ops) -> None:
        dims, keys = weights.dims, weights.keys
        num_slots, size = target.max_sequences, keys.block_size
        self._size = size
        self._ops, self._weights = ops, weights
        most_injected, most_drafting = max(PIECE, num_slots * WAITING), num_slots * size
        most = max(most_injected, most_drafting)
        self.layout = PageLayout(target.context + size, max(keys.windows), most, num_slots)
        self.caches = [self._cache(target, layer) for layer in range(dims.num_layers)]
        self._rings = [target.tap_rows.ring(residual_entering(i)) for i in keys.target_layers]
        self._injected, self._blocks = (
            StepRows(ops, self.layout, rows) for rows in (most_injected, most_drafting)
        )
        self._work = Workspace(ops, most, dims.width, weights.matrices, weights.output, NUM_OUTS)
        self.encoded = self._work.hidden
        self._num_drafting = keys.num_drafting
        self._skipped = size - keys.num_drafting  # the anchor's row, where that does not draft
        self._ids = ops.buffer((num_slots * self._num_drafting,), np.int32)
        logits = (num_slots * self._num_drafting, weights.output.shape[0])
        self.logits = ops.buffer(logits, np.float32)
        self._masks = [keys.mask_token] * (size - 1)
        self._programs = Programs(self._record)

    def _cache(self, target: Decoder, layer: int) -> KVLayer:
        dims, window = self._weights.dims, self._weights.keys.windows[layer]
        pages, ring_pages = self.layout.layer_pages(window)
        heads, head_dim = dims.kv_heads[layer], dims.head_dim
        return self._ops.kv_layer(pages, heads, head_dim, target.kv_type, ring_pages)

    def record(self) -> None:
        """Record what one sequence needs: else drafts, and a prompt's first chunk, would wait."""
        for num_rows in range(WAITING + 1):
            for num_drafting in {self._rounded(num + 1) for num in range(self._num_drafting)}:
                self._programs.get(num_rows, 1, num_drafting)
        for power in range(PIECE.bit_length()):
            self._programs.get(1 << power, 0, 0)

    def inject(self, sequence: Sequence, first: int, num_rows: int) -> None:
        """Leave keys and values of rows, at most ``PIECE``, that the target keeps taps of."""
        self._injected.publish([(sequence, [0] * num_rows, first)])
        self._run(num_rows, 0, 0)

    def draft(
        self, waiting: Rows[SequenceRows], lowest: list[int], num_drafts: list[int]
    ) -> list[Picked]:
        """Inject rows and draft a block behind each sequence's last one.

        One sequence does both in one program. Of several the rows have a program of their own: else
        there would be one for every sum of their numbers.

        Args:
            waiting: per sequence the rows to inject, ``WAITING`` at most, and their first position.
            lowest: positions below it have no keys, per sequence.
            num_drafts: the most ids of each.
        """
        num_seqs, num_rows = len(waiting), sum([len(tokens) for _, tokens, _ in waiting])
        if num_rows:
            self._injected.publish(waiting)
        self._blocks.inputs.lowest[:num_seqs] = lowest
        self._blocks.publish(
            [(s, [s.last_token, *self._masks], start + len(rows)) for s, rows, start in waiting]
        )
        num_drafting = self._rounded(max(num_drafts))
        if num_rows and num_seqs > 1:
            self._run(num_rows, 0, 0)
            num_rows = 0
        self._run(num_rows, num_seqs, num_drafting)
        picks = self._weights.picks
        return [picks.read(b, num_drafting, most) for b, most in enumerate(num_drafts)]

    def _rounded(self, num_draft: int) -> int:
        """The rows that a draft is cut from: a power of two or all, since each is a program."""
        return min(1 << (num_draft - 1).bit_length(), self._num_drafting)

    def _run(self, *key: *tuple[int, int, int]) -> None:
        program = self._programs.get(*key)
        program.prepare()
        program.run()

    def _record(self, num_rows: int, num_seqs: int, num_drafting: int) -> Program:
        chosen = self._drafting_rows(num_seqs, num_drafting)
        with self._ops.record() as program:
            if num_rows:
                self._record_injection(num_rows)
            if num_seqs:
                self._record_blocks(num_seqs, chosen)
        return program

    def _drafting_rows(self, num_seqs: int, num_drafting: int) -> Array:
        """[B n] int32: the rows of B blocks that draft."""
        blocks = np.arange(num_seqs * self._size, dtype=np.int32).reshape(num_seqs, self._size)
        rows = blocks[:, self._skipped : self._skipped + num_drafting].reshape(-1)
        chosen = self._ops.buffer(rows.shape, np.int32)
        self._ops.assign(chosen, rows)
        return chosen

    def _record_injection(self, num_rows: int) -> None:
        """Record ``g = rms(fc taps)`` and keys and values of g in each layer."""
        ops, weights, work = self._ops, self._weights, self._work
        x, h = work.residual[:num_rows], work.hidden[:num_rows]
        f = Forward(ops, work, self._injected.inputs, x, h, self.caches)
        taps = work.acts(num_rows, weights.encoder.shape[1])
        ops.load_rows(self._rings, f.step, acts=taps)
        ops.linear([(weights.encoder, x)], taps)
        rows = work.acts(*x.shape)
        ops.rms_norm(x, weights.encoder_norm, weights.dims.eps, out=h, acts=rows)
        for layer in weights.layers:
            layer.inject(f, rows, weights.dims, weights.rope)

    def _record_blocks(self, num_seqs: int, chosen: Array) -> None:
        """Record blocks of an anchor and masks, and what ids of the chosen rows are picked from.

        Behind the last layer's keys and values nothing reads the rows that do not draft: of a
        single block they are left out.
        """
        ops, weights, work, keys = self._ops, self._weights, self._work, self._weights.keys
        num_rows, num_drafting = num_seqs * self._size, len(chosen)
        read = num_rows if num_seqs > 1 else self._skipped + num_drafting
        x, h = work.residual[:num_rows], work.hidden[:num_rows]
        f = Forward(ops, work, self._blocks.inputs, x, h, self.caches)
        ops.embed(weights.embedding, f.step, scale=keys.embedding_scale, out=x)
        for layer in weights.layers:
            is_last = layer is weights.layers[-1]
            layer.record(f, weights.dims, weights.rope, read if is_last else num_rows)
        rows, hidden = x[self._skipped : read], h[:num_drafting]
        if num_seqs > 1:
            rows, hidden = h[:num_drafting], x[:num_drafting]
            ops.select(x, chosen, out=rows)
        acts = work.acts(*rows.shape)
        ops.rms_norm(rows, weights.norm, weights.dims.eps, out=hidden, acts=acts)
        logits, ids = self.logits[:num_drafting], self._ids[:num_drafting]
        ops.head(
            weights.output, acts, ids=ids, logits=logits, softcap=keys.softcap,
            scale=keys.logit_scale,
        )  # fmt: skip
        weights.picks.record(BlockRows(f.step, hidden, acts, logits, num_seqs))
