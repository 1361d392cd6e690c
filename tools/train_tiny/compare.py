"""A file in torch, float32, beside the same file in specrt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import specrt
from tools.train_tiny.export import read


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two engines' logits over the same ids.

    Args:
        largest: of all absolute differences.
        spread: standard deviation of the logits.
        nmse: normalised mean square error.
        agree: share of the rows with the same likeliest token.
    """

    largest: float
    spread: float
    nmse: float
    agree: float


@torch.no_grad()
def torch_logits(path: Path, ids: Sequence[int]) -> np.ndarray:
    """[T, V] float32, of the file's weights in float32."""
    trunk = read(path)
    hidden, _ = trunk(torch.tensor([list(ids)]))
    return trunk.logits(hidden)[0].numpy()


def specrt_logits(path: Path, ids: Sequence[int]) -> np.ndarray:
    """[T, V] float32, on a CPU, with keys and values in float32."""
    llm = specrt.load(path, device="cpu", kv_type="f32", spec="none", verbose=False)
    return llm.logits(list(ids))


def compare(path: Path, ids: Sequence[int]) -> Difference:
    """Both, over the same ids."""
    exact, got = torch_logits(path, ids).astype(np.float64), specrt_logits(path, ids)
    return Difference(
        largest=float(np.abs(got - exact).max()),
        spread=float(exact.std()),
        nmse=float(np.square(got - exact).sum() / np.square(exact).sum()),
        agree=float((got.argmax(-1) == exact.argmax(-1)).mean()),
    )
