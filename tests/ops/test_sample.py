"""sample: every row's token is what a draw means."""

import math

import numpy as np
import pytest
from emulated import Recorder, needs_emulator, placed
from levels import LEVELS
from sampling_data import random_params, random_row

from specrt._ext.host_ops import Tape, Team
from specrt.errors import MismatchError
from specrt.host.sample import HostDraws
from specrt.host.sample import sample as host_sample
from specrt.kernels.sample import KernelDraws
from specrt.kernels.sample import sample as kernel_sample
from specrt.options import SamplingParams
from specrt.reference import sampling as meaning
from specrt.sampling import make_sampler
from specrt.state.draw import Draw
from specrt.state.step import StepInputs

F = np.float32


class OnKernels:
    """Draws of ``sample.cu``.

    Args:
        device: what it runs on.
    """

    draws_all = True

    def __init__(self, device):
        self.device = device

    def run(self, draws, most, logits, step, ids):
        step.on_device = step
        inputs = KernelDraws(len(draws), most, nothing, sender, lambda: self.device)
        inputs.publish(draws)
        inputs.sample(logits, step, ids=ids)


class OnHost:
    """Draws of ``sample.c``.

    Args:
        level: of the instructions.
        threads: that claim rows.
    """

    draws_all = False

    def __init__(self, level, threads=1):
        self.level, self.team = level, Team(threads)

    def run(self, draws, most, logits, step, ids):
        tape = Tape(self.level, self.team)
        inputs = HostDraws(len(draws), most, nothing, lambda op, *a, **k: op(tape, *a, **k))
        inputs.publish(draws)
        inputs.sample(logits, step, ids=ids)
        tape.run()


def on_level(level, threads=1):
    return lambda *_: OnHost(level, threads)


def on_emulator(seed, flush=True):
    return OnKernels(Recorder(seed, flush=flush))


ON = [
    *(pytest.param(on_level(level), id=name) for name, level in LEVELS.items()),
    pytest.param(on_level(max(LEVELS.values()), 3), id="threads"),
    pytest.param(on_emulator, id="emulator", marks=needs_emulator),
]
on_all = pytest.mark.parametrize("on", ON)
"""Makes who draws, given the emulator's order and whether it flushes subnormal numbers."""


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

    def run(self, on, logits):
        """[T] that an op set writes."""
        draws = [self.draw(b) for b in range(len(self.params))]
        most = max(len(draw.edits) for draw in draws if draw)
        ids = placed(np.full(self.num_rows, -7, np.int32))
        on.run(draws, most, logits, self.step, ids)
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


def check(batch, logits, on):
    """Rows behind one whose token is not the draft's mean nothing, and may be as they were."""
    before, wrong = logits.copy(), set()
    for row, token in enumerate(batch.run(on, logits).tolist()):
        b = int(batch.step.row_seqs[row])
        meant = batch.meant(row, before)
        left_out = token == -7 and b in wrong and not on.draws_all
        assert token == meant or left_out, (batch.params[b], row, batch.size)
        if row + 1 < batch.step.row_offsets[b + 1] and meant != batch.step.tokens[row + 1]:
            wrong.add(b)


def agree(batch, logits, share):
    """Let about so many of the draft tokens be what their rows draw."""
    rng = np.random.default_rng(batch.size)
    for row in range(batch.num_rows - 1):
        b = int(batch.step.row_seqs[row])
        place = row - int(batch.step.row_offsets[b])
        if place < len(batch.drafts[b]) and batch.params[b] and rng.random() < share:
            batch.step.tokens[row + 1] = batch.drafts[b][place] = batch.meant(row, logits)


SIZES = (1, 2, 31, 32, 129, 500, 1024, 1025, 3001, 5000)


@on_all
@pytest.mark.parametrize("seed", range(12))
def test_every_mixture_draws_what_it_means(on, seed):
    rng = np.random.default_rng(seed)
    for size in rng.permutation(SIZES)[:5].tolist():
        params = [random_params(rng, size) for _ in range(3)]
        batch = Batch(rng, size, params, [3, 0, 2], (0, 7, size - 1, -1))
        rows = np.array([random_row(rng, size) for _ in range(batch.num_rows)])
        agree(batch, rows, 0.7)
        check(batch, placed(rows), on(seed, False))


@needs_emulator
@pytest.mark.parametrize("size", [32, 33])
@pytest.mark.parametrize("offset", [0, 4])
def test_the_kernel_has_a_form_for_what_is_not_aligned(size, offset):
    batch = Batch(np.random.default_rng(0), size, [SamplingParams(temperature=1.0, seed=1)], [2])
    rows, device = np.zeros((3, size), F), Recorder(0)
    check(batch, placed(rows, offset), OnKernels(device))
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


@on_all
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
def test_a_larger_vocabulary_with_flushed_subnormals(on, spread, seed):
    rng = np.random.default_rng(seed)
    params = [SamplingParams(temperature=0.8, seed=9 + seed, **filters) for filters in FILTERS]
    batch = Batch(rng, 33_001 + 3 * seed, params, [1] * len(params))
    rows = rng.normal(0, spread, (batch.num_rows, batch.size)).astype(F)
    agree(batch, rows, 0.5)
    check(batch, placed(rows), on(seed))


@on_all
def test_rows_stand_alone(on):
    rng = np.random.default_rng(1)
    params = SamplingParams(
        temperature=1.1, top_p=0.8, repetition_penalty=1.2, presence_penalty=0.3, seed=5
    )
    batch = Batch(np.random.default_rng(2), 77, [params], [64])
    rows = rng.normal(0, 2, (65, 77)).astype(F)
    agree(batch, rows, 1.0)
    whole, draft = batch.run(on(0), placed(rows)), batch.drafts[0]
    for num_draft in (32, *range(17)):
        batch.drafts[0], batch.num_rows = draft[:num_draft], num_draft + 1
        batch.step.row_offsets[1] = num_draft + 1
        got = batch.run(on(0), placed(rows[: num_draft + 1]))
        assert (got == whole[: num_draft + 1]).all()
    assert (whole >= 0).all()


def test_rows_behind_a_wrong_token_are_left_out():
    """By one thread, all of them."""
    params = SamplingParams(temperature=1.0, seed=3)
    rng = np.random.default_rng(3)
    for num_right in range(8):
        batch = Batch(rng, 300, [None, params, params], [1, 8, 3])
        rows = rng.normal(0, 1, (batch.num_rows, 300)).astype(F)
        agree(batch, rows, 1.0)
        wrong = 2 + num_right + 1
        batch.step.tokens[wrong] = batch.drafts[1][num_right] = (batch.step.tokens[wrong] + 1) % 300
        got = batch.run(OnHost(max(LEVELS.values())), placed(rows)).tolist()
        assert got[:2] == [-7] * 2 and got[wrong:11] == [-7] * (11 - wrong)
        drawn = [*range(2, wrong), *range(11, 15)]
        assert [got[row] for row in drawn] == [batch.meant(row, rows) for row in drawn]


TIES = [
    ([0, 1, 1, 2, 1, 1], {"top_k": 3}),
    ([1] * 2000, {"top_k": 3}),
    ([1] * 1100, {"top_p": 0.31}),
    ([1] * 10, {"top_p": 0.3}),
    ([-0.0, 0.0, -0.0], {"top_k": 2}),
    ([math.nan, -math.inf, math.nan], {"top_k": 2}),
]


@on_all
@pytest.mark.parametrize(("row", "options"), TIES)
def test_ties_at_a_boundary_go_to_the_lowest_id(on, row, options):
    params = [SamplingParams(temperature=1.0, seed=seed, **options) for seed in range(4)]
    batch = Batch(np.random.default_rng(0), len(row), params, [0] * 4)
    check(batch, placed(np.array([row] * 4, F)), on(0))


@on_all
@pytest.mark.parametrize("ascending", [True, False])
def test_logits_that_only_their_bits_tell_apart(on, ascending):
    """Hot enough, all of them have one distance from the largest."""
    row = np.float32(1) + np.arange(3000, dtype=np.float32) * np.float32(2.0**-23)
    temperatures = (1e-3, 1, 100, 1e5)
    params = [SamplingParams(temperature=t, top_k=5, top_p=0.7, seed=3) for t in temperatures]
    batch = Batch(np.random.default_rng(0), 3000, params, [1] * 4)
    rows = [row if ascending else row[::-1]] * batch.num_rows
    check(batch, placed(np.array(rows)), on(0))


@on_all
def test_rows_that_do_not_draw_keep_their_ids_and_their_logits(on):
    rng = np.random.default_rng(4)
    params = SamplingParams(temperature=1.0, repetition_penalty=2.0, seed=6)
    batch = Batch(rng, 40, [params] * 3, [1, 2, 0])
    batch.params[1] = None
    rows = placed(rng.normal(0, 1, (batch.num_rows, 40)).astype(F))
    agree(batch, rows, 1.0)
    before, drawn = rows.copy(), batch.run(on(0), rows)
    assert drawn[2:5].tolist() == [-7] * 3
    np.testing.assert_array_equal(rows[2:5], before[2:5])
    for row in (0, 1, 5):
        assert drawn[row] == batch.meant(row, before)


def test_a_tape_draws_with_what_was_published_last():
    """Also where that is the list of before with others in it."""
    rng = np.random.default_rng(6)
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in range(2)]
    batch = Batch(rng, 90, params, [0, 0])
    rows, ids = rng.normal(0, 1, (2, 90)).astype(F), np.zeros(2, np.int32)
    tape, both = Tape(max(LEVELS.values())), [batch.draw(0), batch.draw(1)]
    inputs = HostDraws(2, 0, nothing, lambda op, *args, **keywords: op(tape, *args, **keywords))
    inputs.sample(rows, batch.step, ids=ids)
    given = []
    for choice in ([0, 1], [0, 1], [0, None], [None, 1], [1, 0], [0, 1], [None, None]):
        given[:] = [None if i is None else both[i] for i in choice]
        batch.params = [None if i is None else params[i] for i in choice]
        inputs.publish(given)
        ids[:] = -7
        tape.run()
        drawn = [-7 if i is None else batch.meant(b, rows) for b, i in enumerate(choice)]
        assert ids.tolist() == drawn


@pytest.mark.parametrize("launch", [host_sample, kernel_sample])
def test_wrong_arguments_are_refused(launch):
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
    ):
        given = [*good]
        given[place] = wrong
        with pytest.raises(MismatchError, match="sample"):
            launch(None, *given, ids=ids)
    with pytest.raises(MismatchError, match="sample: ids"):
        launch(None, *good, ids=ids[:2])


def test_the_kernel_refuses_what_is_not_aligned():
    draws, edits = placed(np.zeros((1, 16), np.int32)), placed(np.zeros((2, 4), np.int32), 4)
    given = np.zeros((3, 8), F), StepInputs(3, 1, 1, 0), draws, edits
    with pytest.raises(MismatchError, match="no multiple of 16"):
        kernel_sample(None, *given, ids=np.zeros(3, np.int32))
