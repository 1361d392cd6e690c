"""One draw of the sampler, as ``python -m specrt.bench host`` has it, and log probabilities."""

import numpy as np
import pytest

from specrt.bench.cases import DRAWS, VOCABULARIES
from specrt.bench.host import sampler_calls
from specrt.options import SamplingParams
from specrt.sampling import make_sampler

ROUNDS = 500


@pytest.mark.parametrize("case", DRAWS)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_draw(benchmark, vocabulary, case):
    draws = sampler_calls(case, vocabulary, ROUNDS)
    benchmark.pedantic(lambda draw: draw(), setup=lambda: ((next(draws),), {}), rounds=ROUNDS)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_logprobs(benchmark, vocabulary):
    row = np.random.default_rng(0).normal(0, 3, vocabulary).astype(np.float32)
    sampler = make_sampler(SamplingParams(), vocabulary)
    found = [token for token, _ in sampler.logprobs(row, 7, 5).top]
    assert found == np.argsort(-row, kind="stable")[:5].tolist()
    benchmark(sampler.logprobs, row, 7, 5)
