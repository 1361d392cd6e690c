"""Matrices of the host: tables stay where the file is, weights are packed from it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from levels import LEVELS
from quant_data import random_tensor

from specrt._ext.host_ops import WEIGHT_TYPES, packed_bytes
from specrt.acts import input_form
from specrt.errors import MismatchError, UnsupportedError
from specrt.gguf.types import type_by_name
from specrt.host import HostOps
from specrt.host.weights import HostTable, HostWeight
from specrt.reference import ReferenceOps
from tests.kv_data import make_step

ROOT = Path(__file__).parents[2]
WIDTHS = {"F32": 45, "F16": 45, "BF16": 45}


def read_rows(ops, table, ids, width):
    step = make_step(ops, range(len(ids)), [0] * len(ids), 1)
    step.tokens[:] = ids
    out = ops.buffer((len(ids), width), np.float32)
    ops.embed(table, step, scale=1.0, out=out)
    return out


@pytest.mark.parametrize("type_name", WEIGHT_TYPES)
def test_a_table_is_the_file_s_own_rows(type_name):
    width = WIDTHS.get(type_name, 512)
    tensor = random_tensor(type_name, 19, width)
    ops, reference = HostOps(threads=2), ReferenceOps()
    table = ops.table(tensor)
    assert type(table) is HostTable and not isinstance(table, HostWeight)
    assert (table.shape, table.type_name) == ((19, width), type_name)
    assert table.raw.ctypes.data == tensor.raw.ctypes.data
    ids = [18, 0, 7, 7, 1]
    expected = read_rows(reference, reference.table(tensor), ids, width)
    assert read_rows(ops, table, ids, width).tobytes() == expected.tobytes()


def test_a_weight_reads_rows_like_its_table():
    """One that is packed for the head is the embedding of many models too."""
    tensor, ops = random_tensor("Q4_K", 35, 512), HostOps(threads=1)
    both = [read_rows(ops, make(tensor), [34, 2, 1], 512) for make in (ops.weight, ops.table)]
    assert np.array_equal(*both) and np.isfinite(both[0]).all()


@pytest.mark.parametrize("make", ["table", "weight"])
def test_what_is_no_matrix_of_the_host_is_refused(make):
    tensor, ops = random_tensor("Q8_0", 20, 384), HostOps(threads=1)
    with pytest.raises(UnsupportedError, match="w has type Q8_1; the host runs F32, F16"):
        getattr(ops, make)(replace(tensor, type=replace(tensor.type, name="Q8_1")))
    with pytest.raises(MismatchError, match="350 columns"):
        getattr(ops, make)(replace(tensor, shape=(20, 350)))
    with pytest.raises(MismatchError, match="w is a"):
        getattr(ops, make)(replace(tensor, raw=tensor.raw[:19]))


@pytest.mark.parametrize("role", ["int8", "f32"])
@pytest.mark.parametrize("type_name", WEIGHT_TYPES)
def test_tiles_depend_on_the_matrix_alone(type_name, role):
    """Not on the instruction set, the number of threads, or what lay in memory before."""
    tensor, found = random_tensor(type_name, 85, 768), set()
    for level in LEVELS:
        for threads in (1, 2, 3):
            ops = HostOps(threads=threads, level=level)
            weight = ops.weight(tensor, role)
            size = packed_bytes(type_name, weight.form, weight.shape)
            assert weight.tiles.shape == (size,) and weight.tiles.ctypes.data % 64 == 0
            found.add(weight.tiles.tobytes())
    assert len(found) == 1
    dirty = HostWeight(tensor, role, None, lambda size: np.full(size, 255, np.uint8))
    with ops.record() as tape:
        dirty.pack(tape)
    written, clean = (w.tiles.reshape(6, -1) for w in (dirty, weight))
    assert np.array_equal(written[:, :-63], clean[:, :-63])
    filling = written != clean  # up to whole cache lines
    assert (written[filling] == 255).all() and not clean[filling].any()


def test_the_docs_tell_the_bits_of_every_type():
    lines = (ROOT / "docs/cpu.md").read_text().splitlines()
    cells = [cell.strip() for line in lines if line.startswith("| ") for cell in line.split("|")]
    told, names = {}, re.compile(r"I?[A-Z]+\w*\d\w*(, \w+)*")
    for name, *bits in zip(cells, cells[1:], cells[2:], strict=False):
        if names.fullmatch(name):
            told |= dict.fromkeys(name.split(", "), tuple(map(float, bits)))
    shape = (16, 4096)
    for name in WEIGHT_TYPES:
        stored = 8 * type_by_name(name).block_bytes / type_by_name(name).block_size
        packed = packed_bytes(name, input_form(name, "int8"), shape)
        assert told.pop(name) == (stored, 8 * packed / (16 * 4096)), name
    assert not told


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("type_name", ["F32", "BF16", "Q4_1", "Q6_K", "IQ3_S"])
def test_rows_of_a_tile_that_are_missing_repeat_the_last(type_name, rows):
    tensor = random_tensor(type_name, rows, 256)
    filled = -(-rows // 16) * 16
    raw = np.concatenate([tensor.raw, np.repeat(tensor.raw[-1:], filled - rows, axis=0)])
    whole = replace(tensor, shape=(filled, 256), raw=raw)
    ops = HostOps(threads=1)
    assert np.array_equal(ops.weight(tensor).tiles, ops.weight(whole).tiles)
