"""Layers of the blocks; a weight is what the file stores, and nothing is added when it is used."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to float32 of the same shape."""
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps)


class Linear(nn.Linear):
    """x W^T; what ends in the residual starts at zero, so that every block begins as identity."""

    def __init__(self, width: int, out: int, *, zero: bool = False) -> None:
        super().__init__(width, out, bias=False)
        with torch.no_grad():
            self.weight.normal_(std=0.0 if zero else 0.6 * width**-0.5)


class Conv(nn.Module):
    """One causal filter per channel; the last of the ``taps`` multiplies the current row."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps).uniform_(-0.3, 0.3))
        with torch.no_grad():
            self.weight[:, -1] += 0.5

    def forward(self, x: Tensor) -> Tensor:
        """[B, T + taps - 1, channels], the rows before the first included, to [B, T, channels]."""
        taps = self.weight.shape[1]
        rows = x.shape[1] - taps + 1
        shifted = [x[:, i : i + rows] * self.weight[:, i] for i in range(taps)]
        return torch.stack(shifted).sum(0)


class Bias(nn.Module):
    """A vector that the file stores as ``<name>.bias``."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(values)


def rope(x: Tensor, positions: Tensor, num_rot: int, base: float) -> Tensor:
    """Turn the pairs (i, i + num_rot / 2) of a head's first ``num_rot`` dims by position.

    Args:
        x: [..., T, head_dim].
        positions: [T], or with leading dimensions that fit those of ``x``.
    """
    frequencies = base ** (-torch.arange(0, num_rot, 2, dtype=torch.float32) / num_rot)
    angles = positions.float()[..., None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    half = num_rot // 2
    a, b, rest = x[..., :half], x[..., half:num_rot], x[..., num_rot:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)
