"""One draw of the sampler, by vocabulary and parameters; a draw's id is checked before its time."""

import numpy as np
import pytest

from specrt.bench.cases import DRAWS, VOCABULARIES
from specrt.options import SamplingParams
from specrt.reference.sampling import sample
from specrt.sampling import make_sampler


@pytest.fixture(params=VOCABULARIES)
def row(request):
    """Logits of a usual spread."""
    return np.random.default_rng(0).normal(0, 3, request.param).astype(np.float32)


@pytest.mark.parametrize("case", DRAWS)
def test_draw(benchmark, row, case):
    """The history holds 100,000 ids and grows by nothing."""
    params = SamplingParams(**{"temperature": 0.8, "seed": 1} | DRAWS[case])
    history = np.random.default_rng(1).integers(0, 20_000, 100_000).astype(np.int32)
    sampler = make_sampler(params, len(row))
    args = (row, history, 1000, len(history))
    drawn = benchmark(sampler.draw, *args, False)
    assert drawn == sample(row, history, 1000, params, 1, len(history))


def test_logprobs(benchmark, row):
    sampler = make_sampler(SamplingParams(), len(row))
    got = benchmark(sampler.logprobs, row, 7, 5)
    assert [token for token, _ in got.top] == np.argsort(-row, kind="stable")[:5].tolist()
