"""The governor's upkeep a step, as ``python -m specrt.bench host`` has it."""

import pytest

from specrt.bench.host import NUM_DRAFT, governor_calls
from specrt.options import MAX_DRAFT

ROUNDS = 20_000


@pytest.mark.parametrize("most", [NUM_DRAFT, MAX_DRAFT])
def test_step(benchmark, most):
    steps = governor_calls(most, ROUNDS)
    benchmark.pedantic(lambda step: step(), setup=lambda: ((next(steps),), {}), rounds=ROUNDS)
