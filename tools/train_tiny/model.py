"""The trunk (architecture ``qwen35``, dense) with one NextN block.

Modules and parameters are named as the tensors of the file, so a state dict is the list of them;
only ``ssm_a`` is trained as the logarithm of what it takes off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.train_tiny.delta import delta_chunks, delta_rows
from tools.train_tiny.layers import Bias, Conv, Linear, RMSNorm, rope

State = tuple[Tensor, Tensor]
"""Of attention: keys and values [B, Hkv, S, Dh]. Of a delta layer: conv rows, and the state."""


@dataclass(frozen=True, slots=True)
class Config:
    """Shapes; the defaults are the embedded model's.

    Args:
        num_layers: without the NextN block.
        interval: every ``interval``-th layer has full attention, the others are recurrent.
    """

    vocab_size: int = 4096
    width: int = 256
    num_layers: int = 6
    interval: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    num_rot: int = 32
    rope_sections: tuple[int, ...] = (6, 5, 5, 0)
    rope_base: float = 10000.0
    ffn: int = 512
    state_dim: int = 64
    key_heads: int = 2
    value_heads: int = 4
    conv_taps: int = 4
    context: int = 2048
    eps: float = 1e-6

    def is_recurrent(self, layer: int) -> bool:
        """Whether a layer of the trunk is a gated delta layer."""
        return (layer + 1) % self.interval != 0


class Block(nn.Module):
    """x += mixer(rms(x)); x += swiglu(rms(x))."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.attn_norm = RMSNorm(c.width, c.eps)
        self.post_attention_norm = RMSNorm(c.width, c.eps)
        self.ffn_gate, self.ffn_up = Linear(c.width, c.ffn), Linear(c.width, c.ffn)
        self.ffn_down = Linear(c.ffn, c.width, zero=True)

    def mix(self, x: Tensor, start: int, state: State | None) -> tuple[Tensor, State]:
        """The mixer of normed rows [B, T, D] at positions from ``start`` on, behind a state."""
        raise NotImplementedError

    def feed(self, x: Tensor) -> Tensor:
        """x + swiglu(rms(x))."""
        h = self.post_attention_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def forward(self, x: Tensor, start: int, state: State | None) -> tuple[Tensor, State]:
        """[B, T, D] through the block; the state goes on behind the last row."""
        mixed, state = self.mix(self.attn_norm(x), start, state)
        return self.feed(x + mixed), state


class DeltaBlock(Block):
    """Convolution, the gated delta rule, a gated norm; value head h reads key head h % Hk."""

    def __init__(self, c: Config) -> None:
        super().__init__(c)
        keys, values = c.key_heads * c.state_dim, c.value_heads * c.state_dim
        self.attn_qkv = Linear(c.width, 2 * keys + values)
        self.attn_gate = Linear(c.width, values)
        self.ssm_alpha, self.ssm_beta = (Linear(c.width, c.value_heads) for _ in range(2))
        self.ssm_conv1d = Conv(2 * keys + values, c.conv_taps)
        self.ssm_a = nn.Parameter(torch.linspace(0.5, 4.0, c.value_heads).log())  # log of -a
        steps = torch.linspace(-4.5, -1.5, c.value_heads).exp()
        self.ssm_dt = Bias(steps + torch.log(-torch.expm1(-steps)))  # softplus gives the steps
        self.ssm_norm = RMSNorm(c.state_dim, c.eps)
        self.ssm_out = Linear(values, c.width, zero=True)

    def mix(self, x: Tensor, start: int, state: State | None) -> tuple[Tensor, State]:
        c = self.config
        batch, num_rows, _ = x.shape
        qkv = self.attn_qkv(x).float()
        if state is None:
            empty = (batch, c.value_heads, c.state_dim, c.state_dim)
            state = (qkv.new_zeros(batch, c.conv_taps - 1, qkv.shape[2]), qkv.new_zeros(empty))
        qkv = torch.cat([state[0], qkv], dim=1)
        heads = F.silu(self.ssm_conv1d(qkv)).unflatten(2, (-1, c.state_dim)).transpose(1, 2)
        qk, v = heads.split([2 * c.key_heads, c.value_heads], dim=1)
        qk = F.rms_norm(qk, (c.state_dim,), None, c.eps / c.state_dim) * c.state_dim**-0.5
        repeats = c.value_heads // c.key_heads
        q, k = (part.repeat(1, repeats, 1, 1) for part in qk.split(c.key_heads, dim=1))
        g = -self.ssm_a.exp() * F.softplus(self.ssm_alpha(x) + self.ssm_dt.bias)
        beta = self.ssm_beta(x).sigmoid()
        g, beta = (one.float().transpose(1, 2) for one in (g, beta))
        rule = delta_rows if num_rows == 1 else delta_chunks
        o, after = rule(q, k, v, g, beta, state[1])
        z = self.attn_gate(x).unflatten(2, (-1, c.state_dim))
        o = self.ssm_norm(o.transpose(1, 2)) * F.silu(z)
        return self.ssm_out(o.flatten(2)), (qkv[:, 1 - c.conv_taps :], after)


class AttentionBlock(Block):
    """Full attention; ``attn_q`` holds q and an output gate, head by head."""

    def __init__(self, c: Config) -> None:
        super().__init__(c)
        self.attn_q = Linear(c.width, c.heads * c.head_dim * 2)
        self.attn_k, self.attn_v = (Linear(c.width, c.kv_heads * c.head_dim) for _ in range(2))
        self.attn_output = Linear(c.heads * c.head_dim, c.width, zero=True)
        self.attn_q_norm, self.attn_k_norm = (RMSNorm(c.head_dim, c.eps) for _ in range(2))

    def project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q [B, H, T, Dh], k and v [B, Hkv, T, Dh], turned, and the gate [B, T, H Dh]."""
        c = self.config
        q, gate = self.attn_q(x).unflatten(2, (c.heads, 2, c.head_dim)).unbind(3)
        k, v = (p(x).unflatten(2, (c.kv_heads, c.head_dim)) for p in (self.attn_k, self.attn_v))
        positions = torch.arange(start, start + x.shape[1])
        q, k = (
            rope(norm(one).transpose(1, 2), positions, c.num_rot, c.rope_base)
            for norm, one in ((self.attn_q_norm, q), (self.attn_k_norm, k))
        )
        return q, k, v.transpose(1, 2), gate.flatten(2)

    def mix(self, x: Tensor, start: int, state: State | None) -> tuple[Tensor, State]:
        q, k, v, gate = self.project(x, start)
        if state is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(state, (k, v), strict=True))
        first, seen = state is None, None
        if not first:
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
            seen = seen.tril(k.shape[2] - q.shape[2])
        o = F.scaled_dot_product_attention(q, k, v, seen, is_causal=first, enable_gqa=True)
        return self.attn_output(o.transpose(1, 2).flatten(2) * gate.sigmoid()), (k, v)


class NextN(AttentionBlock):
    """Attention behind eh_proj [enorm(embedding of token t), hnorm(hidden of t - 1)]."""

    def __init__(self, c: Config) -> None:
        super().__init__(c)
        self.nextn = nn.ModuleDict(
            {
                "enorm": RMSNorm(c.width, c.eps),
                "hnorm": RMSNorm(c.width, c.eps),
                "eh_proj": Linear(2 * c.width, c.width),
                "shared_head_norm": RMSNorm(c.width, c.eps),
            }
        )

    def enter(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """The block's input at t: ``hidden`` [B, T, D] is shifted by a row, zeros come first."""
        before = F.pad(hidden, (0, 0, 1, 0))[:, :-1]
        both = [self.nextn["enorm"](embedded), self.nextn["hnorm"](before)]
        return self.nextn["eh_proj"](torch.cat(both, -1))

    def leave(self, x: Tensor) -> Tensor:
        """What the LM head and the next pass read."""
        return self.nextn["shared_head_norm"](x)


class Trunk(nn.Module):
    """Embedding (also the LM head), blocks, final norm; the NextN block is the last of ``blk``."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = c = config
        self.token_embd = nn.Embedding(c.vocab_size, c.width)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        kinds: list[Any] = [
            DeltaBlock if c.is_recurrent(i) else AttentionBlock for i in range(c.num_layers)
        ]
        self.blk = nn.ModuleList(kind(c) for kind in (*kinds, NextN))
        self.output_norm = RMSNorm(c.width, c.eps)

    @property
    def nextn(self) -> NextN:
        """The draft block."""
        block = self.blk[-1]
        assert isinstance(block, NextN)
        return block

    def residuals(
        self, ids: Tensor, states: Sequence[State | None] | None = None, start: int = 0
    ) -> tuple[list[Tensor], list[State]]:
        """What enters each layer and what leaves the last, [B, T, D] each, and the states behind.

        Args:
            ids: [B, T] at positions from ``start`` on.
            states: behind the rows before; None: there are none.
        """
        found, after = [self.token_embd(ids)], []
        states = [None] * self.config.num_layers if states is None else states
        for block, state in zip(self.blk[:-1], states, strict=True):
            x, new = block(found[-1], start, state)
            found.append(x)
            after.append(new)
        return found, after

    def forward(
        self, ids: Tensor, states: Sequence[State | None] | None = None, start: int = 0
    ) -> tuple[Tensor, list[State]]:
        """Hidden rows [B, T, D] after the final norm, and the states behind them."""
        found, after = self.residuals(ids, states, start)
        return self.output_norm(found[-1]), after

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] float32."""
        return F.linear(hidden, self.token_embd.weight).float()

    def drafted(self, ids: Tensor, hidden: Tensor) -> Tensor:
        """The NextN block's hidden rows [B, T, D]: row t sees ``ids[t]`` and predicts t + 1."""
        block = self.nextn
        x, _ = block(block.enter(self.token_embd(ids), hidden), 0, None)
        return block.leave(x)
