"""Launcher of ``sample``, and what it reads: see ``specrt.reference.sampling``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._ext.host_ops import Tape, record_sample
from ..array_checks import check_sample
from ..state.draw import Draw, DrawBlock, packed
from ..state.step import StepInputs

Array = Any


def sample(
    tape: Tape, logits: Array, step: StepInputs, draws: Array, edits: Array, *, ids: Array
) -> None:
    """Record ``sample``; a window's rows behind one whose id is not the draft's may be left out."""
    check_sample(logits, step, draws, edits, ids)
    record_sample(tape, logits, step, draws, edits, ids)


class HostDraws:
    """How the windows of a step draw, where the kernel reads it.

    Args:
        num_seqs: the most windows.
        max_edits: the most edits of a window.
        buffer: makes an array.
        do: records an op, or runs it.
    """

    def __init__(
        self,
        num_seqs: int,
        max_edits: int,
        buffer: Callable[[tuple[int, ...], Any], Array],
        do: Callable[..., None],
    ) -> None:
        self._arrays = DrawBlock(num_seqs, max_edits, buffer)
        self._do = do
        self._published: list[Draw | None] = []

    def publish(self, draws: Sequence[Draw | None]) -> None:
        """Hand on what the windows of the next run draw with, unless it is as before."""
        if draws != self._published:  # draws are equal if they are the same object
            values = packed(draws, len(self._arrays.draws))
            self._arrays.block[: len(values)] = values
            self._published = list(draws)

    def sample(self, logits: Array, step: Any, *, ids: Array) -> None:
        """Draw where a window does: see ``sample``."""
        self._do(sample, logits, step, self._arrays.draws, self._arrays.edits, ids=ids)
