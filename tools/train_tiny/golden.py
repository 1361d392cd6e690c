"""What torch makes of a file, float32 throughout: the golden data of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tools.train_tiny.export import read
from tools.train_tiny.model import Trunk

EVERY, DRAFTS = 8, 3
"""Each so many rows are kept whole; drafts of so many tokens are made behind the later half."""


@torch.no_grad()
def drafted(trunk: Trunk, ids: Sequence[int], count: int) -> list[int]:
    """What the NextN block drafts behind ``ids``, whose last one the trunk has not consumed."""
    fed = torch.tensor([list(ids)])
    hidden, _ = trunk(fed)
    block = trunk.nextn
    x, state = block(block.enter(trunk.token_embd(fed), hidden), 0, None)
    row, found = block.leave(x[:, -1:]), list[int]()
    while True:
        token = trunk.logits(row).argmax(-1)
        found.append(int(token))
        if len(found) == count:
            return found
        both = torch.cat([row, row], 1)  # a row of ``enter`` reads the hidden row before it
        embedded = trunk.token_embd(torch.cat([token, token], 1))
        x, state = block(block.enter(embedded, both)[:, 1:], len(ids) + len(found) - 1, state)
        row = block.leave(x)


def write(path: Path, ids: Sequence[int], out: Path) -> None:
    """Write ``tokens``, the ``rows`` whose ``logits`` follow (float16), and drafts by position.

    ``drafts[i]`` follows ``tokens[: positions[i] + 1]``.
    """
    trunk = read(path)
    rows, positions = np.arange(0, len(ids), EVERY), np.arange(len(ids) // 2, len(ids))
    with torch.no_grad():
        hidden, _ = trunk(torch.tensor([list(ids)]))
        logits = trunk.logits(hidden[0, torch.from_numpy(rows)]).half().numpy()
    drafts = [drafted(trunk, ids[: int(p) + 1], DRAFTS) for p in positions]
    arrays = {"rows": rows, "logits": logits, "positions": positions, "drafts": np.array(drafts)}
    np.savez_compressed(out, tokens=np.array(ids), **arrays)
