"""Write a model of random weights in the shape of a published one, to measure speed with.

    python tools/make_random_model.py Q4_K random.gguf

The shape is that of Qwen3.5-0.8B: hybrid, with a NextN block and a tied head. Matrices have the
type that is named, but for the embedding, which has Q6_K beside Q4_K, as in published files. What
it writes means nothing; how long it takes is what counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

ARCHITECTURE = "qwen35"
WIDTH, FFN, LAYERS, VOCABULARY, CONTEXT = 1024, 3584, 24, 248_320, 32_768
HEADS, KV_HEADS, HEAD_DIM, NUM_ROT, INTERVAL = 8, 2, 256, 64, 4
KEY_HEADS, VALUE_HEADS, STATE, CONV = 16, 16, 128, 4
INNER, CHANNELS = VALUE_HEADS * STATE, (2 * KEY_HEADS + VALUE_HEADS) * STATE
KEYS = {
    "context_length": CONTEXT,
    "embedding_length": WIDTH,
    "block_count": LAYERS + 1,
    "feed_forward_length": FFN,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD_DIM,
    "attention.value_length": HEAD_DIM,
    "rope.dimension_count": NUM_ROT,
    "full_attention_interval": INTERVAL,
    "ssm.conv_kernel": CONV,
    "ssm.inner_size": INNER,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": VALUE_HEADS,
    "ssm.group_count": KEY_HEADS,
    "nextn_predict_layers": 1,
}
ROWS = 4096
"""Rows that are drawn at a time."""

Block = np.dtype
BLOCKS: dict[str, tuple[Block, dict[str, float]]] = {
    "Q8_0": (np.dtype([("d", "<f2"), ("q", "i1", 32)]), {"d": 4e-4}),
    "Q4_K": (
        np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("q", "u1", 128)]),
        {"d": 1.5e-4, "dmin": 7.5 * 1.5e-4},
    ),
    "Q6_K": (
        np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]),
        {"d": 2.5e-5},
    ),
}
"""A block's fields, and its scales; so weights are about 1 / sqrt(WIDTH). All else is random."""
COLUMNS = {"Q8_0": 32, "Q4_K": 256, "Q6_K": 256}


def random_matrix(kind: str, rows: int, columns: int, random: np.random.Generator) -> np.ndarray:
    """[rows, bytes of a row] of random blocks."""
    dtype, scales = BLOCKS[kind]
    out = np.empty((rows, columns // COLUMNS[kind]), dtype)
    for begin in range(0, rows, ROWS):
        part = out[begin : begin + ROWS]
        part.view(np.uint8)[:] = random.integers(0, 256, part.view(np.uint8).shape, np.uint8)
        for name, scale in scales.items():
            part[name] = scale
    return out.view(np.uint8)


def matrices() -> Iterator[tuple[str, int, int]]:
    """The name, rows and columns of every matrix but the embedding."""
    for layer in range(LAYERS + 1):
        prefix = f"blk.{layer}."
        if layer == LAYERS or (layer + 1) % INTERVAL == 0:
            yield f"{prefix}attn_q.weight", 2 * HEADS * HEAD_DIM, WIDTH
            yield f"{prefix}attn_k.weight", KV_HEADS * HEAD_DIM, WIDTH
            yield f"{prefix}attn_v.weight", KV_HEADS * HEAD_DIM, WIDTH
            yield f"{prefix}attn_output.weight", WIDTH, HEADS * HEAD_DIM
        else:
            yield f"{prefix}attn_qkv.weight", CHANNELS, WIDTH
            yield f"{prefix}attn_gate.weight", INNER, WIDTH
            yield f"{prefix}ssm_alpha.weight", VALUE_HEADS, WIDTH
            yield f"{prefix}ssm_beta.weight", VALUE_HEADS, WIDTH
            yield f"{prefix}ssm_out.weight", WIDTH, INNER
        yield f"{prefix}ffn_gate.weight", FFN, WIDTH
        yield f"{prefix}ffn_up.weight", FFN, WIDTH
        yield f"{prefix}ffn_down.weight", WIDTH, FFN
    yield f"blk.{LAYERS}.nextn.eh_proj.weight", WIDTH, 2 * WIDTH


def vectors(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """All that is float32."""
    yield "output_norm.weight", np.ones(WIDTH)
    for layer in range(LAYERS + 1):
        prefix = f"blk.{layer}."
        yield f"{prefix}attn_norm.weight", np.ones(WIDTH)
        yield f"{prefix}post_attention_norm.weight", np.ones(WIDTH)
        if layer == LAYERS or (layer + 1) % INTERVAL == 0:
            yield f"{prefix}attn_q_norm.weight", np.ones(HEAD_DIM)
            yield f"{prefix}attn_k_norm.weight", np.ones(HEAD_DIM)
        else:
            yield f"{prefix}ssm_conv1d.weight", random.normal(0, 0.5, (CHANNELS, CONV))
            yield f"{prefix}ssm_dt.bias", random.normal(0, 1, VALUE_HEADS)
            yield f"{prefix}ssm_a", -random.uniform(0.05, 1, VALUE_HEADS)
            yield f"{prefix}ssm_norm.weight", np.ones(STATE)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{LAYERS}.nextn.{name}.weight", np.ones(WIDTH)


def write(kind: str, path: Path, seed: int = 0) -> None:
    """Write the file.

    Args:
        kind: of its matrices: Q8_0 or Q4_K.
        path: where to.
        seed: of the weights.
    """
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    for key, value in KEYS.items():
        writer.add_uint32(f"{ARCHITECTURE}.{key}", value)
    writer.add_float32(f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32(f"{ARCHITECTURE}.rope.freq_base", 1e7)
    writer.add_array(f"{ARCHITECTURE}.rope.dimension_sections", [11, 11, 10, 0])
    writer.add_name(f"random-{kind}")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    printable = [chr(c) for c in range(33, 127)]
    letters = printable + [chr(c) for c in range(161, 161 + 256 - len(printable))]
    writer.add_token_list(letters + [f"<{i}>" for i in range(len(letters), VOCABULARY)])
    writer.add_token_merges(["a b"])
    table = "Q6_K" if kind == "Q4_K" else kind
    shapes = [("token_embd.weight", VOCABULARY, WIDTH, table)]
    shapes += [(*matrix, kind) for matrix in matrices()]
    for name, rows, columns, of in shapes:
        blocks = random_matrix(of, rows, columns, random)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[of])
    for name, values in vectors(random):
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("Q4_K", "Q8_0"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write(args.kind, args.path, args.seed)


if __name__ == "__main__":
    main()
