"""GGUF files: what a trunk's and a drafter's have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from tools.train_tiny.corpus import SPECIALS

QTYPES = {
    "F32": gguf.GGMLQuantizationType.F32,
    "F16": gguf.GGMLQuantizationType.F16,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}
KEPT = ("ssm_conv1d.weight", "conf_proj.weight")
"""Matrices that stay F32, as all does that is none."""


def write(
    path: Path,
    architecture: str,
    kind: str,
    keys: Mapping[str, Any],
    tokenizer: Path,
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a file.

    Args:
        kind: of the matrices: F32, F16 or Q8_0.
        keys: beside those of the vocabulary and those that are the same in all files.
        tokenizer: the ``tokenizer.json`` of the corpus.
        tensors: float32.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_type("model")
    writer.add_version("1")
    writer.add_license("PSF-2.0")
    add: dict[type, Callable[[str, Any], None]] = {
        str: writer.add_string,
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        list: writer.add_array,
    }
    for key, value in keys.items():
        add[type(value)](key, value)
    add_vocabulary(writer, tokenizer)
    for name, value in tensors.items():
        kept = value.ndim != 2 or name.endswith(KEPT)
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


def read_tensors(reader: gguf.GGUFReader) -> dict[str, Tensor]:
    """All of a file's tensors by name, of any type, as float32."""
    found = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        found[tensor.name] = torch.from_numpy(value.copy())
    return found
