"""n-gram propose + commit through the Python calls: K = 8, three kept rows a step."""

from itertools import count

import numpy as np
import pytest

from specrt._ext.ngram_index import NgramIndex
from specrt.bench.cases import HISTORIES, TEXTS, text
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.state.messages import DraftContext, Kept
from specrt.state.sequence import Cursor, Sequence

CONTEXT = 1_100_000
ROUNDS = 20_000


@pytest.mark.parametrize("length", HISTORIES)
@pytest.mark.parametrize("kind", TEXTS)
def test_index(benchmark, kind, length):
    ids = text(kind, length + 3 * ROUNDS)
    history = np.zeros(CONTEXT + 1, np.int32)
    history[: len(ids)] = ids
    index = NgramIndex(history)
    index.follow(length)
    rows = iter(range(length, len(ids), 3))

    def step(start, tokens):
        index.commit(start, tokens)
        index.propose(8, 2)

    def setup():
        start = next(rows)
        return (start, ids[start : start + 3].tolist()), {}

    benchmark.pedantic(step, setup=setup, rounds=ROUNDS)
    if benchmark.enabled:
        benchmark.extra_info["p99.9_us"] = 1e6 * np.quantile(benchmark.stats.stats.data, 0.999)


@pytest.mark.parametrize("length", HISTORIES)
@pytest.mark.parametrize("kind", TEXTS)
def test_speculator(benchmark, kind, length):
    speculator, sequence = NgramSpeculator(), Sequence(0, CONTEXT)
    ids = text(kind, length + 3 * ROUNDS + 1)
    sequence.history[: len(ids)] = ids
    sequence.cursor = Cursor(num_tokens=length)
    speculator.propose([DraftContext(sequence, 8)])
    starts = count(length, 3)

    def step(kept, contexts):
        speculator.commit(kept)
        speculator.propose(contexts)

    def setup():
        start = next(starts)
        sequence.cursor = Cursor(num_tokens=start + 3)
        tokens = ids[start - 1 : start + 3].tolist()
        kept = [Kept(sequence, start - 1, tokens[:3], tokens[3], {})]
        return (kept, [DraftContext(sequence, 8)]), {}

    benchmark.pedantic(step, setup=setup, rounds=ROUNDS)
    if benchmark.enabled:
        benchmark.extra_info["p99.9_us"] = 1e6 * np.quantile(benchmark.stats.stats.data, 0.999)
