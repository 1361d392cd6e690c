"""A block drafter (architecture ``dflash``) of the first generation, and what all kinds share.

Modules and parameters are named as the tensors of the file, so a state dict is the list of them.
Embedding and LM head are the trunk's, and one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.train_tiny.layers import Linear, RMSNorm, rope

AUTHORITY = 4.0
"""So many rows further the loss counts 1 / e as much: what is drafted behind a miss is lost."""


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """Shapes; the defaults fit the embedded trunk.

    Args:
        target_layers: the trunk's residuals entering these layers are what is injected.
        window: what a row sees of the positions before it; None: all.
    """

    vocab_size: int = 4096
    width: int = 256
    num_layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rope_base: float = 10000.0
    ffn: int = 768
    block_size: int = 8
    target_layers: tuple[int, ...] = (1, 3, 5)
    window: int | None = None
    context: int = 2048
    eps: float = 1e-6

    @property
    def mask(self) -> int:
        """The id that stands where a token is to be drafted: the last of the special ones."""
        return self.vocab_size - 1

    def keys(self) -> dict[str, Any]:
        """The file's shapes, under ``dflash.``."""
        found = {
            "context_length": self.context,
            "embedding_length": self.width,
            "block_count": self.num_layers,
            "feed_forward_length": self.ffn,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": self.eps,
            "attention.causal": False,
            "rope.dimension_count": self.head_dim,
            "rope.dimension_sections": [self.head_dim // 2, 0, 0, 0],
            "rope.freq_base": self.rope_base,
            "block_size": self.block_size,
            "target_layers": list(self.target_layers),
        }
        if self.window is not None:
            found["attention.sliding_window"] = self.window
            found["attention.sliding_window_pattern"] = [True] * self.num_layers
        return found


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where blocks stand, and what stands before them.

    Args:
        positions: [B, A, L] of the blocks' rows.
        injected: [B, T, D] what keys and values of the positions 0 .. T - 1 are made of.
        seen: [B, A, 1 or L, T] which of those a row sees; it sees all rows of its own block.
    """

    positions: Tensor
    injected: Tensor
    seen: Tensor


class DraftLayer(nn.Module):
    """x += attention(rms(x)); x += swiglu(rms(x)), over rows of blocks [B, A, L, D]."""

    def __init__(self, c: DraftConfig) -> None:
        super().__init__()
        self.config = c
        self.attn_norm, self.ffn_norm = (RMSNorm(c.width, c.eps) for _ in range(2))
        self.attn_q = Linear(c.width, c.heads * c.head_dim)
        self.attn_k, self.attn_v = (Linear(c.width, c.kv_heads * c.head_dim) for _ in range(2))
        self.attn_output = Linear(c.heads * c.head_dim, c.width)
        self.attn_q_norm, self.attn_k_norm = (RMSNorm(c.head_dim, c.eps) for _ in range(2))
        self.ffn_gate, self.ffn_up = Linear(c.width, c.ffn), Linear(c.width, c.ffn)
        self.ffn_down = Linear(c.ffn, c.width)

    def forward(self, x: Tensor, blocks: Blocks) -> Tensor:
        """[B, A, L, D] through the layer."""
        x = x + self.attention(self.attn_norm(x), blocks)
        return x + self.feed(self.ffn_norm(x))

    def heads(self, x: Tensor, norm: RMSNorm, positions: Tensor) -> Tensor:
        """[..., rows, H Dh], rows at positions [..., rows], to turned [..., H, rows, Dh]."""
        c = self.config
        turned = norm(x.unflatten(-1, (-1, c.head_dim))).transpose(-3, -2)
        return rope(turned, positions[..., None, :], c.head_dim, c.rope_base)

    def keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Both [..., Hkv, rows, Dh]; of injected rows as of a block's own."""
        values = self.attn_v(x).unflatten(-1, (-1, self.config.head_dim)).transpose(-3, -2)
        return self.heads(self.attn_k(x), self.attn_k_norm, positions), values

    def attention(self, h: Tensor, blocks: Blocks) -> Tensor:
        """Of normed rows over what was injected before their block, and over all of the block."""
        c = self.config
        q = self.heads(self.attn_q(h), self.attn_q_norm, blocks.positions)
        q = q.unflatten(2, (c.kv_heads, -1)) * c.head_dim**-0.5
        num_rows = blocks.injected.shape[1]
        before, before_v = self.keys_values(blocks.injected, torch.arange(num_rows))
        own, own_v = self.keys_values(h, blocks.positions)
        scores = torch.einsum("bakgld,bktd->bakglt", q, before).float()
        scores = scores.masked_fill(~blocks.seen[:, :, None, None], -torch.inf)
        own_scores = torch.einsum("bakgld,bakmd->bakglm", q, own).float()
        shares = torch.cat([scores, own_scores], -1).softmax(-1)
        o = torch.einsum("bakglt,bktd->bakgld", shares[..., :num_rows], before_v)
        o = o + torch.einsum("bakglm,bakmd->bakgld", shares[..., num_rows:], own_v)
        return self.attn_output(o.flatten(2, 3).transpose(2, 3).flatten(3))

    def feed(self, h: Tensor) -> Tensor:
        """swiglu of normed rows."""
        return self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class DFlash(nn.Module):
    """The first generation: each row's likeliest id, whatever stands in the rows before it.

    A block is the last token and masks, at the next positions. Tensors of hidden rows are those
    that draft, ``embedding`` [V, D] is the trunk's, ``previous`` the token before the drafted one.
    """

    first: ClassVar[int] = 1
    """The row of a block that drafts the first token; that before it is the last token's."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = c = config
        self.fc = Linear(len(c.target_layers) * c.width, c.width)
        self.enc = nn.ModuleDict({"output_norm": RMSNorm(c.width, c.eps)})
        self.blk = nn.ModuleList(self.layer() for _ in range(c.num_layers))
        self.output_norm = RMSNorm(c.width, c.eps)

    def layer(self) -> DraftLayer:
        """A new one."""
        return DraftLayer(self.config)

    def forward(
        self, embedding: Tensor, ids: Tensor, taps: Tensor, anchors: Tensor, num_rows: int
    ) -> Tensor:
        """Hidden rows that draft, of blocks of ``num_rows``, after the final norm.

        Args:
            ids: [B, T] of texts.
            taps: [B, T or T - 1, len(target_layers) D] the trunk's residuals.
            anchors: [B, A] positions of the blocks' first tokens in their texts.

        Returns:
            [B, A, num_rows - first, D].
        """
        c = self.config
        tokens = torch.full((*anchors.shape, num_rows), c.mask)
        tokens[..., 0] = ids.gather(1, anchors)
        positions = anchors[..., None] + torch.arange(num_rows)
        before = torch.arange(taps.shape[1])
        seen = before < anchors[..., None, None]
        if c.window is not None:
            seen = seen & (positions[..., None] - before < c.window)
        blocks = Blocks(positions, self.enc["output_norm"](self.fc(taps)), seen)
        x = F.embedding(tokens, embedding)
        for layer in self.blk:
            x = layer(x, blocks)
        return self.output_norm(x)[:, :, self.first :]

    def unary(self, embedding: Tensor, hidden: Tensor) -> Tensor:
        """[..., V] float32, of the rows alone."""
        return F.linear(hidden, embedding).float()

    def loss(self, embedding: Tensor, hidden: Tensor, previous: Tensor, targets: Tensor) -> Tensor:
        """What training lowers."""
        return early_first(self.unary(embedding, hidden), targets)

    def choices(self, embedding: Tensor, hidden: Tensor, previous: Tensor) -> Tensor:
        """[..., V] the scores whose highest is drafted."""
        return self.unary(embedding, hidden)

    @torch.no_grad()
    def draft(self, embedding: Tensor, hidden: Tensor, last: Tensor) -> Tensor:
        """What a runtime drafts greedily: [..., rows, D] behind tokens [...] to ids [..., rows]."""
        drafted = []
        for row in hidden.unbind(-2):
            last = self.choices(embedding, row, last).argmax(-1)
            drafted.append(last)
        return torch.stack(drafted, -1)


def early_first(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of rows [..., rows, V], those that draft first counting most."""
    weights = torch.exp(-torch.arange(targets.shape[-1]) / AUTHORITY).expand(targets.shape)
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()
