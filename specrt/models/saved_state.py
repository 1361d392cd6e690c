"""What the layers keep of a sequence, as sessions save it."""

from __future__ import annotations

from collections.abc import Sequence as Layers
from dataclasses import dataclass
from typing import Any

import numpy as np

from specrt.errors import MismatchError
from specrt.ops import Array, KVLayer, Ops
from specrt.state.kv import PageLayout
from specrt.state.recurrent import MOST_KEPT, RecurrentLayer
from specrt.state.sequence import Cursor, Sequence


@dataclass(frozen=True, slots=True)
class SavedState:
    """Reads and writes what a next row needs.

    Args:
        ops: the op set.
        caches: what each layer keeps.
        windows: the sliding window of each layer, 0 for all keys.
        layout: where a slot's pages are.
    """

    ops: Ops
    caches: Layers[KVLayer | RecurrentLayer]
    windows: Layers[int]
    layout: PageLayout

    def export(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """What each layer keeps, by the layer's number behind a name.

        Keys and values are ``k`` and ``v`` [pos, Hkv, Dh], of sliding layers where a next row can
        see them. A recurrent layer gives ``state`` [Hv, Dk, Dv], the rows ``log_k``,
        ``log_delta``, ``log_decay`` and ``log_u`` that are pending, and ``tail`` [K - 1, C], the
        convolution's inputs before them.
        """
        arrays: dict[str, np.ndarray] = {}
        for layer, cache in enumerate(self.caches):
            if isinstance(cache, RecurrentLayer):
                parts = self._recurrent_parts(cache, sequence.slot, sequence.cursor)
                read = {name: self.ops.to_host(array)[at] for name, (array, at) in parts.items()}
            else:
                seen = self._seen(sequence, sequence.cursor.cache_len, layer)
                read = dict(zip("kv", self.ops.kv_read(cache, *seen), strict=True))
            arrays |= {f"{name}{layer}": np.array(values) for name, values in read.items()}
        return arrays

    def restore(self, sequence: Sequence, cache_len: int, arrays: dict[str, np.ndarray]) -> None:
        """Take what ``export`` gave, for a sequence of ``cache_len`` consumed tokens.

        Raises:
            MismatchError: an array is missing or has another shape.
        """
        lowest, pending = 0, self._pending(cache_len, arrays)
        cursor = Cursor(num_tokens=cache_len, cache_len=cache_len, pending=pending)
        for layer, cache in enumerate(self.caches):
            if isinstance(cache, RecurrentLayer):
                parts = self._recurrent_parts(cache, sequence.slot, cursor)
                for name, (array, at) in parts.items():
                    values = self.ops.to_host(array).copy()
                    self._check(f"{name}{layer}", arrays, values[at])
                    values[at] = arrays[f"{name}{layer}"]
                    self.ops.assign(array, values)
                continue
            pages, positions = self._seen(sequence, cache_len, layer)
            like = self.ops.kv_read(cache, pages, positions)
            for name, values in zip("kv", like, strict=True):
                self._check(f"{name}{layer}", arrays, values)
            k, v = (arrays[f"{name}{layer}"] for name in "kv")
            self.ops.kv_write(cache, pages, positions, k, v)
            lowest = max(lowest, int(positions[0]) if len(positions) else 0)
        sequence.high_water, sequence.lowest_kept = cache_len, lowest
        sequence.cursor = cursor

    def _pending(self, cache_len: int, arrays: dict[str, np.ndarray]) -> int:
        """The logged rows of the first recurrent layer; all have as many."""
        for layer, cache in enumerate(self.caches):
            if isinstance(cache, RecurrentLayer):
                logged = np.atleast_1d(arrays.get(f"log_decay{layer}", ()))
                return min(len(logged), cache_len, MOST_KEPT)
        return 0

    def _check(self, name: str, arrays: dict[str, np.ndarray], like: np.ndarray) -> None:
        values = arrays.get(name)
        if values is None or (values.shape, values.dtype) != (like.shape, like.dtype):
            raise MismatchError(
                f"{name} of the saved state: expected shape {like.shape} and type {like.dtype}; "
                "save the session again"
            )

    def _recurrent_parts(
        self, cache: RecurrentLayer, slot: int, cursor: Cursor
    ) -> dict[str, tuple[Array, Any]]:
        """By name what a layer has of a slot, and which part of that."""
        first = cursor.cache_len - cursor.pending
        logged = np.arange(first, cursor.cache_len) % cache.log_k.shape[1]
        return {
            "state": (cache.states[slot], cursor.live),
            "log_k": (cache.log_k[slot], logged),
            "log_delta": (cache.log_delta[slot], logged),
            "log_decay": (cache.log_decay[slot], logged),
            "log_u": (cache.log_u[slot], logged),
            "tail": (cache.tails[slot], cursor.live),
        }

    def _seen(
        self, sequence: Sequence, cache_len: int, layer: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The positions of a layer that a next row can see, behind the page of each."""
        return self.layout.seen(sequence.slot, self.windows[layer], cache_len)
