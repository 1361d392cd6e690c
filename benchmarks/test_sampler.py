"""One draw of the sampler, by vocabulary and parameters; a draw's id is checked before its time."""

import numpy as np
import pytest

from specrt.options import SamplingParams
from specrt.reference.sampling import sample
from specrt.sampling import make_sampler

CASES = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "top_k_top_p": {"top_k": 40, "top_p": 0.9},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.1},
}


@pytest.fixture(params=[49_152, 262_144])
def row(request):
    """Logits of a usual spread."""
    return np.random.default_rng(0).normal(0, 3, request.param).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_draw(benchmark, row, case):
    """The history holds 100,000 ids and grows by nothing."""
    params = SamplingParams(**{"temperature": 0.8, "seed": 1} | CASES[case])
    history = np.random.default_rng(1).integers(0, 20_000, 100_000).astype(np.int32)
    sampler = make_sampler(params, len(row))
    args = (row, history, 1000, len(history))
    drawn = benchmark(sampler.draw, *args, False)
    assert drawn == sample(row, history, 1000, params, 1, len(history))


def test_logprobs(benchmark, row):
    sampler = make_sampler(SamplingParams(), len(row))
    got = benchmark(sampler.logprobs, row, 7, 5)
    assert [token for token, _ in got.top] == np.argsort(-row, kind="stable")[:5].tolist()
