"""Muon for the blocks' matrices, AdamW for all else, under one schedule."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
SMALLEST_MATRIX = 64
"""Rows and columns from which on Muon takes a matrix."""
ADAM_ONLY = ("token_embd", "conv_proj")
"""Matrices that AdamW takes whatever their size."""


def shares_done(steps: int, minutes: float | None) -> Iterator[float]:
    """Of training, before each step; ``minutes`` take the place of ``steps``."""
    if minutes is None:
        yield from (step / steps for step in range(steps))
        return
    begun, share = time.monotonic(), 0.0
    while share < 1:
        yield share
        share = (time.monotonic() - begun) / (60 * minutes)


def warm_cosine(step: int, done: float, warm: int, floor: float) -> float:
    """A share of the learning rate: up over ``warm`` steps, then down to ``floor`` by a cosine."""
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    return min(1.0, (step + 1) / warm) * (cosine * (1 - floor) + floor)


@torch.no_grad()
def orthogonalise(g: Tensor, rounds: int = 5) -> Tensor:
    """Push the singular values of [N, rows, columns], rows <= columns, towards 1.

    Source: Jordan et al., Muon (2024): x <- a x + (b x x^T + c (x x^T)^2) x.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(rounds):
        m = x @ x.transpose(-1, -2)
        x = a * x + (b * m + c * (m @ m)) @ x
    return x.float()


class Muon:
    """Momentum, orthogonalised; matrices of one shape at once.

    Args:
        params: matrices.
        weight_decay: times the learning rate.
    """

    def __init__(self, params: Iterable[nn.Parameter], weight_decay: float) -> None:
        self._decay = weight_decay
        self._groups: dict[tuple[int, ...], list[tuple[nn.Parameter, Tensor]]] = {}
        for p in params:
            shape = tuple(sorted(p.shape))
            self._groups.setdefault(shape, []).append((p, torch.zeros_like(p)))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move all matrices; each keeps the length of step that its shape asks for."""
        for group in self._groups.values():
            moves = []
            for p, momentum in group:
                assert p.grad is not None
                momentum.lerp_(p.grad, 1 - MOMENTUM)
                move = p.grad.lerp(momentum, MOMENTUM)
                moves.append(move if p.shape[0] <= p.shape[1] else move.T)
            for (p, _), move in zip(group, orthogonalise(torch.stack(moves)), strict=True):
                move = move if p.shape[0] <= p.shape[1] else move.T
                p.mul_(1 - rate * self._decay)
                p.add_(move, alpha=-rate * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


class Optimizer:
    """Both, stepped together.

    Args:
        module: only parameters that require a gradient are moved.
        rate: Muon's learning rate.
        adam_rate: AdamW's, which decays nothing.
        weight_decay: Muon's.
    """

    def __init__(
        self, module: nn.Module, rate: float, adam_rate: float, weight_decay: float
    ) -> None:
        self._module, self._rate, self._adam_rate = module, rate, adam_rate
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        matrices = [
            p
            for n, p in named
            if p.ndim == 2
            and min(p.shape) >= SMALLEST_MATRIX
            and not any(name in n for name in ADAM_ONLY)
        ]
        taken = {id(p) for p in matrices}
        self.rest = [p for _, p in named if id(p) not in taken]
        self._muon = Muon(matrices, weight_decay)
        self._adam = torch.optim.AdamW(self.rest, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, share: float) -> None:
        """Move by the gradients at that share of the rates, and clear them."""
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        self._muon.step(self._rate * share)
        for group in self._adam.param_groups:
            group["lr"] = self._adam_rate * share
        self._adam.step()
        self._module.zero_grad()
