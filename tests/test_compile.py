"""All CUDA kernels compile for all architectures, without spills and with wide loads."""

import re
from pathlib import Path

import pytest

from specrt.bench.compilers import ARCHITECTURES, find_compiler, usage
from specrt.bench.kernels import all_modules
from specrt.bench.machine_code import of_ptx
from specrt.kernels._module import expand, kernel_folder
from specrt.kernels.emulator.build import ENTRY

TOYS = Path(__file__).parent / "kernels" / "emulator"
MODULES = {module.name: module for module in all_modules()}
REGISTERS = {"attention": 128, "linear": 128}
"""Of files whose kernels may have more than 64, with which 1024 threads an SM keep theirs."""
SPILLS = {"linear_tiled": 64}
"""Bytes, of entries that are on no path of single tokens."""
NARROW = {"accept", "embed", "linear"}
"""Files without a form that loads all of its rows 16 bytes at a time."""
NARROW_LOADS = {"select": 1, "rope_kv": 3, "attention": 2, "head": 1}
"""Most loads of wide forms that are of no row: which it is, where it stands, what it sums to."""
NO_ROWS_OUT = {"head"}
"""Files whose wide forms write less than rows."""
COMPILER = find_compiler()

pytestmark = pytest.mark.skipif(COMPILER is None, reason="neither NVRTC's wheel nor nvcc")


def known_architectures():
    known = [a for a in ARCHITECTURES if a in COMPILER.architectures()]
    assert len(known) >= 5
    return known


@pytest.mark.parametrize("name", MODULES)
def test_a_kernel_compiles_for_each_architecture_without_spills(name):
    module = MODULES[name]
    text = module.text
    entries = {entry for _, entry in ENTRY.findall(text)}
    for architecture in known_architectures():
        used = COMPILER.compile(text, architecture).usage
        assert set(used) == entries
        for entry, one in used.items():
            place = (architecture, entry, one)
            assert one.spill_bytes <= SPILLS.get(entry, 0) >= one.stack_bytes, place
            assert one.registers <= REGISTERS.get(module.file, 64), place


@pytest.mark.parametrize("name", [name for name in MODULES if " " not in name])
def test_wide_forms_load_16_bytes_at_a_time(name):
    ptx = COMPILER.ptx(MODULES[name].text)
    wide = {
        entry: counted
        for entry, counted in of_ptx(ptx).items()
        if entry.endswith(("_x4", "copy_16", "select_16"))
    }
    assert bool(wide) != (name in NARROW)
    for entry, counted in wide.items():
        narrow = sum(number for bits, number in counted.loads.items() if bits < 128)
        assert counted.loads[128] and narrow <= NARROW_LOADS.get(name, 0), (entry, counted)
        text = re.search(rf"\.entry {entry}\((.*?)^}}", ptx, re.S | re.M)[1]
        assert ("st.global.v4" in text) != (name in NO_ROWS_OUT), entry  # codes are narrower


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0", "IQ3_S", "F16"])
def test_linear_copies_weights_16_bytes_at_a_time(kind):
    for entry, counted in of_ptx(COMPILER.ptx(MODULES[f"linear {kind}"].text, 80)).items():
        if counted.stores:
            assert counted.loads[128] >= 2, entry
            products = counted.matrix_products, counted.dot_products
            expected = (entry.startswith(("linear_mma", "linear_tiled")), entry == "linear_dot")
            assert tuple(map(bool, products)) == expected, entry


@pytest.mark.parametrize("name", MODULES)
def test_floats_are_rounded_as_written(name):
    ptx = COMPILER.ptx(MODULES[name].text)
    operations = re.findall(r"\b(?:fma|mul|add|sub|div|sqrt|rcp|ex2)\.[\w.]*f32", ptx)
    assert all(".rn" in operation for operation in operations), operations


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("attention")])
def test_attention_reads_pages_16_bytes_at_a_time(name):
    for entry, counted in of_ptx(COMPILER.ptx(MODULES[name].text)).items():
        if "merge" not in entry:
            assert set(counted.loads) == {128, 32}, entry  # no code or half alone


def test_the_words_that_toys_use_compile_for_each_architecture():
    """Of device.cuh those too that no kernel uses yet."""
    text = expand("toys.cu", (TOYS, kernel_folder()))
    for architecture in known_architectures():
        assert "copy_async" in COMPILER.compile(text, architecture).usage


def test_what_the_assembler_says():
    log = """ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""
    (one,) = usage(log).values()
    assert (one.registers, one.stack_bytes, one.spill_bytes) == (255, 48, 28)
