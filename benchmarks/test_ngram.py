"""n-gram propose and commit, as ``python -m specrt.bench host`` has it; checked before any time."""

import numpy as np
import pytest

from specrt.bench.cases import HISTORIES, TEXTS
from specrt.bench.host import ngram_calls

ROUNDS = 20_000


@pytest.mark.parametrize("length", HISTORIES)
@pytest.mark.parametrize("kind", TEXTS)
def test_step(benchmark, kind, length):
    steps = ngram_calls(kind, length, ROUNDS)
    benchmark.pedantic(lambda step: step(), setup=lambda: ((next(steps),), {}), rounds=ROUNDS)
    if benchmark.enabled:
        benchmark.extra_info["p99.9_us"] = 1e6 * np.quantile(benchmark.stats.stats.data, 0.999)
