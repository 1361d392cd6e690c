"""The paper budget: its arithmetic at a tiny shape, and the page that has what it prints."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specrt.bench.compilers import Usage, find_compiler, find_disassembler
from specrt.bench.kernels import Module
from specrt.bench.machine_code import Instructions, Loop, disassembled
from specrt.kernels._module import kernel_folder
from specrt.kernels.program import Launch
from specrt.kernels.weights import TILE_ROWS
from tools import make_random_model
from tools.gpu_budget import files, tables
from tools.gpu_budget.__main__ import budget, page
from tools.gpu_budget.cards import Card, blocks_per_sm
from tools.gpu_budget.code import Code, expected, issue_us, slots_per_byte
from tools.gpu_budget.files import TYPES, drafter_file, q4_k_m, target_file
from tools.gpu_budget.steps import Model
from tools.gpu_budget.traffic import Cost, cost_of, summed
from tools.make_random_model import Shape, drafter_matrices, target_matrices

PAGE = Path(__file__).parents[2] / "docs" / "gpu-budget.md"
TINY = Shape(256, 512, 8, 2, 1, 64, 64, 2, 4, 128)
CACHED, IDS = 130, 640
COMPILER = find_compiler()
CARD = Card("none", 90, 10, 1.0, bandwidth=100, memory=1, tensor_tops=2, source="")


@pytest.fixture(scope="module")
def files_without_data():
    """A target and a drafter."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (make_random_model, files):
            patch.setattr(module, "VOCABULARY", IDS)
        patch.setattr(files, "MASK", IDS - 1)
        return target_file(TINY), drafter_file(TINY, (1, 2, 3, 5, 7))


@pytest.fixture(scope="module")
def tiny(files_without_data):
    return Model(files_without_data[0], CACHED)


@pytest.fixture(scope="module")
def whole():
    """Of the 27B, with what needs no compiler."""
    return budget()


def bytes_of(matrices, num_layers):
    """Whole tiles of sixteen rows."""
    return sum(
        -(-rows // TILE_ROWS) * TILE_ROWS * TYPES[q4_k_m(name, num_layers)].row_bytes(columns)
        for name, rows, columns in matrices
    )


def trunk_matrices():
    """All that a step multiplies with."""
    own = [one for one in target_matrices(TINY) if not one[0].startswith("blk.8.")]
    return [*own, ("output.weight", IDS, TINY.width)]


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_a_verify_reads_each_weight_once_and_multiplies_each_row(tiny, rows):
    cost = summed([cost_of(one, CACHED) for one in tiny.verify("", rows).launches])
    assert cost.weights == bytes_of(trunk_matrices(), TINY.layers + 1)
    twice = {"ssm_alpha.weight", "ssm_beta.weight"}  # their rows are quantised twice
    products = sum(
        2 * height * width * rows * (1 + (name.split(".", 2)[-1] in twice))
        for name, height, width in trunk_matrices()
    )
    assert cost.products == products


def test_a_verify_reads_keys_values_and_states(tiny):
    costs, rows = Counter(), 4
    for launch in tiny.verify("", rows).launches:
        costs[launch.file] += cost_of(launch, CACHED).others
    full, recurrent = TINY.layers // 4, TINY.layers - TINY.layers // 4
    assert costs["attention"] == full * (CACHED + rows) * 2 * TINY.kv_heads * TINY.head_dim * 2
    state = TINY.value_heads * TINY.state**2 * 4
    log = (TINY.key_heads * TINY.state + TINY.inner + TINY.value_heads) * 4
    assert costs["gated_delta"] == recurrent * (2 * state + 2 * rows * log)
    taps = TINY.channels * 4 * 4
    around = 2 * 3 * TINY.channels * 4 + 2 * rows * TINY.channels * 4
    assert costs["causal_conv"] == recurrent * (taps + around)
    assert costs["embed"] == rows * TYPES["Q4_K"].row_bytes(TINY.width)


def test_drafts_read_what_they_multiply_with(tiny, files_without_data):
    head = bytes_of([("output.weight", IDS, TINY.width)], 9)
    nextn = tiny.head(tiny.file)
    layer = [one for one in target_matrices(TINY) if one[0].startswith("blk.8.")]
    step = tiny.draft("", nextn, 3)
    cost = summed([cost_of(one, CACHED) for one in step.launches])
    # Rows that were accepted before the last one leave only keys and values.
    again = [one for one in layer if re.search(r"attn_[kv]\.", one[0])]
    assert step.graphs == 3
    assert cost.weights == 3 * (head + bytes_of(layer, 9)) + bytes_of(again, 9)

    drafter = tiny.head(files_without_data[1])
    step = tiny.draft("", drafter, 7)
    read = [one for one in drafter_matrices(TINY) if "cessor" not in one[0]]
    keys = [one for one in read if re.search(r"attn_[kv]\.", one[0])]
    cost = summed([cost_of(one, CACHED) for one in step.launches])
    assert step.graphs == 1
    assert cost.weights == head + bytes_of(read, 5) + bytes_of(keys, 5)


def test_types_follow_the_quantisers_rule():
    more = [i for i in range(65) if q4_k_m(f"blk.{i}.ffn_down.weight", 65) == "Q6_K"]
    assert more == [*range(8), *range(10, 56, 3), *range(56, 65)]
    assert q4_k_m("output.weight", 65) == q4_k_m("blk.3.attn_v.weight", 65) == "Q6_K"
    assert q4_k_m("blk.3.attn_q.weight", 65) == q4_k_m("token_embd.weight", 65) == "Q4_K"


def test_the_drafters_size_is_the_published_ones():
    assert abs(drafter_file().num_bytes / files.PUBLISHED_DRAFTER - 1) < 0.01  # its tokenizer


@pytest.mark.parametrize(
    ("cost", "microseconds"),
    [
        (Cost(weights=100_000, others=100_000), 2.0),
        (Cost(weights=100_000, products=6_000_000), 3.0),
        (Cost(others=100_000, floats=2_560_000 * 4), 4.0),
        (Cost(weights=1, products=5_120_000, uses_dot=True), 1.0),
    ],
)
def test_a_floor_is_the_longest_of_three(cost, microseconds):
    assert cost.floor_us(CARD) == pytest.approx(microseconds)


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared_bytes", "blocks"),
    [
        (90, 256, 78, 45_000, 3),  # by registers: 2560 a warp, 6 warps a scheduler
        (86, 256, 32, 45_000, 2),  # by shared memory: 100 KB
        (86, 256, 32, 0, 6),  # by warps
        (89, 32, 16, 0, 24),  # by blocks
    ],
)
def test_blocks_of_an_sm(architecture, threads, registers, shared_bytes, blocks):
    assert blocks_per_sm(architecture, threads, registers, shared_bytes) == blocks


def test_instructions_a_byte_of_weights():
    loops = (Loop(30, 99, 8), Loop(10, 129, 8), Loop(140, 150, 0))
    code = Code(Usage(64, 0, 0), Instructions({}, 8, 0, 1, 200, loops))
    q4_k, q8_0 = (Module("linear", (f"WEIGHT_TYPE {kind}",)) for kind in ("Q4_K", "Q8_0"))
    assert slots_per_byte((q4_k, "linear_mma_8"), code) == (4 * 70 + 50) / (16 * 144)
    assert slots_per_byte((q8_0, "linear_mma_8"), code) == (1 * 70 + 50) / (16 * 2 * 34)
    assert slots_per_byte((q4_k, "linear_tiled"), code) == 2 * (4 * 70 + 50) / (16 * 144)
    none = Code(Usage(64, 0, 0), Instructions({}, 0, 0, 1, 200, (Loop(1, 9, 0),)))
    assert slots_per_byte((q4_k, "linear_mma_8"), none) is None

    tiles = np.broadcast_to(np.uint8(0), (25, 1, 16 * 144))
    pairs = [tiles, None, np.zeros((4, 400)), 400, *[None, None, None, 0] * 7]
    ends = [None, None, 1.0, 0.0, 4, 400, 256]
    args = [*pairs, *[None] * 6, *ends]
    launch = Launch("linear", "linear_mma_8", (25, 1), 256, args, 0, q4_k.defines)
    codes = {(q4_k, "linear_mma_8"): code}
    # 25 blocks on 10 SMs: three on some, each of one unit, four instructions a clock of 1 GHz.
    block = (4 * 70 + 50) / 4e3
    assert issue_us(launch, codes, CARD) == pytest.approx((2.5 * block, 3 * block))
    fast = replace(CARD, bandwidth=1e3, tensor_tops=1e6)
    one, floor = expected([launch, launch], 0, codes, fast, gap_us=1.5), 25 * 16 * 144 / 1e6  # us
    assert one.floor == pytest.approx(2 * floor / 1e3) and floor < 2.5 * block
    assert one.floor + one.issue == pytest.approx(2 * 2.5 * block / 1e3)
    assert one.uneven == pytest.approx(2 * 0.5 * block / 1e3)
    assert one.gaps == pytest.approx(3e-3)
    assert one.total == pytest.approx((2 * 3 * block + 3) / 1e3)


def test_the_page_has_the_tables_that_the_script_prints(whole):
    text = PAGE.read_text()
    places = set(re.findall(r"<!-- table: (\w+) -->", text))
    assert places == {*whole[1], "compiler", "gaps", "kept", "path", "others"}
    assert page(text, whole[1]) == text, "run python -m tools.gpu_budget --write docs/gpu-budget.md"


def rows_of_code():
    """Rows of the page by their kernel's name."""
    lines = PAGE.read_text().splitlines()
    table = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    return {cells[0]: cells for cells in table if len(cells) in (10, 12)}


def test_the_page_has_all_kernels(whole):
    rows = rows_of_code()
    launched = {tables.key_of(one) for step in whole[0].values() for one in step.launches}
    assert {tables.name_of(key) for key in launched} <= set(rows)
    for path in kernel_folder().glob("*.cu"):
        assert any(name.startswith(path.stem) for name in rows), path.name


@pytest.mark.skipif(COMPILER is None, reason="neither NVRTC's wheel nor nvcc")
def test_the_page_has_what_is_compiled(whole):
    """Of one module; another compiler than the page names may give a little more or less."""
    module, rows = Module("linear", ("WEIGHT_TYPE Q4_K",)), rows_of_code()
    launched = {tables.key_of(one) for step in whole[0].values() for one in step.launches}
    entries = [entry for found, entry in launched if found == module]
    code = COMPILER.compile(module.text, 90)
    exact = f"Compiled by {COMPILER.version()}." in PAGE.read_text()
    assert {"linear_dot", "linear_mma_8"} <= set(entries)
    for entry in entries:
        told = int(rows[f"{entry} Q4_K"][1].split("/")[-1])
        assert abs(told - code.usage[entry].registers) <= (0 if exact else 16), entry
    if (disassembler := find_disassembler()) is None:
        return
    for entry, found in disassembled(disassembler, code.cubin).items():
        if entry not in entries:
            continue
        products, dots, _, slots = rows[f"{entry} Q4_K"][6:10]
        assert int(products or 0) == found.matrix_products
        assert int(dots or 0) == found.dot_products
        own = slots_per_byte((module, entry), Code(code.usage[entry], found))
        assert float(slots.split("/")[-1]) == pytest.approx(own, rel=0.02 if exact else 0.2)
