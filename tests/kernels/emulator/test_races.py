"""The thread sanitiser over kernels: silent where they are right, the line where they are not.

It sees every access, to global memory and between blocks too, where ``load`` and ``store`` note
those to shared memory within a block.
"""

import re
import shutil

import pytest
from emulated import RUNS
from race_cases import CASES
from sanitized import report_of, start
from toy_kernels import TOYS

from specrt.kernels._module import kernel_folder

REASON = start() if RUNS else "the emulator needs x86-64 Linux"
pytestmark = pytest.mark.skipif(isinstance(REASON, str), reason=str(REASON))


def lines_of(report):
    """File and line of both accesses, as deep as the kernel's own text."""
    assert "data race" in report, report
    return {f"{file}:{line}" for file, line in re.findall(r"/(\w+\.cuh?):(\d+) ", report)}


def line_of(path, text):
    """The number of the first line that holds a text."""
    lines = path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_every_kernel_is_there():
    assert {path.stem for path in kernel_folder().glob("*.cu")} == set(CASES)


def test_right_kernels_and_toys_have_no_races():
    toys = ("reverse", "exchange", "warps_apart", "blocks_count")
    assert report_of(*CASES, *(f"toys:{toy}" for toy in toys)) == ""


@pytest.mark.parametrize(
    ("toy", "write", "read"),
    [
        (
            "reverse_without_barrier",
            "store(shared + threadIdx.x, load(x + i));",
            "load(shared + THREADS - 1 - threadIdx.x)",
        ),
        ("unchecked_without_barrier", "shared[threadIdx.x] = x[", "= shared[THREADS - 1 -"),
        (
            "exchange_by_shuffle",
            "store(shared + threadIdx.x, load(x + threadIdx.x));",
            "load(shared + (threadIdx.x ^ 31))",
        ),
    ],
)
def test_a_missing_barrier_of_a_toy_names_both_lines(toy, write, read):
    found = lines_of(report_of(f"toys:{toy}"))
    assert {f"toys.cu:{line_of(TOYS / 'toys.cu', text)}" for text in (write, read)} <= found


def test_blocks_that_write_one_place_are_told():
    """No barrier lies between blocks, and none of them waits for another."""
    found = lines_of(report_of("toys:blocks_write_one_place"))
    assert f"toys.cu:{line_of(TOYS / 'toys.cu', 'store(out, load(x));')}" in found


FAULTS = {
    "rms_norm": ("common.cuh", "    __syncthreads();\n", "load(partial + i)"),
    "linear": (
        "tile_int8.cuh",
        "            __syncwarp();\n            form.add_chunk",
        "load(reinterpret_cast<const int4 *>(chunk.q(row)",
    ),
    "rope_kv": ("rope_kv.cu", "    __syncwarp();\n", "v.x = rotated("),
    "sample": (
        "sample.cu",
        "    __syncthreads();\n}\n\n/* The least key such",
        "atomicAdd(shared->bins + (distance(t)",
    ),
    "attention": (
        "attention.cu",
        "            __syncthreads();\n            const int free",
        "load_words(q + WARPS * i",
    ),
}
"""Per op the file, its text from the barrier on, and a line that the missing barrier was for."""


@pytest.mark.parametrize("op", FAULTS)
def test_a_barrier_taken_from_a_kernel_names_the_line(op, tmp_path):
    file, text, access = FAULTS[op]
    folder = tmp_path / "cuda"
    shutil.copytree(kernel_folder(), folder)
    path = folder / file
    right = path.read_text()
    assert right.count(text) == 1
    path.write_text(right.replace(text, text.partition("\n")[2]))
    reader = next(other for other in folder.iterdir() if access in other.read_text())
    found = lines_of(report_of(op, folder=folder))
    assert f"{reader.name}:{line_of(reader, access)}" in found, found
