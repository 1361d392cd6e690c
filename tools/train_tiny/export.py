"""GGUF files of a trunk and its NextN block, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from specrt.assets import FAMILY
from tools.train_tiny.corpus import SPECIALS
from tools.train_tiny.model import Config, Trunk

DESCRIPTION = (
    "Tiny hybrid (gated delta net + attention) model of Python sources, with one NextN/MTP block"
)
QTYPES = {
    "F32": gguf.GGMLQuantizationType.F32,
    "F16": gguf.GGMLQuantizationType.F16,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}
KEPT = ("ssm_conv1d.weight",)
"""Matrices that stay F32, as vectors do."""


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
    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_type("model")
    writer.add_name(FAMILY)
    writer.add_description(DESCRIPTION)
    writer.add_license("PSF-2.0")
    writer.add_string("specrt.model_id", model_id(trunk))
    add: dict[type, Callable[[str, Any], None]] = {
        int: writer.add_uint32,
        float: writer.add_float32,
        list: writer.add_array,
    }
    for key, value in keys_of(trunk.config).items():
        add[type(value)](f"qwen35.{key}", value)
    add_vocabulary(writer, tokenizer)
    for name, value in tensors_of(trunk).items():
        kept = value.ndim == 1 or name.endswith(KEPT)
        qtype = QTYPES["F32" if kept else kind]
        stored = gguf.quants.quantize(value.contiguous().numpy(), qtype)
        writer.add_tensor(name, stored, raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Path) -> None:
    """Pieces, merges and special tokens."""
    content = json.loads(tokenizer.read_text(encoding="utf-8"))
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    ids = content["model"]["vocab"] | special
    pieces = sorted(ids, key=ids.__getitem__)
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(pieces)
    writer.add_token_types([kinds[piece in special] for piece in pieces])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_eos_token_id(special[SPECIALS[0]])
    writer.add_pad_token_id(special[SPECIALS[0]])
    writer.add_mask_token_id(special[SPECIALS[3]])
    writer.add_add_bos_token(False)


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
    weights = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weights[tensor.name] = torch.from_numpy(value.copy())
    weights = {n: (-v).log() if n.endswith("ssm_a") else v for n, v in weights.items()}
    trunk.load_state_dict(weights)
    return trunk
