"""Faults put into the real kernels: the emulator, or the values, tell each."""

from importlib import import_module

import numpy as np
import pytest
from emulated import broken, needs_emulator, placed
from kernels.emulator.drawing import run_sample
from ops.rows import assert_same_bits, empty_acts, nans

from specrt.kernels.accept import accept
from specrt.kernels.copy import copy
from specrt.kernels.emulator import Emulator, KernelError
from specrt.kernels.glu import glu
from specrt.kernels.rms_norm import rms_norm
from specrt.kernels.select import select
from specrt.state.step import StepInputs

pytestmark = needs_emulator


def run_glu(device, width):
    gate, up, out = (placed(x) for x in np.ones((3, 17, width), np.float32))
    glu(device, gate, up, activation="silu", out=out)
    return out


def run_copy(device, width):
    out = placed(nans(5, width))
    copy(device, placed(np.arange(5 * width, dtype=np.float32).reshape(5, width)), out=out)
    return out


def run_rms_norm(device, width):
    x = np.random.default_rng(4).standard_normal((5, width), dtype=np.float32)
    out = placed(nans(5, width))
    rms_norm(device, placed(x), None, 1e-6, out=out)
    return out


def run_rms_norm_acts(device, width):
    """Codes and scales alone, of rows of whole blocks."""
    width -= width % 32
    x = np.random.default_rng(4).standard_normal((5, width), dtype=np.float32)
    acts = empty_acts("int8", 5, width)
    rms_norm(device, placed(x), None, 1e-6, out=None, acts=acts)
    return acts.first.d + acts.first.q.reshape(5, -1, 32).sum(axis=2, dtype=np.int32)


def run_accept(device, width):
    """Two windows whose rows all agree with what follows, be it the other window's."""
    step = StepInputs(2 * width, 2, 1, 0, lambda shape, dtype: placed(np.zeros(shape, dtype)))
    step.tokens[:] = np.arange(2 * width)
    step.positions[:] = np.arange(2 * width) + 50
    step.row_offsets[:] = [0, width, 2 * width]
    out = placed(np.full((2, 3), -1, np.int32))
    accept(device, placed(np.arange(1, 2 * width + 1, dtype=np.int32)), step, out=out)
    return out


def run_select(device, width):
    """The last row, one behind it, the first, and one before it."""
    x, out = placed(np.ones((5, width), np.float32)), placed(nans(4, width))
    x[:] = np.arange(5)[:, None]
    select(device, x, placed(np.array([4, 5, 0, -1], np.int32)), out=out)
    return out


FAULTS = {
    "a removed barrier": (
        *("common.cuh", "    __syncthreads();\n", "", run_rms_norm, 333),
        r"no barrier between .* common\.cuh:\d+",
    ),
    "a barrier in a branch": (
        *("common.cuh", "    if (threadIdx.x % 32 == 0)\n        store(partial", None),
        *(run_rms_norm, 333, r"meet at different barriers: common\.cuh:\d+ and common\.cuh:\d+"),
    ),
    "a mask without the caller": (
        *("common.cuh", "__shfl_xor_sync(0xffffffffu", "__shfl_xor_sync(0x0000ffffu"),
        *(run_rms_norm, 333, "without it|which is not in mask"),
    ),
    "a row that is one too long": (
        *("rms_norm.cu", "x + start + i, r.width - i)", "x + start + i, r.width - i + 1)"),
        *(run_rms_norm, 333, r"4 bytes at .* outside of shared memory and of every array"),
    ),
    "a block that is one thread too long": (
        *("glu.cu", "if (i >= count)", "if (i > count)"),
        *(run_glu, 132, "16 bytes at .* outside"),
    ),
    "a tail that is taken as whole": (
        *("glu.cu", "const int n = count - i < 4 ? static_cast<int>(count - i) : 4;"),
        *("const int n = 4;", run_glu, 131, "4 bytes at .* outside"),
    ),
    "a loop that is one item too long": (
        *("rows.cuh", "i < num_items", "i <= num_items", run_copy, 77),
        "4 bytes at .* outside",
    ),
    "a row behind the last": (
        *("select.cu", "chosen < num_rows", "chosen <= num_rows", run_select, 77),
        "4 bytes at .* outside",
    ),
    "a row before the first": (
        *("select.cu", "0 <= chosen", "-1 <= chosen", run_select, 77),
        "4 bytes at .* outside",
    ),
    "a lane that leaves before the others": (
        *("rms_norm.cu", "const bool there = i < r.width;"),
        *("const bool there = i < r.width; if (!there) return;", run_rms_norm_acts, 96),
        "which has ended",
    ),
    "a block of codes behind the row": (
        *("rms_norm.cu", "const bool there = i < r.width", "const bool there = i < r.width + 4"),
        *(run_rms_norm_acts, 96, "16 bytes at .* outside"),
    ),
    "no barrier before partial sums are written again": (
        *("sample.cu", "    __syncthreads(); /* nobody reads partial any more */\n"),
        *("", run_sample, 132, r"no barrier between .* sample\.cu:\d+"),
    ),
    "a bin behind the last": (
        *("sample.cu", "(distance(t) >> shift) % THREADS", "700", run_sample, 132),
        "8 bytes at .* outside of shared memory",
    ),
    "a window that is one row too long": (
        *("accept.cu", "row + 1 >= end", "row >= end", run_accept, 33),
        "4 bytes at .* outside",
    ),
    "a vote without the warp": (
        *("accept.cu", "__ballot_sync(0xffffffffu", "__ballot_sync(0x7fffffffu", run_accept, 33),
        "without it",
    ),
    "an item that is one too far": (
        *("rows.cuh", "load(items + i)", "load(items + i + 1)", run_copy, 77),
        "4 bytes at .* outside",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_names_the_line(tmp_path, fault):
    file, right, wrong, run, width, message = FAULTS[fault]
    if wrong is None:
        wrong = "    if (threadIdx.x < 32)\n        __syncthreads();\n" + right
    with pytest.raises(KernelError, match=message) as caught:
        run(broken(tmp_path, file, right, wrong), width)
    assert ".cu" in str(caught.value)


SAMPLE_FAULTS = [
    # No barrier behind cleared bins, nor behind edited logits.
    ("static_cast<u64>(0));\n    __syncthreads();", "static_cast<u64>(0));"),
    ("one.w + count));\n    }\n    __syncthreads();", "one.w + count));\n    }"),
    ("static_cast<u64>(load(&draw->top_k))", "static_cast<u64>(load(&draw->top_k) + 1)"),
    ("load(positions + number) + 1", "load(positions + number)"),
    ("tokens + first + 1, ", "tokens + first, "),
]


@pytest.mark.parametrize(
    ("file", "right", "wrong", "run"),
    [
        ("common.cuh", "flip > 0", "flip > 1", run_rms_norm),
        (
            "rms_norm.cu",
            "static_cast<long long>(blockIdx.x) * r.width",
            "0 * r.width",
            run_rms_norm,
        ),
        ("copy.cu", "row * x_stride", "(row ^ 1) % 5 * x_stride", run_copy),
        ("glu.cu", "__fsub_rn(0.0f, g)", "g", run_glu),
        ("accept.cu", "load(tokens + row + 1)", "load(tokens + row)", run_accept),
        ("accept.cu", "row + 1 >= end", "row + 2 >= end", run_accept),
        ("quantize.cuh", "flip = 4; flip > 0", "flip = 2; flip > 0", run_rms_norm_acts),
        ("rms_norm.cu", "(acts, v, start + i", "(acts, v, i", run_rms_norm_acts),
        *(("sample.cu", right, wrong, run_sample) for right, wrong in SAMPLE_FAULTS),
        ("draw.cuh", "order_key(x, id) <= row.cut", "order_key(x, id) < row.cut", run_sample),
        ("select.cu", "chosen * x_stride", "row * x_stride", run_select),
        ("accept.cu", "load(positions + first)", "load(positions)", run_accept),
    ],
)
def test_the_values_are_wrong(tmp_path, file, right, wrong, run):
    got, expected = run(broken(tmp_path, file, right, wrong), 132), run(Emulator(), 132)
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(got, expected)


def test_faults_of_a_launcher(monkeypatch):
    rms_norm_launcher = import_module("specrt.kernels.rms_norm")
    x = placed(np.ones((3, 64), np.float32), offset=4)
    rms_norm_launcher = import_module("specrt.kernels.rms_norm")
    monkeypatch.setattr(rms_norm_launcher, "aligned", lambda *_: True)
    with pytest.raises(KernelError, match="misaligned: 16 bytes"):
        rms_norm(Emulator(), x, None, 1e-6, out=nans(3, 64))
    monkeypatch.undo()
    for threads, message in ((128, "launch bound, 256"), (320, "launch bound, 256")):
        monkeypatch.setattr(rms_norm_launcher, "THREADS", threads)
        with pytest.raises(KernelError, match=message):
            rms_norm(Emulator(), x, None, 1e-6, out=nans(3, 64))


def test_too_little_shared_memory():
    class Less(Emulator):
        def launch(self, file, entry, grid, block, args, shared_bytes=0):
            super().launch(file, entry, grid, block, args, shared_bytes - 4)

    x = np.ones((3, 64), np.float32)
    with pytest.raises(KernelError, match=r"4 bytes at .* outside of shared memory"):
        rms_norm(Less(), x, None, 1e-6, out=nans(3, 64))
