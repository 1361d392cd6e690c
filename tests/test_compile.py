"""All CUDA kernels compile for all architectures, without spills and with wide loads."""

import re
from pathlib import Path

import pytest
from compiling import find_compiler, usage

from specrt.kernels._module import expand, kernel_folder
from specrt.kernels.emulator.build import ENTRY

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
KV_KERNELS = ("attention", "rope_kv")
DEFINES = {kernel: [f"KV_TYPE {kv}" for kv in ("F32", "F16", "Q8_0")] for kernel in KV_KERNELS}
"""What a kernel is compiled with, one by one."""
KERNELS = [
    (path.stem, define)
    for path in sorted(kernel_folder().glob("*.cu"))
    for define in DEFINES.get(path.stem, [None])
]
TOYS = Path(__file__).parent / "kernels" / "emulator"
NARROW = {"accept"}
"""Kernels of a few integers, with no wide form."""
NARROW_LOADS = {"select": 1, "rope_kv": 3, "attention": 2}
"""Loads of wide forms that are of no row: which row it is, where it stands, what it sums to."""
PASSES = 7
"""How often sample.cu reads a row; it has more narrow loads, of options, drafts and edits."""
REGISTERS = {"attention": 128}
"""More than 64: four blocks an SM keep theirs, and its shared memory holds no more of them."""
COMPILER = find_compiler()

pytestmark = pytest.mark.skipif(COMPILER is None, reason="neither NVRTC's wheel nor nvcc")


def text_of(kernel, define=None):
    return expand(f"{kernel}.cu", (kernel_folder(),), [define] if define else ())


@pytest.mark.parametrize(("kernel", "define"), KERNELS)
def test_a_kernel_compiles_for_each_architecture_without_spills(kernel, define, tmp_path):
    known = [a for a in ARCHITECTURES if a in COMPILER.architectures()]
    assert len(known) >= 5
    text = text_of(kernel, define)
    got = usage(COMPILER.cubins(text, known, tmp_path))
    entries = [name for _, name in ENTRY.findall(text)]
    assert set(got) == {(name, a) for name in entries for a in known}
    for place, used in got.items():
        assert used.spill_bytes == 0 and used.stack_bytes == 0, place
        # 1024 threads an SM keep their registers
        assert used.registers <= REGISTERS.get(kernel, 64), place


@pytest.mark.parametrize(("kernel", "define"), KERNELS)
def test_wide_forms_load_16_bytes_at_a_time_and_round_as_written(kernel, define, tmp_path):
    ptx = COMPILER.ptx(text_of(kernel, define), tmp_path)
    entries = dict(re.findall(r"\.entry (\w+)\((.*?)^}", ptx, re.S | re.M))
    wide = [name for name in entries if name.endswith(("_x4", "_16"))]
    assert bool(wide) != (kernel in NARROW)
    for name in wide:
        loads = re.findall(r"\bld\.global(\.v4)?", entries[name])
        if kernel == "sample":
            assert loads.count(".v4") >= entries["sample_x1"].count("ld.global.v4") + PASSES
            continue
        assert any(loads) and loads.count("") == NARROW_LOADS.get(kernel, 0), name
        assert "st.global.v4" in entries[name], name  # codes and sums of quantize are narrower
    operations = re.findall(r"\b(?:fma|mul|add|sub|div|sqrt|rcp|ex2)\.[\w.]*f32", ptx)
    assert all(".rn" in operation for operation in operations), operations


@pytest.mark.parametrize("define", DEFINES["attention"])
def test_attention_reads_pages_16_bytes_at_a_time(define, tmp_path):
    ptx = COMPILER.ptx(text_of("attention", define), tmp_path)
    entry = re.search(r"\.entry attention_pages\((.*?)^}", ptx, re.S | re.M)[1]
    loads = set(re.findall(r"\bld\.global(?:\.v\d)?\.\w+", entry))
    assert {load.rsplit(".", 1)[1][1:] for load in loads} == {"32"}  # no code or half alone
    assert any(load.startswith("ld.global.v4") for load in loads)  # the others are sums


def test_the_words_that_toys_use_compile_for_each_architecture(tmp_path):
    """Of device.cuh those too that no kernel uses yet."""
    text = expand("toys.cu", (TOYS, kernel_folder()))
    known = [a for a in ARCHITECTURES if a in COMPILER.architectures()]
    got = usage(COMPILER.cubins(text, known, tmp_path))
    assert ("copy_async", 80) in got
