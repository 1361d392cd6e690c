"""mtp_project: as the ops that it stands for by equality, and as the reference."""

import numpy as np
import pytest
from levels import LEVELS
from quant_data import random_tensor
from rows import assert_same_bits, both_weights, host_acts, nans

from specrt._ext.host_ops import Tape
from specrt.acts import Acts
from specrt.errors import MismatchError
from specrt.host.embed import embed as host_embed
from specrt.host.linear import linear as host_linear
from specrt.host.mtp_project import mtp_project as host_mtp_project
from specrt.host.quantize import quantize as host_quantize
from specrt.host.rms_norm import rms_norm as host_rms_norm
from specrt.reference.mtp_project import mtp_project
from specrt.state.step import StepInputs

SLOTS, RING, VOCAB, WIDTH, OUT = 3, 5, 13, 96, 21
TOKENS, POSITIONS = [3, 12, 0, 7, 5, -1], [11, 12, 13, 0, 1, 2]
SEQS, PLACES = [0, 0, 0, 1, 1, 1], [(2, 0), (2, 1), (2, 2), None, (0, 0), (0, 1)]
TYPES = [("Q8_0", "Q8_0"), ("F16", "F16"), ("Q4_K", "Q6_K"), ("F32", "Q4_1")]


def two_sequences(rows=slice(None), buffer=np.zeros):
    """Rows from 11 on of a sequence in slot 2 and from 0 on of one in slot 0, or some of them."""
    step = StepInputs(6, 2, 1, 0, buffer)
    for array, values in ((step.tokens, TOKENS), (step.positions, POSITIONS)):
        array[: len(values[rows])] = values[rows]
    step.row_seqs[: len(SEQS[rows])] = SEQS[rows]
    step.slots[:] = 2, 0
    return step


class Data:
    """Weights, norms and a ring of hidden rows."""

    def __init__(self, types, width=WIDTH, role="int8x2"):
        rng = np.random.default_rng(width)
        embedding, projection = types
        self.width = width
        self.embedding = both_weights(random_tensor(embedding, VOCAB, width, 1))
        self.projection = both_weights(random_tensor(projection, OUT, 2 * width, 2), role)
        self.hidden = rng.standard_normal((SLOTS, RING, width), dtype=np.float32) * 7
        self.norms = {
            "embedding_norm": rng.standard_normal(width, dtype=np.float32),
            "hidden_norm": rng.standard_normal(width, dtype=np.float32),
        }
        self.numbers = {"scale": 1.5, "eps": 1e-6}

    def on_host(self, level, rows=slice(None)):
        num_rows = len(TOKENS[rows])
        acts = host_acts(num_rows, 2 * self.width, [self.projection.host])
        out, tape = nans(num_rows, OUT), Tape(level)
        host_mtp_project(
            tape, self.embedding.host, self.hidden, self.projection.host, two_sequences(rows),
            **self.norms, **self.numbers, acts=acts, out=out,
        )  # fmt: skip
        tape.run()
        return out

    def by_single_ops(self, level):
        """Embed, norms, quantise and linear, one by one."""
        tokens, joined = nans(len(TOKENS), self.width), nans(len(TOKENS), 2 * self.width)
        before = np.stack(
            [np.zeros(self.width, "f") if p is None else self.hidden[p] for p in PLACES]
        )
        acts = host_acts(*joined.shape, [self.projection.host])
        out, tape = nans(len(TOKENS), OUT), Tape(level)
        eps, scale = self.numbers["eps"], self.numbers["scale"]
        host_embed(tape, self.embedding.host, two_sequences().tokens, scale=scale, out=tokens)
        halves = [np.empty_like(tokens), np.empty_like(tokens)]
        host_rms_norm(tape, tokens, self.norms["embedding_norm"], eps, out=halves[0])
        host_rms_norm(tape, before, self.norms["hidden_norm"], eps, out=halves[1])
        tape.run()
        joined[:] = np.concatenate(halves, axis=1)
        tape = Tape(level)
        host_quantize(tape, joined, out=acts)
        host_linear(tape, [(self.projection.host, out)], acts)
        tape.run()
        return out

    def by_reference(self):
        acts = Acts.empty(len(TOKENS), 2 * self.width, [self.projection.reference])
        out = nans(len(TOKENS), OUT)
        mtp_project(
            self.embedding.reference, self.hidden, self.projection.reference, two_sequences(),
            **self.norms, **self.numbers, acts=acts, out=out,
        )  # fmt: skip
        return out


def data_of(types):
    return Data(types, 256 if "Q4_K" in types else WIDTH)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("types", TYPES)
def test_it_equals_the_ops_that_it_stands_for(level, types):
    data = data_of(types)
    got = data.on_host(level)
    assert_same_bits(got, data.by_single_ops(level))
    assert np.isnan(got[5]).all() and np.isfinite(got[:5]).all()


@pytest.mark.parametrize("types", TYPES)
def test_host_is_near_the_reference_and_all_instruction_sets_agree(types):
    data = data_of(types)
    expected, got = data.by_reference(), [data.on_host(level) for level in LEVELS.values()]
    for other in got[1:]:
        assert_same_bits(other, got[0])
    assert np.isnan(expected[5]).all()
    error = np.abs(got[0][:5] - expected[:5]).max() / np.abs(expected[:5]).max()
    assert error < 1e-4, error


def test_a_width_that_is_no_multiple_of_lanes():
    data = Data(("F32", "F16"), width=43)
    for level in LEVELS.values():
        assert_same_bits(data.on_host(level), data.by_single_ops(level))


def test_a_row_does_not_know_of_the_others():
    data, level = Data(TYPES[0]), max(LEVELS.values())
    whole = data.on_host(level)
    for rows in (slice(0, 1), slice(1, 3), slice(3, 6), slice(4, 5)):
        assert_same_bits(data.on_host(level, rows), whole[rows])


def test_wrong_arguments_are_refused():
    data, acts = Data(TYPES[0]), host_acts(6, 2 * WIDTH, [Data(TYPES[0]).projection.host])
    right = {"hidden": data.hidden, **data.norms, "acts": acts, "out": nans(6, OUT)}
    for name, wrong in (
        ("hidden", data.hidden[:, :, :-1].copy()),
        ("hidden", data.hidden[:, :0]),
        ("hidden_norm", data.norms["hidden_norm"][:-1]),
        ("embedding_norm", data.norms["hidden_norm"].astype(np.float64)),
        ("acts", host_acts(6, WIDTH, [data.projection.host])),
        ("out", nans(6, OUT + 1)),
        ("out", nans(7, OUT)),
    ):
        arrays = right | {name: wrong}
        with pytest.raises(MismatchError):
            host_mtp_project(
                Tape(0), data.embedding.host, arrays.pop("hidden"), data.projection.host,
                two_sequences(), **arrays, **data.numbers,
            )  # fmt: skip
