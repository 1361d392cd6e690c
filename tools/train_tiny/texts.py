"""Texts that the trunk writes: what the NextN block is tuned on, and block drafters learn from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tools.train_tiny.data import ids_of
from tools.train_tiny.model import Trunk
from tools.train_tiny.train import load

PROMPT, NEW = 96, 192
"""Tokens of a prompt from the corpus, and of its continuation."""
WARMTH, GREEDY = 0.7, 0.6
"""The temperature of those that are not greedy, and the share of those that are."""
LIBRARY = 0.6
"""Share of the prompts that are code, where there is documentation too."""
HELD = 64
TAPS = (1, 3, 5)
"""The residuals entering these layers are kept, for block drafters."""


class Texts(NamedTuple):
    """Texts, and what the trunk made of all their tokens but the last, which is never fed.

    Args:
        ids: [B, T].
        hidden: [B, T - 1, D] float16, after the final norm.
        taps: [B, T - 1, taps D] float16, residuals beside each other.
    """

    ids: Tensor
    hidden: Tensor
    taps: Tensor

    def of(self, rows: slice | Tensor | list[int]) -> Texts:
        """Some of them."""
        return Texts(*(part[rows] for part in self))


def prompts(work: Path, part: str, count: int, random: np.random.Generator) -> Tensor:
    """[count, PROMPT] ids from anywhere in the corpus."""
    ids = ids_of(work, part, PROMPT)
    ids.pop("test", None)
    rows = []
    for _ in range(count):
        kind = "lib" if "doc" not in ids or random.random() < LIBRARY else "doc"
        start = int(random.integers(len(ids[kind]) - PROMPT))
        rows.append(ids[kind][start : start + PROMPT])
    return torch.from_numpy(np.stack(rows))


@torch.no_grad()
def continued(
    trunk: Trunk, ids: Tensor, new: int, temperatures: Tensor, taps: Sequence[int] = TAPS
) -> Texts:
    """Continue each row by ``new`` tokens; at temperature 0 greedily.

    Args:
        ids: [B, P].
        temperatures: [B].
        taps: layers whose residuals are kept.
    """
    warm, rows = temperatures > 0, []
    fed, start, states = ids, 0, None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for t in range(ids.shape[1], ids.shape[1] + new):
            residuals, states = trunk.residuals(fed, states, start)
            hidden = trunk.output_norm(residuals[-1])
            rows.append(torch.cat([*(residuals[i] for i in taps), hidden], -1).half())
            logits = trunk.logits(hidden[:, -1])
            scores = logits / torch.where(warm, temperatures, 1.0)[:, None]
            gumbel = -torch.empty_like(scores).exponential_().log()
            fed = torch.where(warm[:, None], scores + gumbel, logits).argmax(-1, keepdim=True)
            ids, start = torch.cat([ids, fed], 1), t
    width = trunk.config.width
    tapped, hidden = torch.cat(rows, 1).split([len(taps) * width, width], -1)
    return Texts(ids, hidden, tapped)


def write(
    work: Path,
    *,
    batches: int,
    batch: int,
    held: int = HELD,
    taps: Sequence[int] = TAPS,
    seed: int = 0,
) -> None:
    """Write ``texts.pt``, and of ``held`` held-out prompts ``held_texts.pt``."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    trunk, _ = load(work)
    unseen = prompts(work, "held", held, random)
    save(work / "held_texts.pt", [continued(trunk, unseen, NEW, torch.zeros(held), taps)])
    warmth = torch.where(torch.arange(batch) % 10 < 10 * GREEDY, 0.0, WARMTH)
    found = []
    for _ in range(batches):
        seen = prompts(work, "train", batch, random)
        found.append(continued(trunk, seen, NEW, warmth, taps))
    save(work / "texts.pt", found)


def save(path: Path, found: list[Texts]) -> None:
    """Write several batches as one."""
    parts = zip(*found, strict=True)
    torch.save({n: torch.cat(p) for n, p in zip(Texts._fields, parts, strict=True)}, path)


def read(path: Path) -> Texts:
    """What ``save`` wrote; its bytes are read when they are used, for there may be 2 GB of them."""
    return Texts(**torch.load(path, weights_only=True, mmap=True))
