"""Options: what is taken, what is refused, and that they travel."""

import copy
import pickle

import numpy as np
import pytest

from specrt import SamplingParams, SpecOptions
from specrt.errors import OptionError


def test_options_travel():
    params = SamplingParams(logit_bias={3: 1.5, 1: -2}, stop="x", seed=5)
    for twin in (pickle.loads(pickle.dumps(params)), copy.deepcopy(params)):
        assert twin == params
        assert hash(twin) == hash(params)
    options = SpecOptions(type="ngram", num_draft=3)
    assert pickle.loads(pickle.dumps(options)) == options


def test_none_is_empty_and_numpy_counts():
    params = SamplingParams(stop=None, stop_token_ids=None, logit_bias=None)
    assert (params.stop, params.stop_token_ids, dict(params.logit_bias)) == ((), (), {})
    params = SamplingParams(stop_token_ids=np.array([4, 5]), logit_bias={np.int64(2): 1})
    assert params.stop_token_ids == (4, 5)
    assert params.logit_bias == {2: 1.0}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_k": 1.5},
        {"min_p": 2},
        {"repetition_penalty": 0},
        {"seed": -1},
        {"max_tokens": 0},
        {"min_tokens": 5, "max_tokens": 4},
        {"logprobs": -1},
        {"stop": ("",)},
        {"stop": (3,)},
        {"stop": ("a", "\ud800")},
        {"stop": 3},
        {"stop_token_ids": (-1,)},
        {"stop_token_ids": (1.5,)},
        {"logit_bias": {1: "x"}},
        {"logit_bias": {1: float("nan")}},
        {"logit_bias": {1: 10**400}},
        {"logit_bias": [1]},
    ],
    ids=str,
)
def test_impossible_sampling_params(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        SamplingParams(**options)


@pytest.mark.parametrize(
    "options",
    [{"num_draft": 0}, {"num_draft": 65}, {"pmin": 1.5}, {"ngram_min": 9}, {"type": ""}],
    ids=str,
)
def test_impossible_spec_options(options):
    with pytest.raises(OptionError):
        SpecOptions(**options)
