"""Texts that the trunk writes: what the NextN block is tuned on."""

from __future__ import annotations

from pathlib import Path

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
def continued(trunk: Trunk, ids: Tensor, new: int, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    """Continue each row; at temperature 0 greedily.

    Args:
        ids: [B, P].
        temperatures: [B].

    Returns:
        ids [B, P + new], and the trunk's hidden rows [B, P + new - 1, D] float16: the last token
        is never fed.
    """
    warm = temperatures > 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, states = trunk(ids)
        rows, last = [hidden.half()], ids.shape[1] + new - 1
        for t in range(ids.shape[1], last + 1):
            logits = trunk.logits(hidden[:, -1])
            scores = logits / torch.where(warm, temperatures, 1.0)[:, None]
            gumbel = -torch.empty_like(scores).exponential_().log()
            token = torch.where(warm[:, None], scores + gumbel, logits).argmax(-1, keepdim=True)
            ids = torch.cat([ids, token], 1)
            if t < last:
                hidden, states = trunk(token, states, t)
                rows.append(hidden.half())
    return ids, torch.cat(rows, 1)


def write(work: Path, *, batches: int, batch: int, held: int = HELD, seed: int = 0) -> None:
    """Write ``texts.pt``, and of ``held`` held-out prompts ``held_texts.pt``: ids, hidden rows."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    trunk, _ = load(work)
    cold = torch.zeros(held)
    save(work / "held_texts.pt", [continued(trunk, prompts(work, "held", held, random), NEW, cold)])
    warmth = torch.where(torch.arange(batch) % 10 < 10 * GREEDY, 0.0, WARMTH)
    found = []
    for _ in range(batches):
        found.append(continued(trunk, prompts(work, "train", batch, random), NEW, warmth))
    save(work / "texts.pt", found)


def save(path: Path, found: list[tuple[Tensor, Tensor]]) -> None:
    """Write ids and hidden rows of several batches as one."""
    ids, hidden = (torch.cat(parts) for parts in zip(*found, strict=True))
    torch.save({"ids": ids, "hidden": hidden}, path)


def read(path: Path) -> tuple[Tensor, Tensor]:
    """What ``save`` wrote."""
    content = torch.load(path, weights_only=True)
    return content["ids"], content["hidden"]
