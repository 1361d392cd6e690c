"""markov: logits and ids by equality, confidences against float64 and plain float32."""

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import Tensor, TypeOf, random_tensor
from rows import (
    assert_same_bits,
    both_weights,
    device_buffer,
    host_acts,
    kernel_weight,
    nans,
)

from specrt._ext.host_ops import Tape
from specrt.acts import Acts
from specrt.errors import MismatchError
from specrt.host.markov import markov as host_markov
from specrt.kernels.markov import markov as kernel_markov
from specrt.reference.markov import markov
from specrt.reference.quant_blocks import dequantize
from specrt.state.step import StepInputs

VOCAB, OUT = 90, 75


class Data:
    """B blocks of n rows, codebooks of two types, and what the head knows of confidence.

    Args:
        reduced: the head has ``out`` ids of the vocabulary, by name.
    """

    def __init__(
        self, types, width, blocks=(3, 4), hidden=45, role="int8x2", reduced=True, out=OUT, seed=0
    ):
        num_seqs, n = self.blocks = blocks
        rng = np.random.default_rng([seed, width, hidden, *blocks])
        self.role, self.width, self.out = role, width, out
        self.books = [random_tensor(types[0], VOCAB, width), random_tensor(types[1], out, width)]
        self.logits = rng.standard_normal((num_seqs * n, out), dtype=np.float32)
        self.hidden = rng.standard_normal((num_seqs * n, hidden), dtype=np.float32)
        self.confidence = rng.standard_normal(hidden + width + 1, dtype=np.float32) * np.float32(
            0.1
        )
        self.names = rng.permutation(VOCAB)[:out].astype(np.int32) if reduced else None
        self.anchors = rng.integers(0, VOCAB, num_seqs)

    def step(self, buffer=np.zeros):
        """As many rows as the blocks have, and one before them."""
        num_seqs, n = self.blocks
        step = StepInputs(1 + num_seqs * n, num_seqs, 1, 0, buffer)
        step.row_offsets[:] = 1 + n * np.arange(num_seqs + 1)
        step.tokens[:] = -5
        step.tokens[step.row_offsets[:-1]] = self.anchors
        return step

    def run(self, op, books, acts, place=lambda x: x, buffer=np.zeros, confident=True):
        """Logits, ids and confidences."""
        outs = place(self.logits.copy()), place(np.full(self.blocks, -9, np.int32))
        outs += (place(nans(*self.blocks)),)
        op(
            outs[0], place(self.hidden), self.step(buffer),
            predecessor=books[0], successor=books[1],
            confidence=place(self.confidence) if confident else None,
            names=None if self.names is None else place(self.names),
            acts=acts, ids=outs[1], confidences=outs[2] if confident else None,
        )  # fmt: skip
        return outs

    def both(self):
        return [both_weights(tensor, self.role) for tensor in self.books]

    def by_reference(self):
        books = [one.reference for one in self.both()]
        return self.run(markov, books, Acts.empty(self.blocks[0], self.width, books[1:]))

    def on_host(self, level, **options):
        def op(*args, **keywords):
            tape = Tape(level)
            host_markov(tape, *args, **keywords)
            tape.run()

        books = [one.host for one in self.both()]
        return self.run(op, books, host_acts(self.blocks[0] + 1, self.width, books[1:]), **options)

    def on_device(self, seed=0, offset=0, **options):
        """The results, and which entries ran."""
        device = Recorder(seed)
        books = [kernel_weight(tensor, self.role) for tensor in self.books]
        outs = self.run(
            lambda *args, **keywords: kernel_markov(device, *args, **keywords),
            books,
            Acts.empty(self.blocks[0] + 1, self.width, books[1:], device_buffer),
            lambda x: placed(x, offset if x.dtype == np.float32 else 0),
            lambda shape, dtype: placed(np.zeros(shape, dtype)),
            **options,
        )
        return outs, device.entries

    def exact_confidences(self, ids):
        """In float64, behind these ids."""
        before = np.column_stack([self.anchors, ids[:, :-1]])
        rows = dequantize(self.books[0].type.name, self.books[0].raw)[before]
        hidden = self.hidden.reshape(*self.blocks, -1)
        joined = np.concatenate([hidden, rows], axis=2).astype(np.float64)
        weights = self.confidence.astype(np.float64)
        return 1 / (1 + np.exp(-(joined @ weights[:-1] + weights[-1])))


def assert_right(data, got):
    """Logits and ids are the reference's bits, confidences as near as its own."""
    logits, ids, confidences = data.by_reference()
    assert_same_bits(got[0], logits)
    assert_same_bits(got[1], ids)
    assert len(set(ids.ravel().tolist())) > 1
    assert_accurate(got[2], confidences, data.exact_confidences(ids))


CASES = [
    (("Q8_0", "Q8_0"), 96, {}),
    (("Q8_0", "Q8_0"), 96, {"role": "int8", "reduced": False}),
    (("F16", "Q4_K"), 256, {"blocks": (1, 5), "hidden": 64}),
    (("Q6_K", "F16"), 256, {"blocks": (2, 3), "hidden": 1300, "out": 41}),
    (("F32", "BF16"), 43, {"blocks": (9, 2)}),
    (("Q4_0", "MXFP4"), 32, {"blocks": (17, 2), "hidden": 1, "role": "int8"}),
    (("F32", "F32"), 7, {"blocks": (2, 1), "out": 17, "hidden": 2100}),
]


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_host_chains_a_block(level, case):
    types, width, options = case
    data = Data(types, width, **options)
    assert_right(data, data.on_host(level))


@pytest.mark.parametrize("case", CASES)
def test_instruction_sets_agree(case):
    types, width, options = case
    results = [Data(types, width, **options).on_host(level) for level in LEVELS.values()]
    for other in results[1:]:
        for got, expected in zip(other, results[0], strict=True):
            assert_same_bits(got, expected)


@needs_emulator
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("offset", [0, 4])
def test_the_kernel_chains_a_block(case, offset):
    types, width, options = case
    data, results = Data(types, width, **options), []
    wide = not (offset or width % 4 or data.hidden.shape[1] % 4)
    for seed in SEEDS:
        got, entries = data.on_device(seed, offset)
        assert entries[::2] == [f"markov_x{4 if wide else 1}"] * (data.blocks[1] + 1)
        assert all(entry.startswith("linear") for entry in entries[1::2])
        results.append(got)
    assert_right(data, results[0])
    for other in results[1:]:
        for mine, expected in zip(other, results[0], strict=True):
            assert_same_bits(mine, expected)


def hosted(data, **options):
    return data.on_host(max(LEVELS.values()), **options)


def emulated(data, **options):
    return data.on_device(**options)[0]


RUNS = [hosted, pytest.param(emulated, marks=needs_emulator)]


@pytest.mark.parametrize("run", RUNS)
def test_a_block_does_not_know_of_the_others(run):
    data = Data(("Q8_0", "Q8_0"), 96, (9, 3))
    together = run(data)
    for b in (0, 4, 8):
        one = Data(("Q8_0", "Q8_0"), 96, (1, 3))
        rows = slice(3 * b, 3 * b + 3)
        one.logits, one.hidden = data.logits[rows], data.hidden[rows]
        one.confidence, one.names, one.anchors = (
            data.confidence,
            data.names,
            data.anchors[b : b + 1],
        )
        logits, ids, confidences = run(one)
        assert_same_bits(logits, together[0][rows])
        assert_same_bits(ids, together[1][b : b + 1])
        assert_same_bits(confidences, together[2][b : b + 1])


@pytest.mark.parametrize("run", RUNS)
def test_without_a_confidence_head_none_is_written(run):
    data = Data(("Q8_0", "Q8_0"), 96)
    with_head, without = run(data), run(data, confident=False)
    assert_same_bits(without[0], with_head[0])
    assert_same_bits(without[1], with_head[1])
    assert np.isnan(without[2]).all() and np.isfinite(with_head[2]).all()


def zeros(num_rows, width):
    return Tensor("w", (num_rows, width), TypeOf("F32", 1, 4), np.zeros((num_rows, 4 * width), "B"))


@pytest.mark.parametrize("run", RUNS)
def test_the_lowest_id_wins_and_nan_never(run):
    data = Data(("F32", "F32"), 4, (1, 5), reduced=False, out=700)
    data.books[1] = zeros(700, 4)  # the logits alone decide
    data.logits[:] = -1
    for row, winners in enumerate([(650, 300, 299, 40), (699, 256), (15, 16)]):
        data.logits[row, list(winners)] = 2
        data.logits[row, ::7] = np.where(data.logits[row, ::7] == 2, 2, np.nan)
    data.logits[3], data.logits[4] = np.nan, -np.inf
    data.logits[3, 699] = -np.inf
    data.anchors[:] = 3
    data.books[0] = random_tensor("F32", 700, 4)  # of which every id is a row
    assert run(data)[1].tolist() == [[40, 256, 15, 0, 0]]


@pytest.mark.parametrize("run", RUNS)
def test_an_id_that_is_none_gives_nan(run):
    data = Data(("F32", "F32"), 12, (2, 3))
    data.anchors[:] = VOCAB, 5
    logits, ids, confidences = run(data)
    assert np.isnan(logits[0]).all() and np.isnan(confidences[0, 0])
    assert ids[0, 0] == data.names[0] and np.isfinite(logits[1:]).all()
    assert np.isfinite(confidences).sum() == 5


@pytest.mark.parametrize("launch", [host_markov, kernel_markov])
def test_wrong_arguments_are_refused(launch):
    target = Tape(0) if launch is host_markov else Recorder()
    data = Data(("Q8_0", "Q8_0"), 96, (2, 3))

    def made(tensor):
        return both_weights(tensor).host if launch is host_markov else kernel_weight(tensor)

    books, narrow = [made(tensor) for tensor in data.books], made(random_tensor("Q8_0", VOCAB, 64))
    right = {"logits": data.logits, "hidden": data.hidden, "ids": np.zeros((2, 3), np.int32)}
    right |= {"predecessor": books[0], "successor": books[1], "names": data.names}
    right |= {"confidence": data.confidence, "confidences": nans(2, 3)}
    right["acts"] = Acts.empty(2, 96, books)
    for name, wrong in (
        ("logits", data.logits[:, 1:].copy()),
        ("logits", data.logits[:5]),
        ("logits", data.logits.astype(np.float64)),
        ("hidden", data.hidden[:5]),
        ("ids", np.zeros((2, 3), np.int64)),
        ("ids", np.zeros((3, 3), np.int32)),
        ("ids", np.zeros((0, 3), np.int32)),
        ("names", data.names[1:].copy()),
        ("confidence", data.confidence[1:].copy()),
        ("confidences", nans(3, 2)),
        ("predecessor", narrow),
        ("successor", narrow),
        ("acts", Acts.empty(1, 96, books)),
        ("acts", Acts.empty(2, 64, books)),
    ):
        arrays = right | {name: wrong}
        places = [arrays.pop(key) for key in ("logits", "hidden")]
        with pytest.raises(MismatchError):
            launch(target, *places, data.step(), **arrays)
