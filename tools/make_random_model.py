"""Write random models and drafters in the shapes of published ones, to measure speed with.

    python tools/make_random_model.py 0.8B Q4_K random.gguf
    python tools/make_random_model.py 27B-short Q8_0 target.gguf --drafter drafter.gguf

Targets are hybrid, with a NextN block and a tied head: Qwen3.5-0.8B's shape, and that of the 27B of
the family cut to so few layers that what one drafts with, which is as large as ever, can be
measured on a small machine. A drafter is a DFlash2 one as published for the 27B: 5 layers with a
sliding window of 2048, blocks of 8, a convolution of two taps in groups of 16, 16 candidates, a
selector of rank 256. Matrices have the type that is named, but for the embedding, which has Q6_K
beside Q4_K, as in published files. What they write means nothing; how long it takes is what counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gguf
import numpy as np

VOCABULARY, CONTEXT, INTERVAL, CONV = 248_320, 32_768, 4, 4
MASK = 248_070
BLOCK_SIZE, TAPS, WINDOW = 8, 5, 2048
CONV_TAPS, CONV_GROUP, RANK, TOP_K = 2, 16, 256, 16
DRAFT_HEADS, DRAFT_KV_HEADS, DRAFT_HEAD_DIM, DRAFT_LAYERS = 32, 8, 128, 5
ROWS = 4096
"""Rows that are drawn at a time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a target: D, F, blocks of the trunk, H, Hkv, Dh, rotated dims, and the delta-net's heads.

    ``state`` is the width of a delta-net head.
    """

    width: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    num_rot: int
    key_heads: int
    value_heads: int
    state: int

    @property
    def inner(self) -> int:
        """Values of all delta-net heads."""
        return self.value_heads * self.state

    @property
    def channels(self) -> int:
        """What the delta-net's convolution runs over."""
        return (2 * self.key_heads + self.value_heads) * self.state

    def is_full(self, layer: int) -> bool:
        """Whether a block has full attention."""
        return layer == self.layers or (layer + 1) % INTERVAL == 0


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "0.8B": Shape(1024, 3584, 24, 8, 2, 256, 64, 16, 16, 128),
        "27B-short": Shape(5120, 17408, 8, 24, 4, 256, 64, 16, 48, 128),
    }
)

BLOCKS: dict[str, tuple[np.dtype, dict[str, float]]] = {
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
"""A block's fields, and its scales; so weights are about 1 / sqrt(1024). All else is random."""
COLUMNS = {"Q8_0": 32, "Q4_K": 256, "Q6_K": 256}

Matrix = tuple[str, int, int]


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


def attention(prefix: str, width: int, heads: int, kv_heads: int, dim: int) -> Iterator[Matrix]:
    """Keys, values and output of an attention; queries differ."""
    yield f"{prefix}attn_k.weight", kv_heads * dim, width
    yield f"{prefix}attn_v.weight", kv_heads * dim, width
    yield f"{prefix}attn_output.weight", width, heads * dim


def feed_forward(prefix: str, width: int, ffn: int) -> Iterator[Matrix]:
    """Gate, up and down."""
    yield f"{prefix}ffn_gate.weight", ffn, width
    yield f"{prefix}ffn_up.weight", ffn, width
    yield f"{prefix}ffn_down.weight", width, ffn


def target_matrices(shape: Shape) -> Iterator[Matrix]:
    """The name, rows and columns of every matrix but the embedding."""
    width = shape.width
    for layer in range(shape.layers + 1):
        prefix = f"blk.{layer}."
        if shape.is_full(layer):
            yield f"{prefix}attn_q.weight", 2 * shape.heads * shape.head_dim, width
            yield from attention(prefix, width, shape.heads, shape.kv_heads, shape.head_dim)
        else:
            yield f"{prefix}attn_qkv.weight", shape.channels, width
            yield f"{prefix}attn_gate.weight", shape.inner, width
            yield f"{prefix}ssm_alpha.weight", shape.value_heads, width
            yield f"{prefix}ssm_beta.weight", shape.value_heads, width
            yield f"{prefix}ssm_out.weight", width, shape.inner
        yield from feed_forward(prefix, width, shape.ffn)
    yield f"blk.{shape.layers}.nextn.eh_proj.weight", width, 2 * width


def target_vectors(shape: Shape, random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """All that is float32."""
    width = shape.width
    yield "output_norm.weight", np.ones(width)
    for layer in range(shape.layers + 1):
        prefix = f"blk.{layer}."
        yield f"{prefix}attn_norm.weight", np.ones(width)
        yield f"{prefix}post_attention_norm.weight", np.ones(width)
        if shape.is_full(layer):
            yield f"{prefix}attn_q_norm.weight", np.ones(shape.head_dim)
            yield f"{prefix}attn_k_norm.weight", np.ones(shape.head_dim)
        else:
            yield f"{prefix}ssm_conv1d.weight", random.normal(0, 0.5, (shape.channels, CONV))
            yield f"{prefix}ssm_dt.bias", random.normal(0, 1, shape.value_heads)
            yield f"{prefix}ssm_a", -random.uniform(0.05, 1, shape.value_heads)
            yield f"{prefix}ssm_norm.weight", np.ones(shape.state)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{shape.layers}.nextn.{name}.weight", np.ones(width)


def drafter_matrices(shape: Shape) -> Iterator[Matrix]:
    """Of a drafter of a target of that shape; embedding and head are the target's."""
    width, dim = shape.width, DRAFT_HEAD_DIM
    yield "fc.weight", width, TAPS * width
    yield "selector_hidden.weight", RANK, width
    yield "selector_predecessor.weight", VOCABULARY, RANK
    yield "selector_successor.weight", VOCABULARY, RANK
    for layer in range(DRAFT_LAYERS):
        prefix = f"blk.{layer}."
        yield f"{prefix}attn_q.weight", DRAFT_HEADS * dim, width
        yield from attention(prefix, width, DRAFT_HEADS, DRAFT_KV_HEADS, dim)
        yield from feed_forward(prefix, width, shape.ffn)
        for name in ("attn", "ffn"):
            yield f"{prefix}{name}_conv_proj.weight", 2 * CONV_TAPS * width // CONV_GROUP, width


def drafter_vectors(shape: Shape, random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """All that is float32; the convolutions begin as the identity."""
    identity = np.zeros((2, CONV_TAPS, shape.width))
    identity[:, 0] = 1
    yield "output_norm.weight", np.ones(shape.width)
    yield "enc.output_norm.weight", np.ones(shape.width)
    for layer in range(DRAFT_LAYERS):
        prefix = f"blk.{layer}."
        for name in ("attn", "ffn"):
            yield f"{prefix}{name}_norm.weight", np.ones(shape.width)
            yield f"{prefix}{name}_conv_base", identity
        yield f"{prefix}attn_q_norm.weight", np.ones(DRAFT_HEAD_DIM)
        yield f"{prefix}attn_k_norm.weight", np.ones(DRAFT_HEAD_DIM)


def target_keys(shape: Shape) -> dict[str, Any]:
    """Metadata, without the architecture."""
    return {
        "context_length": CONTEXT,
        "embedding_length": shape.width,
        "block_count": shape.layers + 1,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": shape.num_rot,
        "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": INTERVAL,
        "ssm.conv_kernel": CONV,
        "ssm.inner_size": shape.inner,
        "ssm.state_size": shape.state,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.group_count": shape.key_heads,
        "nextn_predict_layers": 1,
    }


def drafter_keys(shape: Shape) -> dict[str, Any]:
    """Metadata, without the architecture."""
    taps = np.linspace(1, shape.layers - 1, TAPS).round().astype(int).tolist()
    return {
        "context_length": CONTEXT,
        "embedding_length": shape.width,
        "block_count": DRAFT_LAYERS,
        "feed_forward_length": shape.ffn,
        "attention.head_count": DRAFT_HEADS,
        "attention.head_count_kv": DRAFT_KV_HEADS,
        "attention.key_length": DRAFT_HEAD_DIM,
        "attention.value_length": DRAFT_HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": [True] * DRAFT_LAYERS,
        "rope.freq_base": 1e7,
        "block_size": BLOCK_SIZE,
        "target_layers": taps,
        "conv_kernel_size": CONV_TAPS,
        "conv_group_size": CONV_GROUP,
        "selector_rank": RANK,
        "selector_top_k": TOP_K,
    }


def add_keys(writer: gguf.GGUFWriter, keys: dict[str, Any]) -> None:
    """Metadata of the writer's architecture."""
    for name, value in keys.items():
        key = f"{writer.arch}.{name}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """A byte-level one, most of whose ids nothing is written with."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    printable = [chr(c) for c in range(33, 127)]
    letters = printable + [chr(c) for c in range(161, 161 + 256 - len(printable))]
    writer.add_token_list(letters + [f"<{i}>" for i in range(len(letters), VOCABULARY)])
    writer.add_token_merges(["a b"])


def finish(
    writer: gguf.GGUFWriter,
    matrices: Iterator[tuple[str, int, int, str]],
    vectors: Iterator[tuple[str, np.ndarray]],
    random: np.random.Generator,
) -> None:
    """Draw the matrices, each with its type, and write all."""
    for name, rows, columns, kind in matrices:
        blocks = random_matrix(kind, rows, columns, random)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType[kind])
    for name, values in vectors:
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_target(shape: Shape, kind: str, path: Path, seed: int = 0) -> None:
    """Write a target.

    Args:
        kind: of its matrices: Q8_0 or Q4_K.
        path: where to.
        seed: of the weights.
    """
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "qwen35")
    add_keys(writer, target_keys(shape))
    writer.add_name(f"random-{kind}")
    add_tokenizer(writer)
    table = ("token_embd.weight", VOCABULARY, shape.width, "Q6_K" if kind == "Q4_K" else kind)
    matrices = [table, *((*matrix, kind) for matrix in target_matrices(shape))]
    finish(writer, iter(matrices), target_vectors(shape, random), random)


def write_drafter(shape: Shape, kind: str, path: Path, seed: int = 1) -> None:
    """Write a DFlash2 drafter for a target of that shape; see ``write_target``."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "dflash")
    add_keys(writer, drafter_keys(shape))
    writer.add_uint32("tokenizer.ggml.mask_token_id", MASK)
    writer.add_name(f"random-dflash2-{kind}")
    matrices = ((*matrix, kind) for matrix in drafter_matrices(shape))
    finish(writer, matrices, drafter_vectors(shape, random), random)


def main() -> None:
    """Read the arguments and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=tuple(SHAPES))
    parser.add_argument("kind", choices=("Q4_K", "Q8_0"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--drafter", type=Path, metavar="FILE", help="a DFlash2 drafter for it")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    write_target(shape, args.kind, args.path, args.seed)
    if args.drafter is not None:
        write_drafter(shape, args.kind, args.drafter, args.seed + 1)


if __name__ == "__main__":
    main()
