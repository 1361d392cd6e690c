"""Mixtures of sampling options, and rows of logits as they should not be."""

import numpy as np

from specrt.options import SamplingParams

F = np.float32


def random_params(rng: np.random.Generator, size: int = 30) -> SamplingParams:
    penalised = rng.random() < 0.4
    biased = rng.integers(0, min(size, 30), 3) if rng.random() < 0.3 else []
    return SamplingParams(
        temperature=float(rng.choice([0, 5e-324, 0.1, 0.7, 1, 3, 1e6])),
        top_k=int(rng.choice([0, 1, 5, 40, 300])),
        top_p=float(rng.choice([1, 1 - 2**-53, 0.9, 0.5, 1e-6])),
        min_p=float(rng.choice([0, 1e-20, 0.05, 0.5, 1])),
        repetition_penalty=float(rng.choice([1.3, 0.5])) if penalised else 1.0,
        presence_penalty=float(rng.choice([0, 0.5, -1])) if penalised else 0.0,
        frequency_penalty=float(rng.choice([0, 0.2, 1e6])) if penalised else 0.0,
        logit_bias={int(i): float(rng.choice([-np.inf, -3, 2, 1e300])) for i in biased},
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
    )


def random_row(rng: np.random.Generator, size: int) -> np.ndarray:
    """Smooth or full of ties, sometimes with values at and past the ends of float32."""
    row = rng.normal(0, rng.choice([0, 0.01, 1, 5]), size).astype(F)
    if rng.random() < 0.4:
        row = np.round(row)
    if rng.random() < 0.4:
        odd = rng.choice([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, -0.0, 1e-40], size)
        row = np.where(rng.random(size) < rng.choice([0.1, 0.9, 1]), odd.astype(F), row)
    row.setflags(write=False)
    return row
