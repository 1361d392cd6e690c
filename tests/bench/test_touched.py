"""What a step touches: bytes and products, by part."""

import numpy as np
import pytest

from specrt.bench.touched import Rates, Touched, touched_by
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.models import load_trunk
from tests.models_on_disk import golden_path
from tests.tiny_model import FFN, HEAD_DIM, HEADS, KV_HEADS, LAYERS, WIDTH, write_tiny_model

MATRICES = LAYERS * WIDTH * ((2 * HEADS + 2 * KV_HEADS) * HEAD_DIM + 3 * FFN)
NORMS = WIDTH * (2 * LAYERS + 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_what_a_step_touches(path):
    """F16 matrices, F32 norms, and of the embedding the rows' own."""
    gguf = open_gguf(path)
    vocab = gguf.tensors["output.weight"].shape[0]
    parts = touched_by(gguf, "f16", 10, rows=3)
    trunk, head, attention = (parts[name] for name in ("trunk", "head", "attention"))
    assert trunk.num_bytes == 2 * MATRICES + 4 * NORMS + 3 * 2 * WIDTH
    assert head.num_bytes == 2 * vocab * WIDTH
    products = [(part.int_products, part.float_products) for part in (trunk, head)]
    assert products == [(0, 3 * MATRICES), (0, 3 * vocab * WIDTH)]
    read, seen = LAYERS * 2 * 13 * KV_HEADS * HEAD_DIM * 2, 11 + 12 + 13
    assert attention == Touched(
        num_bytes=read,
        packed_bytes=read,
        float_products=LAYERS * 2 * seen * HEADS * HEAD_DIM,
    )


def test_a_tied_head_is_read_once_and_quantised_products_are_integers():
    gguf = open_gguf(golden_path("llama-quant"))
    parts = touched_by(gguf, "q8_0", 0, rows=2)
    read = {name for name in gguf.tensors if name != "rope_freqs.weight"}
    embedding = gguf.tensors["token_embd.weight"]
    whole = sum(gguf.tensors[name].nbytes for name in read)
    rows = 2 * embedding.raw.shape[1]
    if "output.weight" in read:
        whole -= embedding.nbytes
    assert parts["trunk"].num_bytes + parts["head"].num_bytes == whole + rows
    assert parts["trunk"].int_products > 0


def test_packed_bytes_are_those_of_the_weights_that_a_model_reads():
    gguf = open_gguf(golden_path("llama-quant"))
    trunk = load_trunk(gguf, HostOps(1), 64)
    parts = touched_by(gguf, "f16", 0, rows=1)
    vectors = sum(t.shape[0] for name, t in gguf.tensors.items() if len(t.shape) == 1)
    row = gguf.tensors["token_embd.weight"].raw.shape[1]
    assert parts["head"].packed_bytes == trunk.output.tiles.nbytes
    packed = sum(weight.tiles.nbytes for weight in trunk.weights)
    assert "rope_freqs.weight" not in gguf.tensors
    assert parts["trunk"].packed_bytes == packed + 4 * vectors + row


def test_a_window_bounds_what_is_seen():
    gguf = open_gguf(golden_path("gemma3"))
    short, long, longer = (
        touched_by(gguf, "f32", cached, rows=1)["attention"].num_bytes for cached in (0, 40, 41)
    )
    layers = gguf.get("gemma3.block_count", int)
    one_position = short // layers
    window = gguf.get("gemma3.attention.sliding_window", int)
    num_global = (longer - long) // one_position  # only these see one more
    assert 0 < num_global < layers and window < 40
    assert long == one_position * (41 * num_global + window * (layers - num_global))


def test_rows_of_a_window_share_what_they_see():
    gguf = open_gguf(golden_path("gemma3"))
    one, three = (touched_by(gguf, "f32", 40, rows)["attention"] for rows in (1, 3))
    layers = gguf.get("gemma3.block_count", int)
    position = touched_by(gguf, "f32", 0, 1)["attention"].num_bytes // layers
    assert three.num_bytes == one.num_bytes + 2 * layers * position
    assert 3 * one.float_products < three.float_products < 3.5 * one.float_products


@pytest.mark.parametrize("rows", [1, 3])
def test_of_experts_those_that_are_used(rows):
    """3 of 8 a row, in blocks that keep a state but for one; the last block is a draft head's."""
    gguf = open_gguf(golden_path("qwen35moe"))
    parts = touched_by(gguf, "f16", 9, rows)
    blocks = tuple(f"blk.{layer}." for layer in range(3))
    trunk = {
        n: t for n, t in gguf.tensors.items() if n.startswith(blocks) or n == "output_norm.weight"
    }
    experts = [t for n, t in trunk.items() if "_exps." in n]
    others = [t for n, t in trunk.items() if "_exps." not in n]
    states, position = 2 * 2 * 4 * 4 * 32 * 32, 2 * 2 * 2 * 32
    assert len(experts) == 9 and all(t.shape[0] == 8 for t in experts)
    assert parts["attention"].num_bytes == (9 + rows) * position
    read = sum(t.nbytes for t in experts) * (1 - (5 / 8) ** rows)
    whole = sum(t.nbytes for t in others) + rows * 2 * 96 + states
    assert parts["trunk"].num_bytes == round(whole + read)
    products = rows * (sum(t.raw.size // 2 for t in experts) * 3 // 8)
    products += rows * sum(t.nbytes // t.type.block_bytes for t in others if len(t.shape) == 2)
    assert parts["trunk"].float_products == products + 2 * 4 * rows * 4 * 32 * 32
    assert parts["trunk"].int_products == 0


def test_the_floor_of_a_part_is_the_longer_of_reading_and_computing():
    rates = Rates(np.array([10.0, 20.0]), np.array([4.0, 4.0]), np.array([2.0, 2.0]))
    assert Touched(100, 999, 8, 4).seconds(rates).tolist() == [10.0, 5.0]
    assert Touched(100, 999, 8, 20).seconds(rates).tolist() == [12.0, 12.0]
