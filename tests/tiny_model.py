"""A random model that reads and writes text: small enough to be made by the tests that use it."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.gguf.vocabulary_files import ALPHABET, CONTROL, NORMAL
from tests.rewriting import write_all

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, CONTEXT = 64, 4, 2, 32, 96, 2, 512
MERGES = ["t h", "th e", "a n", "e r", "i n", "o n", "r e"]


def write_tiny_model(
    path: Path,
    *,
    template: str | None = TEMPLATE,
    architecture: str = "llama",
    drop: tuple[str, ...] = (),
    context: int = CONTEXT,
    head_dim: int = HEAD_DIM,
    seed: int = 0,
) -> Path:
    """Write a llama model over byte-level pieces; most of its tokens are printable text.

    Args:
        template: the chat template, None for none.
        architecture: written under this name.
        drop: keys (without the architecture) and tensors to leave out.
        context: that it says it was trained for.
        head_dim: of queries, keys and values.
        seed: of the weights.
    """
    writer = gguf.GGUFWriter(path, architecture)
    pieces = [(c, NORMAL) for c in ALPHABET] + [(m.replace(" ", ""), NORMAL) for m in MERGES]
    pieces += [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]
    vocab_size = len(pieces)
    _keys(writer, architecture, drop, context, head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_types([kind for _, kind in pieces])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(vocab_size - 1)
    if template is not None:
        writer.add_chat_template(template)
    random = np.random.default_rng(seed)
    for name, shape in _shapes(vocab_size, head_dim).items():
        if name not in drop:
            values = np.ones(shape) if len(shape) == 1 else random.normal(0, 0.15, shape)
            kind = np.float32 if len(shape) == 1 else np.float16
            writer.add_tensor(name, values.astype(kind))
    write_all(writer)
    return path


def required_keys() -> list[str]:
    """Keys without which the model cannot be run, without the architecture."""
    return [
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ]


def required_tensors() -> list[str]:
    return [name for name in _shapes(1) if name != "output.weight"]


def _keys(
    writer: gguf.GGUFWriter, architecture: str, drop: tuple[str, ...], context: int, head_dim: int
) -> None:
    integers = {
        "context_length": context,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    for name, value in integers.items():
        if name not in drop:
            writer.add_uint32(f"{architecture}.{name}", value)
    if "attention.layer_norm_rms_epsilon" not in drop:
        writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)


def _shapes(vocab_size: int, head_dim: int = HEAD_DIM) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab_size, WIDTH),
        "output.weight": (vocab_size, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    for layer in range(LAYERS):
        block = {
            "attn_norm": (WIDTH,),
            "attn_q": (HEADS * head_dim, WIDTH),
            "attn_k": (KV_HEADS * head_dim, WIDTH),
            "attn_v": (KV_HEADS * head_dim, WIDTH),
            "attn_output": (WIDTH, HEADS * head_dim),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (FFN, WIDTH),
            "ffn_up": (FFN, WIDTH),
            "ffn_down": (WIDTH, FFN),
        }
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes
