"""The governor's upkeep a step: num_draft + observe through the Python calls."""

import pytest

from specrt.speculative.governor import Governor

ROUNDS = 20_000


@pytest.mark.parametrize("max_draft", [8, 64])
def test_step(benchmark, max_draft):
    policy = Governor().policy()
    steps = iter(range(ROUNDS))

    def step():
        num_draft = policy.num_draft("ngram", max_draft)
        matched = num_draft // 2 if next(steps) % 7 == 0 else num_draft
        policy.proposed("ngram", num_draft, 1e-6)
        policy.rows.add(num_draft, 0.01 + 0.001 * num_draft)
        policy.observe(num_draft, matched)

    benchmark.pedantic(step, rounds=ROUNDS)
