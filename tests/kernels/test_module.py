"""Where kernels are found, how their text is made, and CUDA as far as it can be held without it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from fake_cupy import FakeCupy

from specrt.errors import MismatchError, UnsupportedError
from specrt.kernels import _module
from specrt.kernels._module import OPTIONS, expand, find_cuda, kernel_folder
from specrt.kernels.cuda import CudaDevice
from specrt.kernels.glu import glu
from specrt.ops import usable_cuda

ROOT = Path(__file__).parents[2]


def test_kernels_of_the_checkout():
    assert kernel_folder() == ROOT / "cuda"


def test_kernels_of_a_wheel_come_first(tmp_path, monkeypatch):
    """Another package may have put a folder ``cuda`` beside specrt."""
    monkeypatch.setattr(_module, "__file__", str(tmp_path / "specrt" / "kernels" / "_module.py"))
    (tmp_path / "cuda").mkdir()
    with pytest.raises(UnsupportedError, match="no CUDA kernels"):
        kernel_folder()
    (tmp_path / "cuda" / "common.cuh").touch()
    assert kernel_folder() == tmp_path / "cuda"
    (tmp_path / "specrt" / "cuda").mkdir(parents=True)
    (tmp_path / "specrt" / "cuda" / "common.cuh").touch()
    assert kernel_folder() == tmp_path / "specrt" / "cuda"


def test_includes_are_put_in_once_and_lines_keep_their_numbers(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    (second / "a.cu").write_text('#include "b.cuh"\n#include "c.cuh"\nint a;\n')
    (second / "b.cuh").write_text('#include <cmath>\n# include "c.cuh"\nint b;\n')
    (second / "c.cuh").write_text("int wrong;\n")
    (first / "c.cuh").write_text("int c;\n")
    assert expand("a.cu", (first, second)).splitlines() == [
        *('#line 1 "a.cu"', '#line 1 "b.cuh"', "#include <cmath>", '#line 1 "c.cuh"', "int c;"),
        *('#line 3 "b.cuh"', "int b;", '#line 2 "a.cu"', '#line 3 "a.cu"', "int a;"),
    ]
    (first / "c.cuh").unlink(), (second / "c.cuh").unlink()
    with pytest.raises(UnsupportedError, match=r"c\.cuh is in none of"):
        expand("a.cu", (first, second))


@pytest.mark.parametrize(
    ("cupy", "message"),
    [
        (None, r"CUDA needs CuPy .* install specrt\[cuda12\] or specrt\[cuda13\]"),
        (FakeCupy(devices=RuntimeError("cudaErrorInsufficientDriver")), "InsufficientDriver"),
        (FakeCupy(devices=0), "0 CUDA devices"),
        (FakeCupy(capability="70"), r"compute capability 7\.0; expected 7\.5"),
        (FakeCupy(nvrtc=OSError("libnvrtc.so")), "no NVRTC .*install nvidia-cuda-nvrtc"),
    ],
)
def test_what_is_missing_is_said(monkeypatch, cupy, message):
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert not usable_cuda()
    with pytest.raises(UnsupportedError, match=message):
        find_cuda()
    with pytest.raises(UnsupportedError, match=message):
        CudaDevice()


def test_a_module_is_compiled_when_first_launched_and_once(monkeypatch, capsys):
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert usable_cuda()
    device = CudaDevice(verbose=True)
    assert cupy.modules == []
    gate, up, out = (device.zeros((5, 77), np.float32) for _ in range(3))
    for _ in range(2):
        glu(device, gate, up, activation="silu", out=out)
    glu(device, gate, up, activation="gelu_tanh", out=out)
    assert cupy.modules == [(expand("glu.cu", (ROOT / "cuda",)), OPTIONS)]
    assert "--fmad=false" in OPTIONS and '#include "' not in cupy.modules[0][0]
    assert capsys.readouterr().err == "compiling cuda/glu.cu\n"
    names = [name for name, *_ in cupy.launches]
    assert names == ["glu_silu_x1", "glu_silu_x1", "glu_gelu_tanh_x1"]
    _, grid, block, args, shared = cupy.launches[0]
    assert (grid, block, shared) == ((1, 1, 1), (256, 1, 1), 0)
    assert all(a is b for a, b in zip(args, (gate, up, out), strict=False))
    assert args[3] == 385 and type(args[3]) is np.int64


def test_macros_make_a_module_of_their_own(monkeypatch, capsys):
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    device = CudaDevice(verbose=True)
    for defines in ((), ("N 3", "M"), (), ("N 3", "M")):
        device.launch("glu", "glu_silu_x1", (1,), 256, (), defines=defines)
    plain, defined = (code for code, _ in cupy.modules)
    assert defined == "#define N 3\n#define M\n" + plain
    assert capsys.readouterr().err == "compiling cuda/glu.cu\ncompiling cuda/glu.cu N 3 M\n"


def test_what_raw_modules_would_misread_is_refused(monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    device = CudaDevice()
    for wrong in (1, 1.0, True, [1], np.zeros(3)):
        with pytest.raises(MismatchError, match="argument 1 is a"):
            device.launch("glu", "glu_silu_x1", (1,), 256, (None, wrong))
    device.launch("glu", "glu_silu_x1", (1, 2), 256, (None, np.int32(1)), 64)
    _, grid, _, args, shared = cupy.launches[0]
    assert args == (0, 1) and args[0].itemsize == 8
    assert (grid, shared) == ((1, 2, 1), 64)
