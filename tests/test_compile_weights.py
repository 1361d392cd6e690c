"""Kernels of a weight type compile for each type and architecture, as wide as they claim."""

import re

import pytest
from compiling import find_compiler, usage

from specrt.kernels._module import expand, kernel_folder
from specrt.kernels.weights import FIELDS
from specrt.reference.quant_blocks import QUANT_TYPES

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
ENTRY = re.compile(r"__launch_bounds__\(THREADS(?:, (\d))?\)\s+(\w+)\(")
COMPILER = find_compiler()

pytestmark = pytest.mark.skipif(COMPILER is None, reason="neither NVRTC's wheel nor nvcc")


def text_of(kernel, type_name):
    return expand(f"{kernel}.cu", (kernel_folder(),), (f"WEIGHT_TYPE {type_name}",))


def check_usage(text, architectures, folder):
    """No spills, and registers for as many blocks of 256 threads as the launch bound promises."""
    known = [a for a in architectures if a in COMPILER.architectures()]
    got = usage(COMPILER.cubins(text, known, folder))
    blocks = {name: int(number or 4) for number, name in ENTRY.findall(text)}
    assert set(got) == {(name, a) for name in blocks for a in known}
    for (name, architecture), used in got.items():
        assert used.spill_bytes == 0 and used.stack_bytes == 0, (name, architecture)
        most = 65536 // 256 // blocks[name] // 8 * 8  # registers are given by eights
        assert used.registers <= most, (name, architecture)


@pytest.mark.parametrize("type_name", FIELDS)
def test_linear(type_name, tmp_path):
    check_usage(text_of("linear", type_name), ARCHITECTURES, tmp_path)


@pytest.mark.parametrize("type_name", FIELDS)
def test_embed(type_name, tmp_path):
    """On the oldest and the newest: it is a few lines over what linear holds on all."""
    check_usage(text_of("embed", type_name), (75, 120), tmp_path)


def entries_of(ptx):
    return dict(re.findall(r"\.entry (\w+)\((.*?)^}", ptx, re.S | re.M))


@pytest.mark.parametrize("type_name", ["Q4_K", "Q6_K", "Q8_0", "F16"])
def test_weights_and_rows_come_16_bytes_at_a_time(type_name, tmp_path):
    entries = entries_of(COMPILER.ptx(text_of("linear", type_name), tmp_path, 80))
    assert len(entries) == 6
    for name, body in entries.items():
        loads = re.findall(r"\bld(?:\.global)?(?:\.v(\d))?\.[bus](\d+)", body)
        if type_name == "F16" and not name.startswith("linear_f32"):
            assert not loads  # not for float types
            continue
        assert "cp.async.cg.shared.global" in body and "ld.global.v4" in body, name
        if name.startswith("linear_f32"):
            continue
        sub, product = QUANT_TYPES[type_name].sub, "m16n8k{}.row.col.s32.s8.s8.s32"
        assert ("dp4a" in body) == (name == "linear_dot"), name
        assert (product.format(sub) in body) == (name != "linear_dot"), name
        assert ("ldmatrix" in body) == (name != "linear_dot"), name


def test_floats_round_as_written(tmp_path):
    for kernel, type_name in (("linear", "Q2_K"), ("embed", "Q5_1"), ("linear", "BF16")):
        ptx = COMPILER.ptx(text_of(kernel, type_name), tmp_path)
        operations = re.findall(r"\b(?:fma|mul|add|sub|div|sqrt|rcp|ex2)\.[\w.]*f32", ptx)
        assert operations and all(".rn" in operation for operation in operations), operations


def test_top_k_loads_16_bytes_at_a_time(tmp_path):
    text = expand("head.cu", (kernel_folder(),))
    body = entries_of(COMPILER.ptx(text, tmp_path))["head_top_k_aligned"]
    loads = re.findall(r"\bld\.global(\.v4)?", body)
    assert ".v4" in loads and loads.count("") == 1  # the values of the ids found
