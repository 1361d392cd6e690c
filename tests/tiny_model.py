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
RECURRENT = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 20,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 6,
    "ssm.inner_size": 120,
}
OWN_KEYS = {
    "qwen35": (*RECURRENT, "rope.dimension_sections"),
    "muse-glimmer": ("attention.sliding_window", "logit_scale"),
}
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
    """Write a model over byte-level pieces; most of its tokens are printable text.

    Args:
        template: the chat template, None for none.
        architecture: written under this name; ``qwen35`` has a recurrent block, all others have
            llama's blocks.
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
    for name, shape in _shapes(vocab_size, architecture, head_dim).items():
        if name not in drop:
            values = np.ones(shape) if len(shape) == 1 else random.normal(0, 0.15, shape)
            values *= -0.2 if name.endswith("ssm_a") else 1
            kind = np.float32 if len(shape) == 1 else np.float16
            writer.add_tensor(name, values.astype(kind))
    write_all(writer)
    return path


def required_keys(architecture: str = "llama") -> list[str]:
    """Keys without which the model cannot be run, without the architecture."""
    return [
        *OWN_KEYS.get(architecture, ()),
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ]


def required_tensors(architecture: str = "llama") -> list[str]:
    return [name for name in _shapes(1, architecture) if name != "output.weight"]


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
    if architecture == "qwen35":
        integers |= RECURRENT | {"rope.dimension_count": 16, "full_attention_interval": LAYERS}
        writer.add_array("qwen35.rope.dimension_sections", [3, 3, 2, 0])
    for name, value in integers.items():
        if name not in drop:
            writer.add_uint32(f"{architecture}.{name}", value)
    if "attention.layer_norm_rms_epsilon" not in drop:
        writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)


def _shapes(
    vocab_size: int, architecture: str, head_dim: int = HEAD_DIM
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab_size, WIDTH),
        "output.weight": (vocab_size, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    hybrid = architecture == "qwen35"
    for layer in range(LAYERS):
        recurrent = hybrid and layer < LAYERS - 1
        mixer = _delta_shapes() if recurrent else _attention_shapes(head_dim, gated=hybrid)
        ffn = {
            "attn_norm.weight": (WIDTH,),
            f"{'post_attention' if hybrid else 'ffn'}_norm.weight": (WIDTH,),
            "ffn_gate.weight": (FFN, WIDTH),
            "ffn_up.weight": (FFN, WIDTH),
            "ffn_down.weight": (WIDTH, FFN),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in (mixer | ffn).items()}
    return shapes


def _attention_shapes(head_dim: int, gated: bool) -> dict[str, tuple[int, ...]]:
    norms = {f"attn_{n}_norm.weight": (head_dim,) for n in "qk"} if gated else {}
    return norms | {
        "attn_q.weight": (HEADS * head_dim * (1 + gated), WIDTH),
        "attn_k.weight": (KV_HEADS * head_dim, WIDTH),
        "attn_v.weight": (KV_HEADS * head_dim, WIDTH),
        "attn_output.weight": (WIDTH, HEADS * head_dim),
    }


def _delta_shapes() -> dict[str, tuple[int, ...]]:
    size, heads = RECURRENT["ssm.state_size"], RECURRENT["ssm.time_step_rank"]
    inner = heads * size
    channels = inner + 2 * RECURRENT["ssm.group_count"] * size
    return {
        "attn_qkv.weight": (channels, WIDTH),
        "attn_gate.weight": (inner, WIDTH),
        "ssm_conv1d.weight": (channels, RECURRENT["ssm.conv_kernel"]),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads,),
        "ssm_alpha.weight": (heads, WIDTH),
        "ssm_beta.weight": (heads, WIDTH),
        "ssm_norm.weight": (size,),
        "ssm_out.weight": (WIDTH, inner),
    }
