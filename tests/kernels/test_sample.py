"""sample: every row's token is what a draw means."""

import math

import numpy as np
import pytest
from emulated import Recorder, needs_emulator, placed
from sampling_data import random_params, random_row

from specrt.errors import MismatchError
from specrt.kernels.sample import KernelDraws, sample
from specrt.options import SamplingParams
from specrt.reference import sampling as meaning
from specrt.sampling import make_sampler
from specrt.state.draw import Draw
from specrt.state.step import StepInputs

F = np.float32
pytestmark = needs_emulator


def nothing(shape, dtype):
    """An array of what no draw has."""
    return placed(np.full(shape, -(2**30), dtype))


def sender(array):
    def send(values):
        array[: len(values)] = values

    return send


class Batch:
    """Windows of sequences, each with its own options and history.

    Args:
        rng: of what the histories and drafts hold.
        size: V.
        params: of each sequence.
        drafts: how many draft tokens each window has.
    """

    def __init__(self, rng, size, params, drafts, end_ids=()):
        self.size, self.params, self.end_ids = size, params, end_ids
        self.histories = [
            rng.integers(0, size, rng.integers(1, 60)).astype(np.int32) for _ in params
        ]
        self.drafts = [rng.integers(0, size, n).tolist() for n in drafts]
        self.prompts = [int(rng.integers(0, len(history) + 1)) for history in self.histories]
        self.min_totals = [len(history) + int(rng.integers(0, 4)) for history in self.histories]
        self.step = StepInputs(sum(drafts) + len(drafts), len(params), 1, 0)
        first = 0
        for b, (history, draft) in enumerate(zip(self.histories, self.drafts, strict=True)):
            rows = slice(first, first + len(draft) + 1)
            self.step.tokens[rows] = [history[-1], *draft]
            self.step.positions[rows] = len(history) - 1 + np.arange(len(draft) + 1)
            self.step.row_seqs[rows] = b
            self.step.row_offsets[b:] = rows.start, *[rows.stop] * (len(params) - b)
            first = rows.stop
        self.num_rows = first

    def draw(self, b):
        """How sequence b draws, None if it has no options."""
        params, sizes = self.params[b], (self.prompts[b], self.drafts[b])
        if params is None:
            return None
        sampler = make_sampler(params, self.size, self.end_ids)
        holds_back = len(self.histories[b]) < self.min_totals[b]
        edits = sampler.edits(self.histories[b], *sizes, holds_back)
        return Draw(params, params.seed, self.min_totals[b], edits)

    def run(self, device, logits):
        """[T] that the kernel writes."""
        draws = [self.draw(b) for b in range(len(self.params))]
        most = max(len(draw.edits) for draw in draws if draw)
        ids = placed(np.full(self.num_rows, -7, np.int32))
        self.step.on_device = self.step
        inputs = KernelDraws(len(draws), most, nothing, sender, lambda: device)
        inputs.publish(draws)
        inputs.sample(logits, self.step, ids=ids)
        return ids

    def meant(self, row, logits):
        """The row's token."""
        b = int(self.step.row_seqs[row])
        drawn = row - int(self.step.row_offsets[b])
        history = np.concatenate([self.histories[b], self.drafts[b][:drawn]]).astype(np.int32)
        position, params = len(history), self.params[b]
        ends = {i for i in self.end_ids if 0 <= i < self.size}
        ends = ends if position < self.min_totals[b] else ()
        return meaning.sample(
            logits[row], history, self.prompts[b], params, params.seed, position, ends
        )


def check(batch, logits, device):
    before = logits.copy()
    for row, token in enumerate(batch.run(device, logits).tolist()):
        params = batch.params[int(batch.step.row_seqs[row])]
        assert token == batch.meant(row, before), (params, row, batch.size)


SIZES = (1, 2, 31, 32, 129, 500, 1024, 1025, 3001, 5000)


@pytest.mark.parametrize("seed", range(12))
def test_every_mixture_draws_what_it_means(seed):
    rng = np.random.default_rng(seed)
    for size in rng.permutation(SIZES)[:5].tolist():
        batch = Batch(
            rng, size, [random_params(rng, size) for _ in range(3)], [3, 0, 2], (0, 7, size - 1, -1)
        )
        rows = np.array([random_row(rng, size) for _ in range(batch.num_rows)])
        offset = int(rng.choice([0, 4]))
        device = Recorder(seed, flush=False)
        check(batch, placed(rows, offset), device)
        assert device.entries == ["sample_any" if size % 4 or offset else "sample_aligned"]


FILTERS = (
    {},
    {"top_k": 1},
    {"top_k": 40, "top_p": 0.9},
    {"top_p": 0.9, "min_p": 0.01},
    {"top_p": 0.5, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
    {"top_k": 3000},
    {"min_p": 0.3},
)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
def test_a_larger_vocabulary_with_flushed_subnormals(spread, seed):
    rng = np.random.default_rng(seed)
    params = [SamplingParams(temperature=0.8, seed=9 + seed, **filters) for filters in FILTERS]
    batch = Batch(rng, 33_001 + 3 * seed, params, [1] * len(params))
    rows = rng.normal(0, spread, (batch.num_rows, batch.size)).astype(F)
    check(batch, placed(rows), Recorder(seed))


def test_rows_stand_alone():
    rng = np.random.default_rng(1)
    params = SamplingParams(
        temperature=1.1, top_p=0.8, repetition_penalty=1.2, presence_penalty=0.3, seed=5
    )
    for num_draft in (64, 32, *range(17)):
        batch = Batch(np.random.default_rng(2), 77, [params], [64])
        batch.drafts[0] = batch.drafts[0][:num_draft]
        batch.num_rows = num_draft + 1
        batch.step.row_offsets[1] = batch.num_rows
        if num_draft == 64:
            rows = rng.normal(0, 2, (65, 77)).astype(F)
            whole = batch.run(Recorder(), placed(rows))
        else:
            got = batch.run(Recorder(), placed(rows[: num_draft + 1]))
            assert (got == whole[: num_draft + 1]).all()


TIES = [
    ([0, 1, 1, 2, 1, 1], {"top_k": 3}),
    ([1] * 2000, {"top_k": 3}),
    ([1] * 1100, {"top_p": 0.31}),
    ([1] * 10, {"top_p": 0.3}),
    ([-0.0, 0.0, -0.0], {"top_k": 2}),
    ([math.nan, -math.inf, math.nan], {"top_k": 2}),
]


@pytest.mark.parametrize(("row", "options"), TIES)
def test_ties_at_a_boundary_go_to_the_lowest_id(row, options):
    params = [SamplingParams(temperature=1.0, seed=seed, **options) for seed in range(4)]
    batch = Batch(np.random.default_rng(0), len(row), params, [0] * 4)
    check(batch, placed(np.array([row] * 4, F)), Recorder())


@pytest.mark.parametrize("ascending", [True, False])
def test_logits_that_only_their_bits_tell_apart(ascending):
    """Hot enough, all of them have one distance from the largest."""
    row = np.float32(1) + np.arange(3000, dtype=np.float32) * np.float32(2.0**-23)
    temperatures = (1e-3, 1, 100, 1e5)
    params = [SamplingParams(temperature=t, top_k=5, top_p=0.7, seed=3) for t in temperatures]
    batch = Batch(np.random.default_rng(0), 3000, params, [1] * 4)
    rows = [row if ascending else row[::-1]] * batch.num_rows
    check(batch, placed(np.array(rows)), Recorder())


def test_rows_that_do_not_draw_keep_their_ids_and_their_logits():
    rng = np.random.default_rng(4)
    params = SamplingParams(temperature=1.0, repetition_penalty=2.0, seed=6)
    batch = Batch(rng, 40, [params] * 3, [1, 2, 0])
    batch.params[1] = None
    rows = placed(rng.normal(0, 1, (batch.num_rows, 40)).astype(F))
    before, drawn = rows.copy(), batch.run(Recorder(), rows)
    assert drawn[2:5].tolist() == [-7] * 3
    np.testing.assert_array_equal(rows[2:5], before[2:5])
    for row in (0, 1, 5):
        assert drawn[row] == batch.meant(row, before)


def test_wrong_arguments_are_refused():
    draws, edits = placed(np.zeros((1, 16), np.int32)), placed(np.zeros((2, 4), np.int32))
    good = [np.zeros((3, 8), F), StepInputs(3, 1, 1, 0), draws, edits]
    ids = np.zeros(3, np.int32)
    for place, wrong in (
        (0, np.zeros((3, 8))),
        (0, np.zeros((3, 16), F)[:, ::2]),
        (0, np.zeros((4, 8), F)),
        (1, StepInputs(2, 1, 1, 0)),
        (2, np.zeros((2, 16), np.int32)),
        (3, np.zeros((2, 3), np.int32)),
        (3, placed(np.zeros((2, 4), np.int32), 4)),
    ):
        given = [*good]
        given[place] = wrong
        with pytest.raises(MismatchError, match="sample"):
            sample(Recorder(), *given, ids=ids)
    with pytest.raises(MismatchError, match="sample: ids"):
        sample(Recorder(), *good, ids=ids[:2])
