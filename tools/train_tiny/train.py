"""Training of the trunk and its NextN block, together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.train_tiny.data import Sampler, held_out_loss
from tools.train_tiny.model import Config, Trunk
from tools.train_tiny.optim import Optimizer, warm_cosine

RATE, ADAM_RATE, WEIGHT_DECAY = 0.015, 2e-3, 0.05
NEXTN_WEIGHT = 0.3
WARM, FLOOR = 40, 0.02
TOLD_EVERY = 20
WINDOW = 512


def loss_of(trunk: Trunk, hidden: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy, nats per token."""
    return F.cross_entropy(trunk.logits(hidden).flatten(0, -2), targets.flatten())


def train(
    work: Path,
    config: Config,
    *,
    steps: int,
    batch: int = 8,
    length: int = WINDOW,
    seed: int = 0,
    held: int | None = None,
    told: Callable[[str], None] = print,
) -> Trunk:
    """Train from scratch, and write ``trunk.pt``.

    Args:
        work: where ``corpus.build`` wrote.
        batch, length: windows of a step, and tokens of a window.
        seed: of the weights and of the order of the windows.
        held: held-out windows of a kind that are measured at the end; None: all.
        told: hears of the loss.
    """
    torch.manual_seed(seed)
    trunk = Trunk(config)
    optimizer = Optimizer(trunk, RATE, ADAM_RATE, WEIGHT_DECAY)
    sampler = Sampler(work, length, seed)
    for step in range(steps):
        windows = sampler.batch(batch, step / steps)
        fed, targets = windows[:, :-1], windows[:, 1:]
        half = slice(step % 2, None, 2)  # of the windows, for the NextN block
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden, _ = trunk(fed)
            loss = loss_of(trunk, hidden, targets)
            drafted = trunk.drafted(fed[half], hidden[half])
            nextn = loss_of(trunk, drafted, targets[half])
        (loss + NEXTN_WEIGHT * nextn).backward()
        optimizer.step(warm_cosine(step, step / steps, WARM, FLOOR))
        if (step + 1) % TOLD_EVERY == 0:
            told(f"step {step + 1} of {steps}: loss {loss.item():.4f}, NextN {nextn.item():.4f}")
    save(trunk, work, {"steps": steps, "held_out": held_out_loss(trunk, work, length, held)})
    return trunk


def save(trunk: Trunk, work: Path, about: dict[str, Any]) -> None:
    """Write ``trunk.pt``: shapes, weights, and what is known of the training."""
    content = {"config": asdict(trunk.config), "weights": trunk.state_dict(), "about": about}
    torch.save(content, work / "trunk.pt")


def load(work: Path) -> tuple[Trunk, dict[str, Any]]:
    """What ``save`` wrote."""
    content = torch.load(work / "trunk.pt", weights_only=True)
    trunk = Trunk(Config(**content["config"]))
    trunk.load_state_dict(content["weights"])
    return trunk, content["about"]
