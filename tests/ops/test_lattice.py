"""lattice: host and kernel against float64 and plain float32, all instruction sets by equality."""

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import random_tensor
from rows import assert_same_bits, kernel_weight, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.lattice import lattice as host_lattice
from specrt.host.weights import HostTable
from specrt.kernels.lattice import lattice as kernel_lattice
from specrt.reference.lattice import lattice
from specrt.reference.quant_blocks import QUANT_TYPES, dequantize
from specrt.reference.weights import ReferenceWeight
from specrt.state.step import StepInputs

VOCAB = 61
ALL_TYPES = [*QUANT_TYPES, "F16", "BF16", "F32"]


def width_of(kind):
    return 256 if QUANT_TYPES.get(kind) and QUANT_TYPES[kind].block == 256 else 96


class Data:
    """B blocks of n rows of k candidates, with codebooks of two types."""

    def __init__(self, types, width, blocks=(3, 4, 5), named=False, seed=0):
        num_seqs, n, k = blocks
        rng = np.random.default_rng([seed, width, *blocks])
        self.types, self.blocks, self.width = types, blocks, width
        self.books = [random_tensor(kind, VOCAB, width, i) for i, kind in enumerate(types)]
        shape = (num_seqs * n, k)
        self.names = rng.permutation(VOCAB).astype(np.int32) if named else None
        self.ids = np.argsort(rng.random((shape[0], VOCAB)), axis=1)[:, :k].astype(np.int32)
        self.logits = rng.standard_normal(shape, dtype=np.float32) * 5
        self.gates = rng.standard_normal((shape[0], width), dtype=np.float32)
        self.anchors = rng.integers(0, VOCAB, num_seqs)

    def step(self, buffer=np.zeros):
        """As many rows as the blocks have, and one before them."""
        num_seqs, n, _ = self.blocks
        step = StepInputs(1 + num_seqs * n, num_seqs, 1, 0, buffer)
        step.row_offsets[:] = 1 + n * np.arange(num_seqs + 1)
        step.tokens[:] = -5
        step.tokens[step.row_offsets[:-1]] = self.anchors
        return step

    def run(self, op, make, place=lambda x: x, buffer=np.zeros):
        num_seqs, n, k = self.blocks
        scores = place(nans(num_seqs, k + k * k * (n - 1)))
        predecessor, successor = map(make, self.books)
        op(
            place(self.ids), place(self.logits), place(self.gates), self.step(buffer),
            predecessor=predecessor, successor=successor,
            names=None if self.names is None else place(self.names), scores=scores,
        )  # fmt: skip
        return scores

    def by_reference(self):
        return self.run(lattice, lambda tensor: ReferenceWeight(tensor, "int8", None))

    def on_host(self, level):
        def op(*args, **keywords):
            tape = Tape(level)
            host_lattice(tape, *args, **keywords)
            tape.run()

        return self.run(op, HostTable)

    def on_device(self, seed=0, offset=0):
        """The scores, and which entries ran."""
        device = Recorder(seed)
        scores = self.run(
            lambda *args, **keywords: kernel_lattice(device, *args, **keywords),
            kernel_weight,
            lambda x: placed(x, offset if x.dtype == np.float32 else 0),
            lambda shape, dtype: placed(np.zeros(shape, dtype)),
        )
        return scores, device.entries

    def exact(self):
        """In float64, pair by pair."""
        num_seqs, n, k = self.blocks
        named = self.ids if self.names is None else self.names[self.ids]
        before, after = (
            dequantize(book.type.name, book.raw).astype(np.float64) for book in self.books
        )
        scores = []
        for b in range(num_seqs):
            tokens = [self.anchors[b]]
            for t in range(b * n, (b + 1) * n):
                for token in tokens:
                    weighted = before[token] * self.gates[t].astype(np.float64)
                    scores += [self.logits[t, c] + weighted @ after[named[t, c]] for c in range(k)]
                tokens = named[t]
        return np.array(scores).reshape(num_seqs, -1)


def assert_all_near(data, got):
    assert_accurate(got, data.by_reference(), data.exact())


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("kind", ALL_TYPES)
def test_host_scores_every_pair(level, kind):
    data = Data((kind, kind), width_of(kind), named=kind == "Q8_0")
    assert_all_near(data, data.on_host(level))


CASES = [
    (("Q8_0", "F16"), 96, (1, 1, 7), True),
    (("F32", "F32"), 43, (2, 3, 17), True),
    (("F16", "Q4_K"), 256, (1, 5, 16), False),
    (("BF16", "BF16"), 3, (3, 2, 1), True),
    (("Q6_K", "Q8_0"), 256, (1, 2, 33), False),
]


@pytest.mark.parametrize("case", CASES)
def test_instruction_sets_agree_on_odd_sizes(case):
    data = Data(*case)
    results = [data.on_host(level) for level in LEVELS.values()]
    assert_all_near(data, results[0])
    for other in results[1:]:
        assert_same_bits(other, results[0])


@needs_emulator
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("offset", [0, 4])
def test_the_kernel_scores_every_pair(case, offset):
    data = Data(*case)
    results = []
    for seed in SEEDS:
        scores, entries = data.on_device(seed, offset)
        assert entries == [f"lattice_x{1 if offset or data.width % 4 else 4}"]
        results.append(scores)
    results.append(data.on_host(max(LEVELS.values())))  # which adds in the same order
    assert_all_near(data, results[0])
    for other in results[1:]:
        assert_same_bits(other, results[0])


@needs_emulator
@pytest.mark.parametrize("kind", ALL_TYPES)
def test_the_kernel_decodes_every_type(kind):
    data = Data((kind, kind), width_of(kind), (1, 2, 3))
    assert_all_near(data, data.on_device()[0])


def hosted(data):
    return data.on_host(max(LEVELS.values()))


def emulated(data):
    return data.on_device()[0]


RUNS = [hosted, pytest.param(emulated, marks=needs_emulator)]


@pytest.mark.parametrize("run", RUNS)
def test_a_block_does_not_know_of_the_others(run):
    whole = Data(("Q8_0", "Q8_0"), 96, (3, 4, 5))
    together = run(whole)
    for b in range(3):
        one = Data(("Q8_0", "Q8_0"), 96, (1, 4, 5))
        rows = slice(4 * b, 4 * b + 4)
        one.ids, one.logits, one.gates = whole.ids[rows], whole.logits[rows], whole.gates[rows]
        one.anchors = whole.anchors[b : b + 1]
        assert_same_bits(run(one), together[b : b + 1])


@pytest.mark.parametrize("run", RUNS)
def test_an_id_that_is_none_gives_nan(run):
    """As predecessor all that follows it, as candidate its own column."""
    data = Data(("F16", "F16"), 40, (1, 3, 4), named=True)
    data.names[data.ids[0, 2]] = VOCAB
    data.anchors[:] = VOCAB - 1
    data.names[data.ids[1, 1]] = -1
    for ids, others in ((data.ids[1], data.ids[0, 2]), (data.ids[2], data.ids[1, 1])):
        ids[ids == others] = data.ids[0, 0]
    data.ids[2][data.ids[2] == data.ids[0, 2]] = data.ids[0, 0]
    got, k = run(data)[0], 4
    expected = np.isnan(data.by_reference()[0])
    assert (np.isnan(got) == expected).all()
    first, second, third = expected[:k], expected[k:20].reshape(k, k), expected[20:].reshape(k, k)
    assert first.tolist() == [False, False, True, False]
    assert second[2].all() and second[:, 1].all() and second.sum() >= 2 * k - 1
    assert third[1].all() and not third[0].any()


@pytest.mark.parametrize("launch", [host_lattice, kernel_lattice])
def test_wrong_arguments_are_refused(launch):
    target = Tape(0) if launch is host_lattice else Recorder()
    data = Data(("F16", "F16"), 40, (2, 3, 4), named=True)
    make = HostTable if launch is host_lattice else kernel_weight
    books = {"predecessor": make(data.books[0]), "successor": make(data.books[1])}
    narrow = make(random_tensor("F16", VOCAB, 39))
    right = {"ids": data.ids, "logits": data.logits, "gates": data.gates, "names": data.names}
    right |= books | {"scores": nans(2, 4 + 16 * 2)}
    for name, wrong in (
        ("ids", data.ids.astype(np.int64)),
        ("ids", data.ids[:5]),
        ("ids", data.ids[:, :0].copy()),
        ("logits", data.logits[:, :3].copy()),
        ("gates", data.gates[:, :-1].copy()),
        ("names", data.names.astype(np.float32)),
        ("scores", nans(2, 35)),
        ("scores", nans(3, 36)),
        ("scores", nans(0, 36)),
        ("predecessor", narrow),
        ("successor", narrow),
    ):
        arrays = right | {name: wrong}
        places = [arrays.pop(key) for key in ("ids", "logits", "gates")]
        with pytest.raises(MismatchError, match="lattice"):
            launch(target, *places, data.step(), **arrays)
