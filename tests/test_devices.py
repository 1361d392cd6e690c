"""Devices by name: what "auto" picks, what it says, and what cannot be had."""

import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest
from fake_cupy import FakeCupy

from specrt import devices
from specrt.devices import best_device, make_ops
from specrt.errors import OptionError, UnsupportedError


@pytest.fixture
def with_cupy(monkeypatch):
    """Put a CuPy in place."""

    def put(cupy):
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        spec = None if cupy is None else ModuleSpec("cupy", None)
        monkeypatch.setattr(devices, "find_spec", lambda name: spec)
        devices._say_once.cache_clear()

    return put


def test_without_cupy_auto_is_the_cpu_in_silence(with_cupy, capsys):
    with_cupy(None)
    assert best_device() == make_ops("auto").device == "cpu"
    assert capsys.readouterr().err == ""


def test_with_cupy_and_no_gpu_auto_is_the_cpu_and_says_so_once(with_cupy, capsys):
    with_cupy(FakeCupy(devices=RuntimeError("cudaErrorInsufficientDriver")))
    assert make_ops("auto").device == make_ops("auto").device == "cpu"
    told = capsys.readouterr().err
    assert told.startswith("computing on the CPU: no NVIDIA driver") and told.count("\n") == 1
    with pytest.raises(UnsupportedError, match="no NVIDIA driver"):
        make_ops("cuda")


def test_a_cupy_that_cannot_be_imported_is_told_and_leaves_the_cpu(monkeypatch, tmp_path, capsys):
    """One that was built for another NumPy raises ValueError."""
    (tmp_path / "cupy.py").write_text("raise ValueError('numpy.dtype size changed')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    devices._say_once.cache_clear()
    assert make_ops("auto").device == "cpu"
    assert "computing on the CPU: CUDA needs CuPy (numpy.dtype size" in capsys.readouterr().err
    with pytest.raises(UnsupportedError, match=r"numpy\.dtype size changed"):
        make_ops("cuda")


def test_with_a_gpu_auto_is_cuda(with_cupy, capsys):
    with_cupy(FakeCupy())
    assert make_ops("auto").device == make_ops("cuda").device == "cuda"
    assert capsys.readouterr().err == ""


def test_what_cupy_keeps_of_freed_arrays_is_available(with_cupy):
    cupy = FakeCupy()
    cupy.free, cupy.pooled = 5 << 20, 3 << 20
    with_cupy(cupy)
    assert devices.available_memory("cuda") == 8 << 20


@pytest.mark.parametrize("name", ["cpu", "emulator", "reference"])
def test_a_name_is_taken_at_its_word(with_cupy, name):
    with_cupy(FakeCupy())
    assert make_ops(name).device == name


def test_no_such_device():
    with pytest.raises(OptionError, match="'gpu': expected one of auto, cpu, cuda, emulator"):
        make_ops("gpu")


@pytest.mark.parametrize("budget", [-1, 1.5, True, "64", 2**20 + 1])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_such_budget_of_graphs(with_cupy, device, budget):
    with_cupy(FakeCupy())
    with pytest.raises(OptionError, match=r"graph_budget = .*: expected MiB from 0 to 1048576"):
        make_ops(device, graph_mebibytes=budget)


def test_importing_the_api_imports_no_cupy_and_no_kernels():
    unwanted = "{'cupy', 'numba', 'specrt.kernels'}"
    code = f"import specrt.llm, sys; assert not {unwanted} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
