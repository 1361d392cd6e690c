"""What measures the machine does as much as it says."""

import numpy as np
import pytest
from levels import LEVELS

from specrt._ext.host_ops import record_read_memory
from specrt.bench import machine_speed
from specrt.bench.machine_speed import (
    PART_BYTES,
    float_speed,
    int_speed,
    largest_cache,
    read_speed,
)
from specrt.bench.timing import WrongResultError
from specrt.host import HostOps
from specrt.host.huge_pages import huge_bytes


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_word_is_read_once(level, threads):
    ops = HostOps(threads, level)
    memory = huge_bytes(5 * 4096 - 512)  # the last part is shorter
    words = memory.view(np.uint64)
    words[:] = np.random.default_rng(0).integers(0, 2**40, len(words))
    sums = ops.buffer((5,), np.uint64)
    with ops.record() as program:
        record_read_memory(program, memory, sums, 4096)
    program.run()
    assert sums.tolist() == [int(words[512 * i :][:512].sum()) for i in range(5)]


@pytest.mark.parametrize("level", LEVELS)
def test_products_are_all_computed(level, monkeypatch):
    monkeypatch.setattr(machine_speed, "MULTIPLY_STEPS", 100)
    ops = HostOps(2, level)
    products = machine_speed.PRODUCTS[level]
    per_register = 100 * machine_speed.MULTIPLY_CHAINS * machine_speed.MULTIPLY_PARTS * 2
    assert int_speed(ops).amount == per_register * products.of_bytes
    assert float_speed(ops).amount == per_register * products.of_floats


def test_bytes_are_whole_parts():
    ops = HostOps(1)
    assert read_speed(ops, 1).amount == PART_BYTES
    assert read_speed(ops, 3 * PART_BYTES + 5).amount == 3 * PART_BYTES


def test_a_loop_that_leaves_something_out_has_no_speed(monkeypatch):
    monkeypatch.setattr(machine_speed, "record_read_memory", lambda *_: None)
    with pytest.raises(WrongResultError, match="does not read all"):
        read_speed(HostOps(1), PART_BYTES)
    monkeypatch.setattr(machine_speed, "record_multiply_ints", lambda *_: None)
    with pytest.raises(WrongResultError, match="sum to 0"):
        int_speed(HostOps(1))


def test_the_largest_cache_is_larger_than_a_first_one():
    assert largest_cache() >= 1 << 15
