"""Keys and values of a sequence, as sessions save them."""

from __future__ import annotations

from collections.abc import Sequence as Layers
from dataclasses import dataclass

import numpy as np

from specrt.errors import MismatchError
from specrt.ops import PAGE, KVLayer, Ops
from specrt.state.kv import PageLayout
from specrt.state.sequence import Cursor, Sequence


@dataclass(frozen=True, slots=True)
class SavedKV:
    """Reads and writes the positions that a next row can see.

    Args:
        ops: the op set.
        caches: a KV layer per layer.
        windows: the sliding window of each layer, 0 for all keys.
        layout: where a slot's pages are.
    """

    ops: Ops
    caches: Layers[KVLayer]
    windows: Layers[int]
    layout: PageLayout

    def export(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """Keys and values of all layers as [pos, Hkv, Dh], ``k<layer>`` and ``v<layer>``.

        Sliding layers give the positions that a next row can see.
        """
        arrays: dict[str, np.ndarray] = {}
        for layer, cache in enumerate(self.caches):
            k, v = self.ops.kv_read(cache, *self._seen(sequence, sequence.cursor.cache_len, layer))
            arrays |= {f"k{layer}": k, f"v{layer}": v}
        return arrays

    def restore(self, sequence: Sequence, cache_len: int, arrays: dict[str, np.ndarray]) -> None:
        """Take what ``export`` gave, for a sequence of ``cache_len`` consumed tokens.

        Raises:
            MismatchError: an array is missing or has another shape.
        """
        lowest = 0
        for layer, cache in enumerate(self.caches):
            pages, positions = self._seen(sequence, cache_len, layer)
            k, v = (arrays.get(f"{name}{layer}") for name in "kv")
            like, _ = self.ops.kv_read(cache, pages, positions)
            if any(a is None or (a.shape, a.dtype) != (like.shape, like.dtype) for a in (k, v)):
                raise MismatchError(
                    f"layer {layer} of the saved state: expected keys and values of shape "
                    f"{like.shape} and type {like.dtype}; save the session again"
                )
            self.ops.kv_write(cache, pages, positions, k, v)
            lowest = max(lowest, int(positions[0]) if len(positions) else 0)
        sequence.high_water, sequence.lowest_kept = cache_len, lowest
        sequence.cursor = Cursor(num_tokens=cache_len, cache_len=cache_len)

    def _seen(
        self, sequence: Sequence, cache_len: int, layer: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The positions of a layer that a next row can see, behind the page of each."""
        window = self.windows[layer]
        first = max(0, cache_len - window + 1) if window else 0
        positions = np.arange(first, cache_len, dtype=np.int32)
        layout, slot = self.layout, sequence.slot
        table = layout.ring(slot) if window else layout.table(slot)
        return table[positions // PAGE % len(table)], positions
