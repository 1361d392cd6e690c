"""Tuning of the NextN block alone, on chains of its own passes over texts that the trunk wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.train_tiny.data import held_out_loss
from tools.train_tiny.model import NextN, Trunk
from tools.train_tiny.optim import Optimizer, warm_cosine
from tools.train_tiny.texts import PROMPT, Texts, read
from tools.train_tiny.train import TOLD_EVERY, WINDOW, load, loss_of, save

RATE, ADAM_RATE, WARM = 0.006, 5e-4, 20
WEIGHTS = (1.0, 0.8, 0.6)
"""Of the passes' losses; there are as many passes as drafts by default."""
FIRST = 32
"""Rows before it have too little context to learn from."""


def attend_along(
    q: Tensor, keys: list[Tensor], values: list[Tensor], trunk_keys: Tensor, trunk_values: Tensor
) -> Tensor:
    """Attention of row t in a chain that began at t - s, where s passes came before this one.

    It sees what the first pass wrote at positions up to t - s, as catch-up does with the trunk's
    hidden rows, and behind them what the chain wrote itself: at t - s + i by pass i.

    Args:
        q: [B, H, T, Dh] of pass s.
        keys, values: s of them, of passes 1 .. s.
        trunk_keys, trunk_values: of pass 0.

    Returns:
        [B, H, T, Dh]. Rows before s are of no chain.
    """
    num_rows, passes, scale = q.shape[2], len(keys), q.shape[-1] ** -0.5
    seen = torch.ones(num_rows, num_rows, dtype=torch.bool).tril(-passes)
    scores = (q @ trunk_keys.transpose(-1, -2)).float() * scale
    scores = scores.masked_fill(~seen, -1e30)
    keys, values = (
        [F.pad(one, (0, 0, passes - i, 0))[:, :, :num_rows] for i, one in enumerate(each, 1)]
        for each in (keys, values)
    )
    own = [(q.float() * key.float()).sum(-1, keepdim=True) * scale for key in keys]
    shares = torch.cat([scores, *own], -1).softmax(-1)
    o = shares[..., :num_rows].to(trunk_values) @ trunk_values
    for i, value in enumerate(values):
        o = o + shares[..., num_rows + i, None] * value
    return o


def chain(block: NextN, embedded: Tensor, hidden: Tensor, passes: int) -> list[Tensor]:
    """The hidden rows of so many passes, each over the one before; the tokens are the text's.

    Row t of pass s is that of a chain which began at t - s with the trunk's hidden row, and
    predicts token t + 1. With the text's tokens that is the chain itself up to its first miss.
    """
    c, found = block.config, [hidden]
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for _ in range(passes):
        x = block.enter(embedded, found[-1])
        q, k, v, gate = block.project(block.attn_norm(x), 0)
        k, v = (one.repeat_interleave(c.heads // c.kv_heads, 1) for one in (k, v))
        keys.append(k)
        values.append(v)
        o = attend_along(q, keys[1:], values[1:], keys[0], values[0])
        o = o.transpose(1, 2).flatten(2) * gate.sigmoid()
        found.append(block.leave(block.feed(x + block.attn_output(o))))
    return found[1:]


@torch.no_grad()
def accepted(trunk: Trunk, texts: Texts, passes: int) -> list[float]:
    """By pass: the share of chains that are right so far, over texts that the trunk wrote."""
    kept = torch.zeros(passes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(0, len(texts.ids), 16):
            ids, hidden, _ = texts.of(slice(i, i + 16))
            fed, targets = ids[:, :-1], ids[:, 1:]
            rows = chain(trunk.nextn, trunk.token_embd(fed), hidden.float(), passes)
            chains = targets.shape[1] - passes - PROMPT
            hits = [
                (trunk.logits(one).argmax(-1) == targets)[:, PROMPT + s : PROMPT + s + chains]
                for s, one in enumerate(rows)
            ]
            kept += torch.stack(hits).float().cumprod(0).mean((1, 2)) * len(fed)
    return [round(float(value), 3) for value in kept / len(texts.ids)]


def chain_loss(trunk: Trunk, texts: Texts) -> Tensor:
    """The weighted sum of the passes' losses over texts and the trunk's hidden rows."""
    fed, targets = texts.ids[:, :-1], texts.ids[:, 1:]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = chain(trunk.nextn, trunk.token_embd(fed), texts.hidden.float(), len(WEIGHTS))
        losses = [
            weight * loss_of(trunk, one[:, FIRST + s :], targets[:, FIRST + s :])
            for s, (weight, one) in enumerate(zip(WEIGHTS, rows, strict=True))
        ]
    return torch.stack(losses).sum()


def tune(
    work: Path,
    *,
    steps: int,
    batch: int = 8,
    seed: int = 0,
    held: int | None = None,
    told: Callable[[str], None] = print,
) -> Trunk:
    """Tune the block of ``trunk.pt`` on ``texts.pt``, and write ``trunk.pt`` again.

    Args:
        work: where ``texts.write`` wrote.
        seed: of the order.
        held: held-out windows of a kind that are measured at the end; None: all.
        told: hears of losses, and of acceptance before and after.
    """
    torch.manual_seed(seed)
    trunk, about = load(work)
    trunk.requires_grad_(False)
    trunk.nextn.requires_grad_(True)
    texts, unseen = read(work / "texts.pt"), read(work / "held_texts.pt")
    about["accepted_before"] = accepted(trunk, unseen, len(WEIGHTS))
    told(f"accepted before, by draft: {about['accepted_before']}")
    optimizer = Optimizer(trunk, RATE, ADAM_RATE, weight_decay=0.0)
    order = torch.randperm(len(texts.ids))
    for step in range(steps):
        picked = order[torch.arange(step * batch, (step + 1) * batch) % len(order)]
        loss = chain_loss(trunk, texts.of(picked))
        loss.backward()
        optimizer.step(warm_cosine(step, step / steps, WARM, 0.0))
        if (step + 1) % TOLD_EVERY == 0:
            told(f"step {step + 1} of {steps}: loss {loss.item():.4f}")
    about["accepted_after"] = accepted(trunk, unseen, len(WEIGHTS))
    told(f"accepted after, by draft: {about['accepted_after']}")
    about |= {"tuned": steps, "held_out": held_out_loss(trunk, work, WINDOW, held)}
    save(trunk, work, about)
    return trunk
