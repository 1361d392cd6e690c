"""sample: every row's token is what a draw means, and the logits are left as they were."""

import math

import numpy as np
import pytest
from emulated import Recorder, needs_emulator, placed
from sampling_data import random_params, random_row
from scipy import special

from specrt.errors import MismatchError
from specrt.kernels.sample import FIELDS, draw_of, edits_of, logprob_of, sample
from specrt.options import SamplingParams
from specrt.reference import sampling as meaning
from specrt.state.step import StepInputs

F = np.float32
LOGPROB_ERROR = 2.0**-21
pytestmark = needs_emulator


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

    def run(self, device, logits):
        """[T, FIELDS] that the kernel writes."""
        edits, draws = [], []
        for b, params in enumerate(self.params):
            own = edits_of(
                params, self.size, self.histories[b], self.prompts[b], self.drafts[b], self.end_ids
            )
            place = sum(map(len, edits))
            draws.append(draw_of(params, params.seed, self.min_totals[b], place, len(own)))
            edits.append(own)
        saved = placed(np.full((self.num_rows, max(map(len, edits))), np.nan, F))
        out = placed(np.full((self.num_rows, FIELDS), -7, np.int32))
        sample(
            device,
            logits,
            saved,
            self.step,
            placed(np.stack(draws).view(np.int32).reshape(len(draws), -1)),
            placed(np.concatenate(edits).view(np.int32).reshape(-1, 4)),
            out=out,
        )
        return out

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
    before = logits.tobytes()
    tokens = batch.run(device, logits)[:, 0].tolist()
    assert logits.tobytes() == before
    for row, token in enumerate(tokens):
        params = batch.params[int(batch.step.row_seqs[row])]
        assert token == batch.meant(row, logits), (params, row, batch.size)


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
        temperature=1.1, top_p=0.8, repetition_penalty=1.2, presence_penalty=0.3, seed=5, logprobs=0
    )
    for num_draft in (64, 32, *range(17)):
        batch = Batch(np.random.default_rng(2), 77, [params], [64])
        batch.drafts[0] = batch.drafts[0][:num_draft]
        batch.num_rows = num_draft + 1
        batch.step.row_offsets[1] = batch.num_rows
        if num_draft == 64:
            rows = placed(rng.normal(0, 2, (65, 77)).astype(F))
            whole = batch.run(Recorder(), rows)
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


@pytest.mark.parametrize("size", [1, 33, 5000])
def test_log_probabilities_are_the_log_softmax(size):
    rng = np.random.default_rng(size)
    rows = placed(rng.normal(0, 4, (4, size)).astype(F))
    params = SamplingParams(temperature=0.7, logit_bias={0: 3.0}, seed=2, logprobs=0)
    for drawn, row in zip(Batch(rng, size, [params], [3]).run(Recorder(), rows), rows, strict=True):
        exact = special.log_softmax(row.astype(np.float64))[drawn[0]]
        assert logprob_of(drawn) == pytest.approx(exact, abs=LOGPROB_ERROR)


def test_log_probabilities_of_masked_extremes():
    inf, nan = math.inf, math.nan
    rows = np.array([[nan, 1, -inf, 1], [-inf] * 4, [0, inf, 1, 2], [nan] * 4], F)
    params = SamplingParams(temperature=1.0, seed=2, logprobs=0)
    drawn = Batch(np.random.default_rng(0), 4, [params], [3]).run(Recorder(), placed(rows))
    half = pytest.approx(-math.log(2), abs=LOGPROB_ERROR)
    assert [logprob_of(row) for row in drawn] == [half, -inf, 0, -inf]
    assert drawn[0, 0] in (1, 3) and drawn[1:, 0].tolist() == [0, 1, 0]


def test_wrong_arguments_are_refused():
    step = StepInputs(3, 1, 1, 0)
    good = [np.zeros((3, 8), F), np.zeros((3, 2), F), step]
    good += [placed(np.zeros((1, 16), np.int32)), placed(np.zeros((2, 4), np.int32))]
    out = np.zeros((3, FIELDS), np.int32)
    for place, wrong in (
        (0, np.zeros((3, 8))),
        (0, np.zeros((3, 16), F)[:, ::2]),
        (0, np.zeros((4, 8), F)),
        (1, np.zeros((2, 2), F)),
        (3, np.zeros((2, 16), np.int32)),
        (4, np.zeros((2, 3), np.int32)),
        (4, placed(np.zeros((2, 4), np.int32), 4)),
    ):
        given = [*good]
        given[place] = wrong
        with pytest.raises(MismatchError, match="sample"):
            sample(Recorder(), *given, out=out)
    with pytest.raises(MismatchError, match="sample: out"):
        sample(Recorder(), *good, out=out[:, :4])
