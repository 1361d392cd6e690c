"""A block drafter of the second generation: convolutions inside the block, and a selector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.train_tiny.drafter import Blocks, DFlash, DraftConfig, DraftLayer, early_first
from tools.train_tiny.layers import Linear

UNARY = 0.4
"""Weight of the loss without pair scores: they choose only among its likeliest ids."""


@dataclass(frozen=True, slots=True)
class DFlash2Config(DraftConfig):
    """Shapes.

    Args:
        conv_taps: rows that a convolution reaches over.
        conv_group: channels that share the part of a filter which depends on the row.
        rank: of the pair scores.
        top_k: candidates of a row.
    """

    window: int | None = 128
    conv_taps: int = 4
    conv_group: int = 16
    rank: int = 32
    top_k: int = 8

    def keys(self) -> dict[str, Any]:
        """The file's shapes, under ``dflash.``."""
        return DraftConfig.keys(self) | {  # a slotted dataclass is made twice: no super()
            "conv_kernel_size": self.conv_taps,
            "conv_group_size": self.conv_group,
            "selector_rank": self.rank,
            "selector_top_k": self.top_k,
        }


def filtered(x: Tensor, base: Tensor, dynamic: Tensor) -> Tensor:
    """Rows of blocks [..., L, D], each by a filter of its own over the rows up to it.

    y[r, c] = sum over taps t of (base[t, c] + dynamic[r, t, c // group]) x[r - t, c]; rows before
    the block are zero.

    Args:
        base: [taps, D].
        dynamic: [..., L, taps, D / group].
    """
    num_rows, width = x.shape[-2:]
    filters = base + dynamic.repeat_interleave(width // dynamic.shape[-1], -1)
    taps = range(min(len(base), num_rows))
    moved = [F.pad(x, (0, 0, t, 0))[..., :num_rows, :] * filters[..., t, :] for t in taps]
    return torch.stack(moved).sum(0)


def wrapped(
    h: Tensor, base: Tensor, proj: nn.Module, sublayer: Callable[[Tensor], Tensor]
) -> Tensor:
    """A sublayer between two filters, whose dynamic parts both come from its input ``h``.

    Args:
        base: [2, taps, D].
        proj: D to 2 taps D / group.
    """
    dynamic = proj(h).unflatten(-1, (*base.shape[:2], -1))
    before, behind = dynamic.unbind(-3)
    return filtered(sublayer(filtered(h, base[0], before)), base[1], behind)


class ConvLayer(DraftLayer):
    """Attention and feed-forward, each between two convolutions; what is injected meets none."""

    def __init__(self, c: DFlash2Config) -> None:
        super().__init__(c)
        filters = 2 * c.conv_taps * c.width // c.conv_group
        as_it_is = torch.zeros(2, c.conv_taps, c.width)
        as_it_is[:, 0] = 1.0
        self.attn_conv_base, self.ffn_conv_base = (nn.Parameter(as_it_is.clone()) for _ in range(2))
        self.attn_conv_proj, self.ffn_conv_proj = (
            Linear(c.width, filters, zero=True) for _ in range(2)
        )

    def attention(self, h: Tensor, blocks: Blocks) -> Tensor:
        """Between its convolutions."""
        inner = super().attention
        return wrapped(h, self.attn_conv_base, self.attn_conv_proj, lambda x: inner(x, blocks))

    def feed(self, h: Tensor) -> Tensor:
        """Between its convolutions."""
        return wrapped(h, self.ffn_conv_base, self.ffn_conv_proj, super().feed)


class DFlash2(DFlash):
    """The second generation: a row's candidates are scored behind the id drafted before.

    score = logit[i] + sum over r of predecessor[previous, r] gate[r] successor[i, r], for the
    ``top_k`` likeliest i, where the gate comes from the hidden row.
    """

    config: DFlash2Config

    def __init__(self, config: DFlash2Config) -> None:
        super().__init__(config)
        c = config
        self.selector_predecessor = nn.Embedding(c.vocab_size, c.rank)
        self.selector_successor = nn.Embedding(c.vocab_size, c.rank)
        self.selector_hidden = Linear(c.width, c.rank)
        nn.init.normal_(self.selector_predecessor.weight, std=0.5)
        nn.init.normal_(self.selector_successor.weight, std=0.02)

    def layer(self) -> DraftLayer:
        """A new one."""
        return ConvLayer(self.config)

    def pairs(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """[..., V] what each id gains behind ``previous``."""
        gated = self.selector_predecessor(previous) * self.selector_hidden(hidden)
        return F.linear(gated, self.selector_successor.weight).float()

    def loss(self, embedding: Tensor, hidden: Tensor, previous: Tensor, targets: Tensor) -> Tensor:
        """Of the scores, and of the logits that choose the candidates."""
        unary = self.unary(embedding, hidden)
        scores = unary + self.pairs(hidden, previous)
        return early_first(scores, targets) + UNARY * early_first(unary, targets)

    def choices(self, embedding: Tensor, hidden: Tensor, previous: Tensor) -> Tensor:
        """[..., V], -inf at what is no candidate."""
        unary = self.unary(embedding, hidden)
        least = unary.topk(self.config.top_k).values[..., -1:]
        scores = unary + self.pairs(hidden, previous)
        return scores.masked_fill(unary < least, -torch.inf)
