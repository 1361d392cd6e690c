"""Memory in huge pages: where it begins, what is in it, when it goes, and who sees it."""

import os
from pathlib import Path

import numpy as np
import pytest

from specrt.host import HostOps
from specrt.host.huge_pages import BLOCK, HUGE_PAGE, LINE, Arena, aligned_bytes, huge_bytes
from tests.mappings import SMAPS, mapping_at

maps = pytest.mark.skipif(not SMAPS.exists(), reason="looks at mappings in /proc")
SIZES = [1, 63, 64, 65, 5000, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 777]


def address(memory):
    return memory.ctypes.data


@pytest.mark.parametrize("size", SIZES)
def test_where_it_begins_and_that_it_is_zero_and_writable(size):
    memory = aligned_bytes(size)
    assert (memory.dtype, memory.shape) == (np.uint8, (size,))
    assert address(memory) % (HUGE_PAGE if size >= HUGE_PAGE else LINE) == 0
    assert not memory.any()
    memory[:] = 255
    assert memory.all()


@maps
def test_huge_pages_are_asked_for():
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("the kernel has no huge pages to ask for")
    memory = huge_bytes(HUGE_PAGE)
    assert "hg" in mapping_at(address(memory)).flags
    assert "hg" in mapping_at(address(memory) + HUGE_PAGE - 1).flags
    taken = Arena().take(100)
    assert "hg" in mapping_at(address(taken)).flags
    buffer = HostOps(threads=1).buffer((HUGE_PAGE // 4,), np.float32)
    assert "hg" in mapping_at(address(buffer)).flags


@maps
def test_memory_that_nobody_has_written_is_not_resident():
    memory = huge_bytes(8 * HUGE_PAGE)
    before = mapping_at(address(memory)).resident  # the system may join it to a neighbour
    memory[3 * HUGE_PAGE] = 1
    assert 0 < mapping_at(address(memory)).resident - before <= HUGE_PAGE


def test_an_arena_hands_out_bytes_one_behind_the_other():
    arena, sizes = Arena(), [1, 64, 65, 100_000, 3 * HUGE_PAGE + 1, 7]
    taken = [arena.take(size) for size in sizes]
    assert [len(memory) for memory in taken] == sizes
    assert address(taken[0]) % HUGE_PAGE == 0
    for before, memory, size in zip(taken, taken[1:], sizes, strict=False):
        assert address(memory) == address(before) + -(-size // LINE) * LINE
    for value, memory in enumerate(taken, 1):
        assert not memory.any()
        memory[:] = value
    assert all((memory == value).all() for value, memory in enumerate(taken, 1))


def test_what_does_not_fit_begins_a_block():
    arena = Arena()
    first, large, small = arena.take(100), arena.take(BLOCK), arena.take(HUGE_PAGE)
    assert len(large) == BLOCK and len({address(m) // HUGE_PAGE for m in (first, large)}) == 2
    assert address(large) % HUGE_PAGE == address(small) % HUGE_PAGE == 0
    assert not np.shares_memory(large, small)


@maps
def test_a_block_goes_with_its_last_array():
    arena = Arena()
    first, second = arena.take(HUGE_PAGE), arena.take(HUGE_PAGE)
    first[:], second[:] = 1, 2
    at = address(first)
    del arena, first
    assert mapping_at(at).resident >= HUGE_PAGE and (second == 2).all()
    del second
    assert mapping_at(at) is None or not mapping_at(at).resident


@maps
def test_weights_go_with_their_model():
    from quant_data import random_tensor

    ops = HostOps(threads=1)
    weight = ops.weight(random_tensor("Q8_0", 4096, 2048))
    at = address(weight.tiles)
    assert at % LINE == 0 and mapping_at(at).resident > 2**22
    del weight, ops
    assert mapping_at(at) is None or not mapping_at(at).resident


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_a_copy_of_its_own():
    """Shared memory would let a child that computes write into its parent's buffers."""
    memory, taken = huge_bytes(HUGE_PAGE), Arena().take(1000)
    memory[:], taken[:] = 1, 2
    child = os.fork()
    if child == 0:
        same = (memory == 1).all() and (taken == 2).all()
        memory[:], taken[:] = 8, 9
        os._exit(0 if same and (memory == 8).all() and (taken == 9).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (memory == 1).all() and (taken == 2).all()
