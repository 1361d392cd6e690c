"""Weights as tiles: every byte of the file in its place, and nothing else."""

import numpy as np
import pytest
from ops.rows import kernel_weight
from quant_data import FLOAT_BYTES, random_tensor

from specrt.errors import MismatchError, UnsupportedError
from specrt.kernels.weights import FIELDS, block_bytes_of
from specrt.reference.quant_blocks import QUANT_TYPES


def test_fields_cover_their_blocks():
    assert list(FIELDS) == [*FLOAT_BYTES, *list(FIELDS)[3:]] and set(FIELDS) == {
        *FLOAT_BYTES,
        *QUANT_TYPES,
    }
    for name, fields in FIELDS.items():
        covered = sorted(at + i for at, size in fields for i in range(size))
        num_bytes = QUANT_TYPES[name].num_bytes if name in QUANT_TYPES else 32 * FLOAT_BYTES[name]
        assert covered == list(range(num_bytes)) and block_bytes_of(name) == num_bytes


def test_programs_of_growing_windows_share_what_the_head_writes():
    """Each keeps what it was recorded with: an array for every T would add up to gigabytes."""
    weight = kernel_weight(random_tensor("Q8_0", 149, 96))
    held = {id(keys.base): keys.base for keys in map(weight.keys, range(1, 261))}
    row_bytes = 8 * weight.num_tiles
    assert sum(base.nbytes for base in held.values()) < 3 * 512 * row_bytes
    assert all(len(weight.keys(rows)) == rows for rows in (1, 65, 260))


@pytest.mark.parametrize("name", FIELDS)
def test_bytes_lie_where_the_kernels_look(name):
    size, width = block_bytes_of(name), 423 if name in FLOAT_BYTES else 768
    tensor = random_tensor(name, 21, width)
    tiles = kernel_weight(tensor).tiles
    raw = np.zeros((32, tiles.shape[1] * size), np.uint8)
    raw[:21, : tensor.raw.shape[1]] = tensor.raw
    assert tiles.shape == (2, -(-tensor.raw.shape[1] // size), 16 * size)
    for row, block in ((0, 0), (15, 1), (16, 0), (20, tiles.shape[1] - 1), (25, 0)):
        at, tile, got = 0, tiles[row // 16, block], []
        for _, length in FIELDS[name]:
            piece = 16 if length % 16 == 0 else length
            for part in tile[at : at + 16 * length].reshape(-1, 16, piece):
                got += part[row % 16].tolist()
            at += 16 * length
        order = [i for start, length in FIELDS[name] for i in range(start, start + length)]
        assert got == raw[row, block * size :][order].tolist()


def test_wrong_tensors_are_refused():
    tensor = random_tensor("Q8_0", 20, 352)
    make = type(tensor)
    with pytest.raises(MismatchError, match="expected contiguous"):
        kernel_weight(make("w", (20, 384), tensor.type, tensor.raw))
    with pytest.raises(MismatchError, match="multiple of 32"):
        kernel_weight(make("w", (20, 350), tensor.type, tensor.raw))
    with pytest.raises(MismatchError, match="bias"):
        kernel_weight(tensor, bias=np.zeros(19, np.float32))
    with pytest.raises(UnsupportedError, match="I8"):
        kernel_weight(make("w", (20, 352), type(tensor.type)("I8", 1, 1), tensor.raw))
