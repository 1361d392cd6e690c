"""mtp_project: as the ops that it stands for by equality, and as the reference."""

from types import SimpleNamespace

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import random_tensor
from rows import (
    assert_same_bits,
    both_weights,
    device_buffer,
    forms_of,
    host_acts,
    kernel_weight,
    nans,
)

from specrt._ext.host_ops import Tape
from specrt.acts import Acts, Int8Rows
from specrt.errors import MismatchError
from specrt.host.acts import HostInt8Rows
from specrt.host.embed import embed as host_embed
from specrt.host.linear import linear as host_linear
from specrt.host.mtp_project import mtp_project as host_mtp_project
from specrt.host.quantize import quantize as host_quantize
from specrt.host.rms_norm import rms_norm as host_rms_norm
from specrt.kernels.embed import embed as kernel_embed
from specrt.kernels.linear import linear as kernel_linear
from specrt.kernels.mtp_project import mtp_project as kernel_mtp_project
from specrt.kernels.quantize import quantize as kernel_quantize
from specrt.kernels.rms_norm import rms_norm as kernel_rms_norm
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
        self.width, self.role = width, role
        self.tensors = (
            random_tensor(embedding, VOCAB, width, 1),
            random_tensor(projection, OUT, 2 * width, 2),
        )
        self.embedding = both_weights(self.tensors[0])
        self.projection = both_weights(self.tensors[1], role)
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
        before = before_of(self)
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


def before_of(data):
    """The hidden row before each."""
    zeros = np.zeros(data.width, np.float32)
    return np.stack([zeros if place is None else data.hidden[place] for place in PLACES])


class OnDevice:
    """The same data as a device has it.

    Args:
        offset: bytes behind a multiple of 64, where floats begin.
        forms: which the acts have; None for what the projection reads.
    """

    def __init__(self, data, offset=0, forms=None):
        self.data = data
        self.embedding = kernel_weight(data.tensors[0])
        self.projection = kernel_weight(data.tensors[1], data.role)
        self.hidden = placed(data.hidden, offset)
        self.norms = {name: placed(norm, offset) for name, norm in data.norms.items()}
        self.readers = [SimpleNamespace(form=form) for form in forms or [self.projection.form]]

    def room(self, num_rows):
        """Acts with a row more than is used, and out."""
        acts = Acts.empty(num_rows + 1, 2 * self.data.width, self.readers, device_buffer)
        return acts, placed(nans(num_rows, OUT))

    def fused(self, seed=0, rows=slice(None)):
        """Out, the acts, and which entries ran."""
        device, (acts, out) = Recorder(seed), self.room(len(TOKENS[rows]))
        step = two_sequences(rows, lambda shape, dtype: placed(np.zeros(shape, dtype)))
        kernel_mtp_project(
            device, self.embedding, self.hidden, self.projection, step,
            **self.norms, **self.data.numbers, acts=acts, out=out,
        )  # fmt: skip
        return out, acts, device.entries

    def by_single_ops(self):
        """Embed, norms, quantise and linear, one by one."""
        device, (acts, out) = Recorder(), self.room(len(TOKENS))
        tokens, before = placed(nans(len(TOKENS), self.data.width)), placed(before_of(self.data))
        eps, scale = self.data.numbers["eps"], self.data.numbers["scale"]
        ids = placed(np.array(TOKENS, np.int32))
        kernel_embed(device, self.embedding, ids, scale=scale, out=tokens)
        kernel_rms_norm(device, tokens, self.norms["embedding_norm"], eps, out=tokens)
        kernel_rms_norm(device, before, self.norms["hidden_norm"], eps, out=before)
        kernel_quantize(device, placed(np.concatenate([tokens, before], axis=1)), out=acts)
        kernel_linear(device, [(self.projection, out)], acts)
        return out, acts


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


FUSED = [
    (TYPES[0], 96, "int8", None),
    (TYPES[0], 2080, "int8x2", None),
    (TYPES[0], 96, "int8", ("int8x2", "f32")),
    (TYPES[1], 2084, "f32", None),
    (TYPES[2], 256, "int8x2", None),
    (("F16", "Q8_0"), 48, "int8x2", ("int8x2", "f32")),  # a block of 32 is of both halves
    (("F32", "F16"), 43, "f32", None),
    (("F32", "F16"), 1301, "f32", None),
]


@needs_emulator
@pytest.mark.parametrize(("types", "width", "role", "forms"), FUSED)
def test_the_kernel_equals_those_that_it_stands_for(types, width, role, forms):
    data = Data(types, width, role)
    expected, acts = OnDevice(data, 0, forms).by_single_ops()
    assert np.isnan(expected[5]).all() and np.isfinite(expected[:5]).all()
    for seed in SEEDS:
        for offset in (0, 4):
            got, prepared, entries = OnDevice(data, offset, forms).fused(seed)
            assert_same_bits(got, expected)
            for mine, right in zip(forms_of(prepared), forms_of(acts), strict=True):
                assert mine.tobytes() == right.tobytes()  # and the spare row is as it was
            assert entries[0] == f"mtp_project_x{1 if offset or width % 4 else 4}"


@needs_emulator
@pytest.mark.parametrize("types", TYPES)
def test_the_kernel_is_near_the_reference(types):
    data = data_of(types)
    expected, (got, _, entries) = data.by_reference(), OnDevice(data).fused()
    assert np.isnan(expected[5]).all() and np.isnan(got[5]).all() and len(entries) == 2
    error = np.abs(got[:5] - expected[:5]).max() / np.abs(expected[:5]).max()
    assert error < 1e-4, error


@needs_emulator
def test_a_row_of_the_kernel_does_not_know_of_the_others():
    device = OnDevice(Data(TYPES[0]))
    whole = device.fused()[0]
    for rows in (slice(0, 1), slice(1, 3), slice(3, 6), slice(4, 5)):
        assert_same_bits(device.fused(1, rows)[0], whole[rows])
    assert device.fused(0, slice(0, 0))[2] == []


def launch_on_host(data, hidden, step, **arrays):
    host_mtp_project(
        Tape(0), data.embedding.host, hidden, data.projection.host, step, **arrays, **data.numbers
    )


def launch_kernel(data, hidden, step, **arrays):
    weights = OnDevice(data)
    kernel_mtp_project(
        Recorder(), weights.embedding, hidden, weights.projection, step, **arrays, **data.numbers
    )


@pytest.mark.parametrize(
    ("launch", "int8_rows"), [(launch_on_host, HostInt8Rows), (launch_kernel, Int8Rows)]
)
def test_wrong_arguments_are_refused(launch, int8_rows):
    data = Data(TYPES[0])

    def room(num_rows, width):
        readers = [data.projection.host]
        return Acts.empty(num_rows, width, readers, int8_rows=int8_rows)

    acts = room(6, 2 * WIDTH)
    right = {"hidden": data.hidden, **data.norms, "acts": acts, "out": nans(6, OUT)}
    for name, wrong in (
        ("hidden", data.hidden[:, :, :-1].copy()),
        ("hidden", data.hidden[:, :0]),
        ("hidden_norm", data.norms["hidden_norm"][:-1]),
        ("embedding_norm", data.norms["hidden_norm"].astype(np.float64)),
        ("acts", room(6, WIDTH)),
        ("acts", room(5, 2 * WIDTH)),
        ("acts", Acts(6, 2 * WIDTH, None, None, None)),
        ("out", nans(6, OUT + 1)),
        ("out", nans(7, OUT)),
    ):
        arrays = right | {name: wrong}
        with pytest.raises(MismatchError):
            launch(data, arrays.pop("hidden"), two_sequences(), **arrays)
