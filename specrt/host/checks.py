"""What launchers check of step inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MismatchError

if TYPE_CHECKING:
    from ..state.step import StepInputs
    from .kv import HostKVLayer


def check_step(op: str, step: StepInputs, num_rows: int, cache: HostKVLayer) -> None:
    """Raise ``MismatchError`` unless the step has that many rows and the layer's table."""
    have, pages = len(step.positions), step.ring_table.shape[1]
    if have < num_rows:
        raise MismatchError(f"{op}: {num_rows} rows; the step inputs hold {have}")
    if cache.ring_pages > pages:
        raise MismatchError(
            f"{op}: the layer is a ring of {cache.ring_pages} pages; the step inputs name {pages}"
        )
