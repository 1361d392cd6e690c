"""GGUF files of a trunk and its NextN block, and back; and of block drafters."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import gguf
from torch import Tensor

from specrt.assets import FAMILY
from tools.train_tiny.drafter import DFlash
from tools.train_tiny.gguf_file import read_tensors, write
from tools.train_tiny.model import Config, Trunk

DESCRIPTION = (
    "Tiny hybrid (gated delta net + attention) model of Python sources, with one NextN/MTP block"
)


def model_id(trunk: Trunk) -> str:
    """What a drafter is bound to: a hash of the trunk's weights, the NextN block left out."""
    digest, draft = hashlib.sha256(), f"blk.{trunk.config.num_layers}."
    for name, value in sorted(tensors_of(trunk).items()):
        if not name.startswith(draft):
            digest.update(name.encode())
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:32]


def tensors_of(trunk: Trunk) -> dict[str, Tensor]:
    """The file's tensors by name, float32."""
    found = {name: value.detach().float() for name, value in trunk.state_dict().items()}
    return {n: -v.exp() if n.endswith("ssm_a") else v for n, v in found.items()}


def keys_of(c: Config) -> dict[str, Any]:
    """The file's shapes, under ``qwen35.``."""
    return {
        "context_length": c.context,
        "embedding_length": c.width,
        "block_count": c.num_layers + 1,
        "nextn_predict_layers": 1,
        "feed_forward_length": c.ffn,
        "attention.head_count": c.heads,
        "attention.head_count_kv": c.kv_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "attention.layer_norm_rms_epsilon": c.eps,
        "rope.dimension_count": c.num_rot,
        "rope.dimension_sections": list(c.rope_sections),
        "rope.freq_base": c.rope_base,
        "full_attention_interval": c.interval,
        "ssm.conv_kernel": c.conv_taps,
        "ssm.state_size": c.state_dim,
        "ssm.group_count": c.key_heads,
        "ssm.time_step_rank": c.value_heads,
        "ssm.inner_size": c.value_heads * c.state_dim,
    }


def export(trunk: Trunk, tokenizer: Path, path: Path, kind: str) -> None:
    """Write a GGUF file.

    Args:
        tokenizer: the ``tokenizer.json`` of the corpus.
        kind: of the matrices: F32, F16 or Q8_0.
    """
    keys = {
        "general.name": FAMILY,
        "general.description": DESCRIPTION,
        "specrt.model_id": model_id(trunk),
    }
    keys |= {f"qwen35.{key}": value for key, value in keys_of(trunk.config).items()}
    write(path, "qwen35", kind, keys, tokenizer, tensors_of(trunk))


def export_drafter(
    drafter: DFlash, kind: str, trunk: Trunk, tokenizer: Path, path: Path, qtype: str
) -> None:
    """Write a GGUF file of a drafter, which is bound to ``trunk``.

    Args:
        kind: a key of ``draft.KINDS``.
        tokenizer: the ``tokenizer.json`` of the corpus.
        qtype: of the matrices: F32, F16 or Q8_0.
    """
    keys = {
        "general.name": f"{FAMILY}-{kind}",
        "general.description": f"{kind} drafter for {FAMILY}",
        "general.base_model.count": 1,
        "general.base_model.0.name": FAMILY,
        "general.base_model.0.version": "1",
        "specrt.target_id": model_id(trunk),
    }
    keys |= {f"dflash.{key}": value for key, value in drafter.config.keys().items()}
    tensors = {name: value.detach().float() for name, value in drafter.state_dict().items()}
    write(path, "dflash", qtype, keys, tokenizer, tensors)


def read_config(reader: gguf.GGUFReader) -> Config:
    """The shapes of a file."""

    def key(name: str) -> Any:
        return reader.fields[f"qwen35.{name}"].contents()

    return Config(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        width=key("embedding_length"),
        num_layers=key("block_count") - key("nextn_predict_layers"),
        interval=key("full_attention_interval"),
        heads=key("attention.head_count"),
        kv_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"),
        num_rot=key("rope.dimension_count"),
        rope_sections=tuple(key("rope.dimension_sections")),
        rope_base=key("rope.freq_base"),
        ffn=key("feed_forward_length"),
        state_dim=key("ssm.state_size"),
        key_heads=key("ssm.group_count"),
        value_heads=key("ssm.time_step_rank"),
        conv_taps=key("ssm.conv_kernel"),
        context=key("context_length"),
        eps=key("attention.layer_norm_rms_epsilon"),
    )


def read(path: Path) -> Trunk:
    """The trunk of a file of any type, its weights as float32."""
    reader = gguf.GGUFReader(path)
    trunk = Trunk(read_config(reader))
    weights = read_tensors(reader)
    weights = {n: (-v).log() if n.endswith("ssm_a") else v for n, v in weights.items()}
    trunk.load_state_dict(weights)
    return trunk
