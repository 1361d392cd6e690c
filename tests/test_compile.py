"""All CUDA kernels compile for all architectures, without spills and with wide loads."""

import re
from pathlib import Path

import pytest

from specrt.bench.compilers import ARCHITECTURES, find_compiler, usage
from specrt.bench.kernels import all_modules
from specrt.bench.machine_code import of_ptx
from specrt.kernels._module import expand, kernel_folder
from specrt.reference.quant_blocks import QUANT_TYPES

TOYS = Path(__file__).parent / "kernels" / "emulator"
MODULES = {module.name: module for module in all_modules()}
UNTYPED = [name for name, module in MODULES.items() if not module.type]
BOUNDS = re.compile(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)[^{]*?(?:\.minnctapersm (\d+))?\s*\{")
FEW = dict.fromkeys(("embed", "lattice", "markov", "mtp_project"), (75, 120))
"""Files that are a few lines over what another holds on all architectures."""
NARROW = {"accept", "causal_conv", "draft_token", "gated_delta", "head", "route", "sample", "top_k"}
"""Files without a form that loads all of its rows 16 bytes at a time."""
NARROW_LOADS = {"select": 1, "store_rows": 3, "load_rows": 3, "rope_kv": 3, "attention": 7}
NARROW_LOADS |= {"block_conv": 7}
"""Most loads of wide forms that are of no row: which it is, where it stands, what it sees or sums
to, taps that four channels share, in a loop that is unrolled."""
COMPILER = find_compiler()

pytestmark = pytest.mark.skipif(COMPILER is None, reason="neither NVRTC's wheel nor nvcc")


def known(architectures):
    found = [a for a in architectures if a in COMPILER.architectures()]
    assert len(found) >= 5 or architectures != ARCHITECTURES
    return found


def body_of(ptx, entry):
    return re.search(rf"\.entry {entry}\((.*?)^}}", ptx, re.S | re.M)[1]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_compiles_without_spills_and_rounds_as_written(name):
    """Registers are for as many blocks an SM as the launch bound promises, else for four."""
    module = MODULES[name]
    text = module.text
    ptx = COMPILER.ptx(text)
    bounds = {
        entry: int(threads) * int(blocks or 4) for entry, threads, blocks in BOUNDS.findall(ptx)
    }
    operations = re.findall(r"\b(?:fma|mul|add|sub|div|sqrt|rcp|ex2)\.[\w.]*f32", ptx)
    assert all(".rn" in operation for operation in operations), operations
    for architecture in known(FEW.get(module.file, ARCHITECTURES)):
        used = COMPILER.compile(text, architecture).usage
        assert set(used) == set(bounds) != set()
        for entry, one in used.items():
            assert one.spill_bytes == 0 and one.stack_bytes == 0, (architecture, entry, one)
            most = 65536 // bounds[entry] // 8 * 8  # registers are given by eights
            assert one.registers <= most, (architecture, entry, one)


@pytest.mark.parametrize(
    "name", [n for n in MODULES if n in UNTYPED or n.startswith(("attention", "rope_kv"))]
)
def test_wide_forms_load_16_bytes_at_a_time(name):
    file, ptx = MODULES[name].file, COMPILER.ptx(MODULES[name].text)
    counted = of_ptx(ptx)
    wide = [entry for entry in counted if entry.endswith(("_x4", "_16"))]
    assert bool(wide) != (file in NARROW)
    for entry in wide:
        loads = counted[entry].loads
        narrow = sum(number for bits, number in loads.items() if bits < 128)
        assert loads[128] and narrow <= NARROW_LOADS.get(file, 0), (entry, loads)
        assert "st.global.v4" in body_of(ptx, entry), entry  # codes and sums are narrower


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("attention")])
def test_attention_reads_pages_16_bytes_at_a_time(name):
    loads = of_ptx(COMPILER.ptx(MODULES[name].text))["attention_pages"].loads
    assert loads[128] and min(loads) >= 32  # no code or half alone; the narrow ones are sums


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0", "F16"])
def test_linear_reads_weights_and_rows_16_bytes_at_a_time(kind):
    """But rows of codes where there are more threads than pieces of 16 bytes."""
    ptx = COMPILER.ptx(MODULES[f"linear {kind}"].text, 80)
    for entry, counted in of_ptx(ptx).items():
        body, floats = body_of(ptx, entry), entry.startswith("linear_f32")
        if kind == "F16" and not floats:
            assert not counted.loads  # not for float types
            continue
        assert "cp.async.cg.shared.global" in body, entry
        assert ("ld.global.v4" in body) == (entry not in ("linear_dot", "linear_tiled")), entry
        if not floats:
            product = f"m16n8k{QUANT_TYPES[kind].sub}.row.col.s32.s8.s8.s32"
            assert bool(counted.dot_products) == (entry == "linear_dot"), entry
            assert (product in body) == ("ldmatrix" in body) == (entry != "linear_dot"), entry


def test_top_k_loads_16_bytes_at_a_time():
    loads = of_ptx(COMPILER.ptx(MODULES["top_k"].text))["top_k_aligned"].loads
    assert loads[128] and sum(loads.values()) == loads[128] + 1  # the values of the ids found


def test_sample_reads_rows_16_bytes_at_a_time():
    """In each of its seven passes; where it does not, it has other wide loads, of edits."""
    counted = of_ptx(COMPILER.ptx(MODULES["sample"].text))
    aligned, others = (counted[f"sample_{form}"].loads for form in ("aligned", "any"))
    assert aligned[128] >= others[128] + 7 and aligned[32] < others[32]


def test_the_words_that_toys_use_compile_for_each_architecture():
    """Of device.cuh those too that no kernel uses yet."""
    text = expand("toys.cu", (TOYS, kernel_folder()))
    for architecture in known(ARCHITECTURES):
        assert "copy_async" in COMPILER.compile(text, architecture).usage


def test_what_the_assembler_says():
    log = """ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""
    (one,) = usage(log).values()
    assert (one.registers, one.stack_bytes, one.spill_bytes) == (255, 48, 28)
