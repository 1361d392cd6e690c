"""Faults put into linear, head and embed: the emulator, or the values, tell each."""

import numpy as np
import pytest
from emulated import broken, needs_emulator, placed
from ops.rows import assert_same_bits, hostile_rows, kernel_acts, kernel_weight, nans
from quant_data import random_tensor

from specrt.acts import Acts
from specrt.kernels.embed import embed
from specrt.kernels.emulator import Emulator, KernelError
from specrt.kernels.head import head
from specrt.kernels.linear import DOT, F32, MMA, TILED, launch_linear
from specrt.kernels.top_k import top_k
from specrt.reference.quantize import quantize

pytestmark = needs_emulator


def run(form, role="int8", type_name="Q8_0", num_rows=2):
    """A launch of a form over two tiles and several units in every segment."""

    def launch(device):
        tensor = random_tensor(type_name, 21, 8 * 5 * 64 if type_name == "Q8_0" else 9 * 256)
        weight = kernel_weight(tensor, role)
        acts = Acts.empty(num_rows, tensor.shape[1], [weight])
        quantize(hostile_rows(9, tensor.shape[1])[:num_rows], out=acts)
        out = placed(nans(num_rows, 21))
        launch_linear(device, [(weight, out)], kernel_acts(acts, [weight]), num_rows, form=form)
        return out

    return launch


def run_head(device):
    weight = kernel_weight(random_tensor("Q8_0", 149, 768))
    acts = Acts.empty(3, 768, [weight])
    quantize(hostile_rows(9, 768)[:3], out=acts)
    ids = placed(np.zeros(3, np.int32))
    head(device, weight, kernel_acts(acts, [weight]), ids=ids, logits=None, softcap=0.0)
    return ids


def run_top_k(device):
    logits = placed(np.arange(2 * 300, dtype=np.float32).reshape(2, 300) % 7)
    ids, values = placed(np.zeros((2, 9), np.int32)), placed(nans(2, 9))
    top_k(device, logits, ids=ids, values=values)
    return ids


def run_embed(device):
    out = placed(nans(3, 768))
    tokens = placed(np.array([17, 28, 0], np.int32))
    embed(device, kernel_weight(random_tensor("Q4_K", 29, 768)), tokens, scale=2.0, out=out)
    return out


WAIT = "        cp_async_wait<num_stages - 1>();\n        __syncwarp();\n"
FAULTS = {
    "a missing wait for copies": (
        *("tile_int8.cuh", WAIT, "        __syncwarp();\n", run(MMA[0])),
        "never waited",
    ),
    "a wait for too few copies": (
        *("tile_f32.cuh", "cp_async_wait<num_stages - 1>", "cp_async_wait<num_stages>"),
        *(run(F32[0], "f32"), "never waited"),
    ),
    "no barrier of the warp behind the wait": (
        *("tile_int8.cuh", WAIT, WAIT.replace("        __syncwarp();\n", ""), run(DOT)),
        r"no barrier between",
    ),
    "a chunk that is written over": (
        *("tile_int8.cuh", "scales, lane);\n            __syncwarp();", "scales, lane);"),
        *(run(MMA[1]), r"no barrier between"),
    ),
    "no barrier before the segments are put down": (
        *("tile_int8.cuh", "    __syncthreads();\n    float *partial", "    float *partial"),
        *(run(MMA[0]), r"no barrier between"),
    ),
    "no barrier before the segments are added": (
        *("tile_int8.cuh", "    __syncthreads();\n    end_tile", "    end_tile", run(DOT)),
        r"no barrier between",
    ),
    "no barrier between chunks of the tiled form": (
        *("tile_int8.cuh", "            __syncthreads();\n            form", "            form"),
        *(run(TILED, num_rows=5), r"no barrier between"),
    ),
    "a unit that is one piece too long": (
        *("tile.cuh", "if (at < left)", "if (at <= left)"),
        *(run(MMA[0], type_name="Q4_K"), r"outside|no barrier between"),
    ),
    "weight rows behind the last": (
        *("tile.cuh", "row < pair.num_rows;", "true;", run(TILED, num_rows=3)),
        r"outside",
    ),
    "no barrier before the warps' best": (
        *("keys.cuh", "    __syncthreads();\n    for", "    for"),
        *(run_head, r"no barrier between"),
    ),
    "a token that is one too far": (
        *("embed.cuh", "id / TILE_ROWS * num_blocks", "(id / TILE_ROWS + 1) * num_blocks"),
        *(run_embed, r"outside"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_names_the_line(tmp_path, fault):
    file, right, wrong, launch, message = FAULTS[fault]
    with pytest.raises(KernelError, match=message) as caught:
        launch(broken(tmp_path, file, right, wrong))
    assert ".cu" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "launch"),
    [
        ("tile.cuh", "segment < NUM_SEGMENTS; segment++", "segment < 3; segment++", MMA[0]),
        ("tile.cuh", "const int first = index * step,", "const int first = index * step + 1,", DOT),
        ("tile.cuh", "MAGIC_BITS - Type::offset * sum", "MAGIC_BITS - sum", MMA[1]),
        ("tile_int8.cuh", "half ? other : own", "half ? own : other", DOT),
        ("tile_int8.cuh", "if (next.first == place.end)", "if (next.first == num_blocks)", TILED),
        ("quant_layout.cuh", "16 * row + 4 * j", "16 * (row ^ 1) + 4 * j", MMA[0]),
    ],
)
def test_the_values_are_wrong(tmp_path, file, right, wrong, launch):
    launch = run(launch, type_name="Q6_K")
    got, expected = launch(broken(tmp_path, file, right, wrong)), launch(Emulator())
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(got, expected)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "launch"),
    [
        ("keys.cuh", "0xffffffffu - static_cast<unsigned>(id)", "static_cast<unsigned>(id)", None),
        ("top_k.cu", "key >= known.prefix", "key > known.prefix", run_top_k),
        ("top_k.cu", "load(best + i) > own", "load(best + i) >= own", run_top_k),
    ],
)
def test_the_ids_are_wrong(tmp_path, file, right, wrong, launch):
    launch = launch or run_head
    expected = launch(Emulator())
    try:
        got = launch(broken(tmp_path, file, right, wrong))
    except KernelError as error:
        assert ".cu" in str(error)
    else:
        assert (got != expected).any()
