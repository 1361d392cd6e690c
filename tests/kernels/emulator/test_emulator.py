"""Launches, arithmetic, and what the emulator refuses."""

import ctypes
import platform

import numpy as np
import pytest
from emulated import needs_emulator
from toy_kernels import SEEDS, THREADS, launch

from specrt.errors import UnsupportedError
from specrt.kernels._module import kernel_folder
from specrt.kernels.copy import copy
from specrt.kernels.emulator import Emulator, KernelError
from specrt.kernels.emulator.build import load_library

pytestmark = needs_emulator


def test_dp4a():
    a, b = np.random.default_rng(1).integers(-128, 128, (2, THREADS, 4)).astype(np.int8)
    a[0] = b[0] = -128
    out = np.zeros(THREADS, np.int32)
    launch("dot", a.view(np.int32), b.view(np.int32), out)
    assert (out == (a.astype(np.int32) * b).sum(axis=1) - 7).all()


def test_conversions_round_to_even_and_saturate():
    x, out = np.zeros(THREADS, np.float32), np.zeros(THREADS, np.int32)
    x[:8] = 0.5, 1.5, -2.5, np.nan, 3e9, -3e9, np.inf, -(2.0**31)
    launch("convert", x, out)
    most = 2**31 - 1
    assert out[:8].tolist() == [0, 2, -2, 0, most, -most - 1, most, -most - 1]


@pytest.mark.parametrize("flush", [False, True])
def test_halves_are_those_of_numpy_whether_subnormals_are_zeros_or_not(flush):
    bits = np.resize(np.arange(2**16, dtype=np.uint16), 683 * THREADS)
    exact = bits.view(np.float16).astype(np.float32)
    halfway = exact.view(np.int32) + np.resize(
        np.array([0xFFF, 0x1000, 0x1001], np.int32), len(bits)
    )
    with np.errstate(invalid="ignore"):  # a signalling NaN
        subnormal = exact + np.float32(2.0**-25)
    x = np.where(np.abs(exact) < 2.0**-14, subnormal, halfway.view(np.float32))
    rounded, out = np.zeros(len(x), np.uint16), np.zeros(len(x), np.float32)
    launch("halves", x, rounded, bits, out, grid=683, flush=flush)
    nan = np.isnan(exact)
    assert (np.isnan(out) == nan).all() and (out.view(np.int32) == exact.view(np.int32))[~nan].all()
    nan = np.isnan(x)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).view(np.uint16)
    assert nan.any() and (rounded[nan] == 0x7FFF).all() and (rounded == expected)[~nan].all()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets MXCSR")
def test_the_callers_float_environment_is_neither_used_nor_lost():
    libm = ctypes.CDLL(None)
    before, during = np.zeros((2, 8), np.uint32)
    x, out, flushed = np.zeros((3, THREADS), np.float32)
    x[:] = 1e-41
    half = (x * np.float32(0.5)).view(np.int32)
    libm.fegetenv(before.ctypes.data_as(ctypes.c_void_p))
    wanted = before.copy()
    wanted[7] |= 0x8040  # flush to zero, denormals are zero
    libm.fesetenv(wanted.ctypes.data_as(ctypes.c_void_p))
    launch("halve", x, out, flush=False)
    libm.fegetenv(during.ctypes.data_as(ctypes.c_void_p))
    libm.fesetenv(before.ctypes.data_as(ctypes.c_void_p))
    assert during[7] & 0x8040 == 0x8040
    launch("halve", x, flushed)
    assert (out.view(np.int32) == half).all() and half.all() and not flushed.any()


@pytest.mark.parametrize("seed", SEEDS)
def test_products_of_matrices(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (3, 16, 32)), rng.integers(-128, 128, (3, 32, 8))
    a[0, :3], b[0, :, 2:] = -128, -128
    c = rng.integers(-(2**30), 2**30, (3, 16, 8)).astype(np.int32)
    expected = c + 2 * (a @ b)
    columns = np.ascontiguousarray(b.transpose(0, 2, 1)).astype(np.int8)
    launch("product", a.astype(np.int8), columns, c, shared=3 * 512, seed=seed)
    assert (c == expected).all()


def fragment_places(lane):
    """Row and column of each of a lane's elements of A, B and C, as the PTX ISA computes them.

    Source: Matrix Fragments for mma.m16n8k32 with .s8 type (groupID, threadID_in_group, i).
    """
    group, thread = lane >> 2, lane % 4
    a = [
        (
            group if i < 4 or 8 <= i < 12 else group + 8,
            thread * 4 + (i & 3) + (0 if i < 8 else 16),
        )
        for i in range(16)
    ]
    b = [(thread * 4 + (i & 3) + (0 if i < 4 else 16), group) for i in range(8)]
    c = [(group if i < 2 else group + 8, thread * 2 + (i & 1)) for i in range(4)]
    return a, b, c


def test_fragments_lie_as_the_ptx_isa_says():
    rng = np.random.default_rng(8)
    a, b = rng.integers(-128, 128, (16, 32)), rng.integers(-128, 128, (32, 8))
    places = [fragment_places(lane) for lane in range(32)]
    of_a = np.array([[a[place] for place in lane[0]] for lane in places], np.int8)
    of_b = np.array([[b[place] for place in lane[1]] for lane in places], np.int8)
    of_c = np.zeros((32, 4), np.int32)
    launch("product_of_fragments", of_a.view(np.int32), of_b.view(np.int32), of_c, block=32)
    c = np.zeros((16, 8), np.int32)
    for lane, values in zip(places, of_c, strict=True):
        for place, value in zip(lane[2], values, strict=True):
            c[place] = value
    assert (c == a @ b).all()


def test_products_take_whole_warps_and_aligned_rows():
    c = np.zeros(THREADS, np.int32)
    with pytest.raises(KernelError, match=r"has ended|all threads wait"):
        launch("product_of_half_a_warp", c)
    with pytest.raises(KernelError, match="misaligned"):
        launch("matrices_of_odd_rows", c, shared=4 * THREADS + 16)
    with pytest.raises(KernelError, match="ldmatrix reads 16 bytes"):
        launch("matrices_of_odd_rows", c, shared=0)


def test_arguments_have_the_types_of_the_parameters():
    right = (None, np.int32(1), np.uint32(2), np.int64(3), np.uint64(4), np.float32(5))
    out = np.zeros(1, np.float32)
    launch("typed", *right, out)
    assert out[0] == 15
    for place, wrong in ((1, np.int64(1)), (1, np.float32(1)), (2, np.int32(1)), (5, out)):
        args = [*right, out]
        args[place] = wrong
        with pytest.raises(KernelError, match="expected piulkfp"):
            launch("typed", *args)
    for wrong in (1, 1.0, np.float64(1), [1]):
        with pytest.raises(KernelError, match="argument 0 is a"):
            launch("typed", wrong, *right[1:], out)
    with pytest.raises(KernelError, match="arguments piulkf; expected piulkfp"):
        launch("typed", *right)


def test_launches_that_no_device_allows():
    out = np.zeros(THREADS, np.int32)
    for sizes, message in (
        ({"grid": 0}, "grid"),
        ({"block": 1025}, "1025 threads"),
        ({"block": 64}, "64 threads a block; expected its launch bound, 96"),
        ({"shared": 49153}, r"49153 bytes .* at most 49152, .*sm_75 has 64 KB"),
    ):
        with pytest.raises(KernelError, match=message):
            launch("unwritten", out, **sizes)


ENTRY = 'extern "C" __global__ void __launch_bounds__(32) entry(float *out)\n'


@pytest.mark.parametrize(
    "text",
    [
        ENTRY + "{ __shared__ float s[4]; store(out, s[0]); }",
        ENTRY + '{ asm volatile("" ::: "memory"); }',
        ENTRY + "{ store(out, expf(1.0f)); }",
        ENTRY + "{ atomicAdd(out, 1.0f); }",
        ENTRY + "{ __half h; }",
        'extern "C" __global__ void entry(float *out) { store(out, 1.0f); }',
    ],
)
def test_what_the_emulator_does_not_know_is_refused(tmp_path, text):
    (tmp_path / "unknown.cu").write_text('#include "device.cuh"\n' + text + "\n")
    with pytest.raises(UnsupportedError, match=r"unknown\.cu"):
        load_library("unknown", tmp_path)


def test_macros_are_part_of_the_text(tmp_path):
    source = '#include "device.cuh"\n' + ENTRY + "{ store(out, VALUE); }\n"
    (tmp_path / "k.cu").write_text(source)
    device, out = Emulator(0, tmp_path), np.zeros(1, np.float32)
    for value in (3, 5, 3):
        device.launch("k", "entry", (1,), 32, (out,), defines=(f"VALUE {value}.0f",))
        assert out[0] == value


def test_a_library_is_compiled_once_per_text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "k.cu"
    source.write_text('#include "device.cuh"\n' + ENTRY + "{ store(out, 1.0f); }\n")
    first = load_library("k", tmp_path)
    assert isinstance(first, ctypes.PyDLL)
    assert load_library("k", tmp_path)._name == first._name
    source.write_text(source.read_text().replace("1.0f", "2.0f"))
    assert load_library("k", tmp_path)._name != first._name
    out = np.zeros(1, np.float32)
    Emulator(0, tmp_path).launch("k", "entry", (1,), 32, (out,))


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UnsupportedError, match=r"no kernel can be kept in .*set XDG_CACHE_HOME"):
        load_library("copy", kernel_folder())


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "no program"])
def test_a_compiler_that_is_none_is_told(monkeypatch, tmp_path, text):
    compiler = tmp_path / "cc"
    compiler.write_text(text)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(UnsupportedError, match=r"cc is no C\+\+ compiler .*set it to one"):
        load_library("copy", kernel_folder())


def test_what_is_compiled_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        device = Emulator(verbose=True)
        ids = device.zeros((1, 4), np.int32)
        copy(device, ids, out=device.zeros((1, 4), np.int32))
    assert capsys.readouterr().err == "compiling cuda/copy.cu for the emulator\n"
