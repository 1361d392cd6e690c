"""Training of a block drafter on texts that the trunk wrote, beside a trunk that does not move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.train_tiny.dflash2 import DFlash2, DFlash2Config
from tools.train_tiny.drafter import DFlash, DraftConfig
from tools.train_tiny.dspark import DSpark, DSparkConfig
from tools.train_tiny.model import Trunk
from tools.train_tiny.optim import Optimizer, shares_done, warm_cosine
from tools.train_tiny.texts import PROMPT, Texts, read
from tools.train_tiny.train import TOLD_EVERY
from tools.train_tiny.train import load as load_trunk

KINDS: dict[str, tuple[type[DFlash], type[DraftConfig]]] = {
    "dflash": (DFlash, DraftConfig),
    "dflash2": (DFlash2, DFlash2Config),
    "dspark": (DSpark, DSparkConfig),
}
RATE, ADAM_RATE, WEIGHT_DECAY = 0.012, 2e-3, 0.05
WARM, FLOOR = 30, 0.02
BLOCKS = 32
"""Whole blocks of a text in a step; shorter ones are more, so that as many rows are drafted."""
FIRST = 40
"""Positions before it have too little context to learn from."""
EVERY = 4
"""Acceptance is measured of a block at each so many positions of what the trunk wrote."""
START = 0.3
"""Of the trunk's final norm: the mask's embedding, with which all rows but one begin, points at
never trained rows of the LM head, so that logits would be large and wrong."""


def new(kind: str, config: DraftConfig, trunk: Trunk) -> DFlash:
    """A drafter to be trained for ``trunk``."""
    drafter = KINDS[kind][0](config)
    with torch.no_grad():
        drafter.output_norm.weight.copy_(START * trunk.output_norm.weight)
    return drafter


def drafted_targets(ids: Tensor, anchors: Tensor, drafts: int) -> tuple[Tensor, Tensor]:
    """The tokens before the drafted ones, and these: [B, A, drafts] each."""
    at = anchors[..., None] + torch.arange(drafts + 1)
    tokens = ids.gather(1, at.flatten(1)).view(at.shape)
    return tokens[..., :-1], tokens[..., 1:]


def some_blocks(block_size: int, batch: int, length: int) -> tuple[Tensor, int]:
    """Anchors [batch, A] at random in texts of ``length``, and rows of their blocks.

    A runtime may shorten the block: of the steps a third have one row less, a sixth have half.
    """
    lengths = (*[block_size] * 3, *[block_size - 1] * 2, block_size // 2)
    num_rows = lengths[int(torch.randint(len(lengths), ()))]
    places = torch.rand(batch, length - FIRST - num_rows - 1).argsort(1)
    return FIRST + places[:, : BLOCKS * block_size // num_rows], num_rows


def loss_of(drafter: DFlash, trunk: Trunk, texts: Texts, anchors: Tensor, num_rows: int) -> Tensor:
    """Of blocks of ``num_rows`` that begin at ``anchors`` [B, A]."""
    embedding = trunk.token_embd.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = drafter(embedding, texts.ids, texts.taps.float(), anchors, num_rows)
        previous, targets = drafted_targets(texts.ids, anchors, hidden.shape[2])
        return drafter.loss(embedding, hidden, previous, targets)


@torch.no_grad()
def accepted(drafter: DFlash, trunk: Trunk, texts: Texts) -> list[float]:
    """By draft of a whole block: the share of blocks that are right so far."""
    embedding, num_rows = trunk.token_embd.weight, drafter.config.block_size
    anchors = torch.arange(PROMPT, texts.ids.shape[1] - num_rows - 1, EVERY)[None]
    kept = torch.zeros(num_rows - drafter.first)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(len(texts.ids)):
            ids, _, taps = texts.of([i])
            hidden = drafter(embedding, ids, taps.float(), anchors, num_rows)
            drafts = drafter.draft(embedding, hidden, ids.gather(1, anchors))
            _, targets = drafted_targets(ids, anchors, drafts.shape[2])
            kept += (drafts == targets).float().cumprod(-1).mean((0, 1))
    return [round(float(value), 3) for value in kept / len(texts.ids)]


def train(
    work: Path,
    kind: str,
    config: DraftConfig,
    *,
    steps: int,
    minutes: float | None = None,
    batch: int = 16,
    seed: int = 0,
    told: Callable[[str], None] = print,
) -> DFlash:
    """Train from scratch on ``texts.pt``, and write ``<kind>.pt``.

    Args:
        work: where ``texts.write`` wrote.
        kind: a key of ``KINDS``.
        minutes: train so long instead of ``steps``; then no run repeats another.
        batch: texts of a step.
        seed: of weights, order, block lengths and anchors.
        told: hears of losses, and of acceptance at the end.
    """
    torch.manual_seed(seed)
    trunk, _ = load_trunk(work)
    trunk.requires_grad_(False)
    drafter, texts = new(kind, config, trunk), read(work / "texts.pt")
    optimizer = Optimizer(drafter, RATE, ADAM_RATE, WEIGHT_DECAY)
    order = torch.randperm(len(texts.ids))
    for step, share in enumerate(shares_done(steps, minutes), 1):
        picked = order[torch.arange((step - 1) * batch, step * batch) % len(order)]
        anchors, num_rows = some_blocks(config.block_size, batch, texts.ids.shape[1])
        loss = loss_of(drafter, trunk, texts.of(picked), anchors, num_rows)
        loss.backward()
        optimizer.step(warm_cosine(step - 1, share, WARM, FLOOR))
        if step % TOLD_EVERY == 0:
            told(f"step {step}, {share:.0%}: loss {loss.item():.4f} of {num_rows} rows")
    found = accepted(drafter, trunk, read(work / "held_texts.pt"))
    told(f"accepted, by draft: {found}")
    save(drafter, work, kind, {"steps": step, "accepted": found})
    return drafter


def save(drafter: DFlash, work: Path, kind: str, about: dict[str, Any]) -> None:
    """Write ``<kind>.pt``: shapes, weights, and what is known of the training."""
    content = {"config": asdict(drafter.config), "weights": drafter.state_dict(), "about": about}
    torch.save(content, work / f"{kind}.pt")


def load(work: Path, kind: str) -> tuple[DFlash, dict[str, Any]]:
    """What ``save`` wrote."""
    content = torch.load(work / f"{kind}.pt", weights_only=True)
    module, config = KINDS[kind]
    drafter = module(config(**content["config"]))
    drafter.load_state_dict(content["weights"])
    return drafter, content["about"]
