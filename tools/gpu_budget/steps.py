"""What a round launches: the plain step, verifies and drafts, from the model's own code."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from specrt.drafters.dflash_head import DFlashHead
from specrt.drafters.loading import load_head
from specrt.drafters.nextn_head import NextNHead
from specrt.kernels.kv import KernelKVLayer
from specrt.kernels.program import Launch
from specrt.models import load_trunk
from specrt.models.decoder import Decoder
from specrt.state.messages import DraftContext, Kept, Tap, Window
from specrt.state.recurrent import RecurrentLayer
from specrt.state.sequence import Cursor, Sequence
from tools.gpu_budget.files import PaperFile
from tools.gpu_budget.paper import PaperDevice, PaperOps


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a round.

    Args:
        launches: kernels, in order.
        graphs: that the host launches.
        copies: of step values to the device.
    """

    name: str
    launches: list[Launch]
    graphs: int
    copies: int


@dataclass(frozen=True, slots=True)
class State:
    """Bytes that a sequence holds."""

    name: str
    num_bytes: int


class Model:
    """A target with one sequence, at a position from which it goes on.

    Args:
        file: the target's.
        cached: tokens that the sequence has consumed.
        room: positions behind them.
    """

    def __init__(self, file: PaperFile, cached: int, room: int = 128) -> None:
        self.file, self.cached = file, cached
        self._device = PaperDevice()
        self._ops = ops = PaperOps(self._device)
        context = cached + room
        self._trunk = load_trunk(file, ops, context)
        self.target = Decoder(self._trunk, ops, context=context, kv_type="f16", max_sequences=1)
        self._sequence = self.target.open_sequence()
        self._head_layers: list[KernelKVLayer] = []

    def head(self, file: PaperFile, num_ids: int | None = None) -> NextNHead | DFlashHead:
        """The draft head that a file has.

        Args:
            num_ids: that it drafts among, None for all.
        """
        ids = None if num_ids is None else np.arange(num_ids)
        before = len(self._ops.kv_layers)
        head = load_head(file, self._trunk, self.target, ids)
        assert isinstance(head, NextNHead | DFlashHead), head
        self._head_layers = self._ops.kv_layers[before:]
        return head

    def verify(self, name: str, num_rows: int, taps: Collection[Tap] = ()) -> Step:
        """A greedy verify."""
        window = Window(self._at(self.cached), [0] * num_rows, self.cached)
        self._begin()
        self.target.verify([window], taps=taps)
        return self._noted(name)

    def draft(self, name: str, head: NextNHead | DFlashHead, num_draft: int) -> Step:
        """A draft behind a verify of as many drafted ids, all of which were accepted."""
        rows = num_draft + 1
        head.catch_up([Kept(self._at(self.cached), 0, [0] * self.cached, 0, {})])
        self._draft(head, num_draft)
        head.catch_up([Kept(self._sequence, self.cached, [0] * rows, 0, {})])
        self._at(self.cached + rows)
        self._begin()
        self._draft(head, num_draft)
        return self._noted(name)

    def states(self) -> list[State]:
        """What the sequence holds beside weights, without what heads hold."""
        caches = self.target.caches
        recurrent = [one for one in caches if isinstance(one, RecurrentLayer)]
        layers = [one for one in caches if isinstance(one, KernelKVLayer)]
        return [
            State("target: recurrent states, two of each", sum(map(_states_of, recurrent))),
            State("target: logs, convolution inputs", sum(map(_rest_of, recurrent))),
            State("target: KV of 1024 tokens, f16", 1024 * _per_position(layers)),
        ]

    def head_states(self, name: str, head: NextNHead | DFlashHead) -> list[State]:
        """What the sequence holds for the head that was loaded last."""
        taps = sum(self.target.tap_rows.ring(tap).nbytes for tap in head.taps)
        kept = self._head_layers
        if isinstance(head, DFlashHead):
            size = sum(layer.k.nbytes + layer.v.nbytes for layer in kept)
            own = State(f"{name}: rings of keys and values, f16", size)
        else:
            own = State(f"{name}: KV of 1024 tokens, f16", 1024 * _per_position(kept))
        return [own, State(f"{name}: rings of the target's rows", taps)]

    def _at(self, cache_len: int) -> Sequence:
        self._sequence.cursor = Cursor(num_tokens=cache_len + 1, cache_len=cache_len)
        return self._sequence

    def _draft(self, head: NextNHead | DFlashHead, num_draft: int) -> None:
        context = DraftContext(self._sequence, num_draft, 0.0)
        if isinstance(head, DFlashHead):
            head.draft_block([context])
        else:
            head.draft_chain([context])

    def _begin(self) -> None:
        device = self._device
        device.launched, device.num_launches, device.num_copies = [], 0, 0

    def _noted(self, name: str) -> Step:
        device = self._device
        return Step(name, list(device.launched), device.num_launches, device.num_copies)


def _per_position(layers: list[KernelKVLayer]) -> int:
    """Bytes of one position in all layers."""
    pages = [one.k.shape[0] * one.k.shape[2] for one in layers]
    sizes = [one.k.nbytes + one.v.nbytes for one in layers]
    return sum(size // positions for size, positions in zip(sizes, pages, strict=True))


def _states_of(layer: RecurrentLayer) -> int:
    return int(layer.states.nbytes)


def _rest_of(layer: RecurrentLayer) -> int:
    logs = (layer.log_u, layer.log_k, layer.log_delta, layer.log_decay)
    return layer.tails.nbytes + sum(array.nbytes for array in logs)
