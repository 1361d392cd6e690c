"""Windows of the corpus, and the held-out loss over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tools.train_tiny.corpus import KINDS
from tools.train_tiny.model import Trunk

MIX = {"lib": 0.48, "doc": 0.28, "test": 0.24}
LAST_MIX = {"lib": 0.62, "doc": 0.36, "test": 0.02}
"""Tests are many and alike: they are left out of the last part of training."""
LAST_PART = 0.7


def ids_of(work: Path, part: str, length: int) -> dict[str, np.ndarray]:
    """The ids by kind, of those kinds that fill a window."""
    found = {kind: np.load(work / f"{part}_{kind}.npy").astype(np.int64) for kind in KINDS}
    return {kind: ids for kind, ids in found.items() if len(ids) > 2 * length}


class Sampler:
    """Windows at random; none comes twice before its kind has been walked through.

    Args:
        work: where ``corpus.build`` wrote.
        length: tokens of a window that are fed.
        seed: of the order.
    """

    def __init__(self, work: Path, length: int, seed: int) -> None:
        self._random, self._length = np.random.default_rng(seed), length
        self._ids = ids_of(work, "train", length)
        self._left: dict[str, list[int]] = {kind: [] for kind in self._ids}

    def batch(self, count: int, done: float) -> Tensor:
        """[count, length + 1] ids; ``done`` is the share of training that is over."""
        mix = MIX if done < LAST_PART else LAST_MIX
        shares = np.array([mix[kind] for kind in self._ids])
        kinds = self._random.choice(list(self._ids), size=count, p=shares / shares.sum())
        return torch.from_numpy(np.stack([self._window(str(kind)) for kind in kinds]))

    def _window(self, kind: str) -> np.ndarray:
        ids, left = self._ids[kind], self._left[kind]
        if not left:
            phase = int(self._random.integers(self._length))
            left += range(phase, len(ids) - self._length, self._length)
            self._random.shuffle(left)
        start = left.pop()
        return ids[start : start + self._length + 1]


def held_windows(ids: np.ndarray, length: int, most: int | None, batch: int) -> Iterator[Tensor]:
    """Windows next to each other, evenly thinned to ``most`` of them."""
    count = (len(ids) - 1) // length
    picked = np.arange(count) if most is None else np.linspace(0, count - 1, min(most, count))
    windows = [ids[int(i) * length : int(i) * length + length + 1] for i in picked]
    for i in range(0, len(windows), batch):
        yield torch.from_numpy(np.stack(windows[i : i + batch]))


@torch.no_grad()
def held_out_loss(
    trunk: Trunk, work: Path, length: int, most: int | None = None, batch: int = 8
) -> dict[str, dict[str, float]]:
    """By kind: nats per token of the trunk and of the NextN block, and how often both agree."""
    found = {}
    for kind, ids in ids_of(work, "held", length).items():
        sums, count = np.zeros(3), 0
        for window in held_windows(ids, length, most, batch):
            fed, targets = window[:, :-1], window[:, 1:].flatten()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden, _ = trunk(fed)
                rows = (hidden, trunk.drafted(fed, hidden))
                own, drafted = (trunk.logits(one).flatten(0, 1) for one in rows)
            losses = [F.cross_entropy(one, targets, reduction="sum") for one in (own, drafted)]
            agree = (own.argmax(-1) == drafted.argmax(-1)).sum()
            sums += [float(one) for one in (*losses, agree)]
            count += targets.numel()
        values = (float(value) for value in sums / count)
        names = ("loss", "nextn_loss", "nextn_agrees")
        found[kind] = dict(zip(names, values, strict=True)) | {"tokens": count}
    return found
