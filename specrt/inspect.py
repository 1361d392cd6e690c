"""Say what a GGUF file holds: ``python -m specrt inspect FILE``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from specrt.drafters import WIDTH_KEYS, is_nextn_file
from specrt.drafters.dflash_keys import read_generation
from specrt.errors import SpecrtError
from specrt.gguf.reader import GGUFFile, StringArray, open_gguf

__all__ = ["Description", "Row", "TypeShare", "describe", "inspect", "render"]

Row = tuple[str, str]
"""A label and what stands beside it."""

MAX_SHOWN = 120


@dataclass(frozen=True, slots=True)
class TypeShare:
    """What the tensors of one type come to."""

    type: str
    tensors: int
    parameters: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Description:
    """What ``describe`` found: rows of text, and tensor types by falling size."""

    rows: tuple[Row, ...]
    types: tuple[TypeShare, ...]


def inspect(
    path: str | os.PathLike[str],
    draft_model: str | os.PathLike[str] | None = None,
    *,
    plan: Sequence[Row] | None = None,
    console: Any = None,
) -> None:
    """Print what a model's file holds, and what its drafter's file holds.

    Args:
        path: the model.
        draft_model: a drafter in its own file.
        plan: rows of a memory plan to print below.
        console: a ``rich.console.Console``; None prints on stdout.

    Raises:
        FormatError, UnsupportedError, MismatchError: what ``open_gguf`` and ``describe`` raise.
    """
    from rich.console import Console

    console = console or Console()
    titles = {"model": path} if draft_model is None else {"target": path, "drafter": draft_model}
    for title, name in titles.items():
        with open_gguf(name) as file:
            console.print(render(describe(file), title))
    if plan:
        console.print(_table("memory plan", plan))


def describe(file: GGUFFile) -> Description:
    """Collect what a reader of the file wants to know, without touching tensor bytes.

    Raises:
        MismatchError: the file names no architecture.
    """
    rows = (*_file_rows(file), *_shape_rows(file), *_tokenizer_rows(file))
    rows = (*rows, ("draft head", _draft_head(file)), *_block_rows(file))
    return Description(rows, _type_shares(file))


def render(description: Description, title: str) -> Any:
    """Lay a description out as a rich renderable."""
    from rich.console import Group
    from rich.table import Table

    types = Table("type", title="tensor types", title_justify="left")
    for label in ("tensors", "parameters", "bytes", "share"):
        types.add_column(label, justify="right")
    total = sum(share.nbytes for share in description.types)
    for share in description.types:
        counts = [f"{n:,}" for n in (share.tensors, share.parameters, share.nbytes)]
        types.add_row(share.type, *counts, f"{100 * share.nbytes / total:.1f} %")
    return Group(_table(title, description.rows), types)


def _table(title: str, rows: Sequence[Row]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, Text(value))
    return table


def _file_rows(file: GGUFFile) -> Iterator[Row]:
    num_parameters = sum(prod(tensor.shape) for tensor in file.tensors.values())
    yield "file", _printable(str(file.path))
    if len(file.parts) > 1:
        yield "parts", str(len(file.parts))
    yield "size", f"{file.size / 1e6:,.1f} MB"
    yield "architecture", _show(file.architecture)
    for label in ("name", "license"):
        if (value := file.metadata.get(f"general.{label}")) is not None:
            yield label, _show(value)
    yield "parameters", f"{num_parameters:,}"


def _shape_rows(file: GGUFFile) -> Iterator[Row]:
    labels = {
        "context": "context_length",
        "layers": "block_count",
        "width": "embedding_length",
        "feed-forward width": "feed_forward_length",
        "query heads": "attention.head_count",
        "KV heads": "attention.head_count_kv",
        "key width": "attention.key_length",
        "value width": "attention.value_length",
        "sliding window": "attention.sliding_window",
        "experts": "expert_count",
        "experts used": "expert_used_count",
        "rope scaling": "rope.scaling.type",
    }
    for label, key in labels.items():
        if (value := file.metadata.get(f"{file.architecture}.{key}")) is not None:
            yield label, _show(value)


def _tokenizer_rows(file: GGUFFile) -> Iterator[Row]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    for label, key in (("tokenizer", "model"), ("splitter", "pre")):
        yield label, _show(file.metadata.get(f"tokenizer.ggml.{key}", "none"))
    if isinstance(tokens, StringArray):
        yield "vocabulary", f"{len(tokens):,}"
    for key, value in file.metadata.items():
        if match := re.fullmatch(r"tokenizer\.ggml\.(\w+)_token_ids?", key):
            ids = value.tolist() if isinstance(value, np.ndarray) else [value]
            yield f"{match[1]} id", ", ".join(_token(tokens, i) for i in ids[:8])
        elif match := re.fullmatch(r"tokenizer\.ggml\.add_(bos|eos)_token", key):
            yield f"adds {match[1]}", _show(value)
    template = file.metadata.get("tokenizer.chat_template")
    size = len(template) if isinstance(template, str) else 0
    yield "chat template", f"yes, {size:,} characters" if size else "no"


def _token(tokens: Any, token_id: Any) -> str:
    if not isinstance(tokens, StringArray) or not isinstance(token_id, int):
        return _show(token_id)
    if not 0 <= token_id < len(tokens):
        return f"{token_id} (outside the vocabulary)"
    return f"{token_id} {_printable(tokens.raw(token_id).decode(errors='replace'))}"


def _draft_head(file: GGUFFile) -> str:
    architecture = file.architecture
    if architecture in WIDTH_KEYS:  # NextN heads share their target's architecture
        found = {
            label: file.metadata.get(f"{architecture}.{key}")
            for label, key in (("block size", "block_size"), ("target layers", "target_layers"))
        }
        details = [f", {label} {_show(v)}" for label, v in found.items() if v is not None]
        return "this file is a drafter" + "".join(details)
    blocks = {name.split(".")[1] for name in file.tensors if re.match(r"blk\.\d+\.nextn\.", name)}
    if is_nextn_file(file):
        return f"this file is a NextN drafter ({len(blocks)} of its layers), without a trunk"
    if blocks:
        return f"NextN, {len(blocks)} of the layers"
    if declared := file.metadata.get(f"{architecture}.nextn_predict_layers"):
        return f"none: nextn_predict_layers is {_show(declared)}, but the tensors are missing"
    return "none"


def _block_rows(file: GGUFFile) -> Iterator[Row]:
    """Of a block drafter: what it is, and what it takes of its target."""
    if file.architecture != "dflash":
        return
    try:
        generation = read_generation(file)
        yield "generation", generation
    except SpecrtError as error:
        yield "generation", f"none: {error}"
    if isinstance(
        pattern := file.metadata.get("dflash.attention.sliding_window_pattern"), np.ndarray
    ):
        sliding = ", ".join(str(i) for i, slides in enumerate(pattern.tolist()) if slides)
        yield "sliding layers", sliding or "none"
    own_embedding = "token_embd.weight" in file.tensors
    yield "embedding", "its own" if own_embedding else "the target's"
    if head := file.tensors.get("output.weight"):
        yield "LM head", f"its own, of {head.shape[0]:,} ids"
    else:
        yield "LM head", "its own embedding" if own_embedding else "the target's"


def _type_shares(file: GGUFFile) -> tuple[TypeShare, ...]:
    tensors, parameters, nbytes = Counter[str](), Counter[str](), Counter[str]()
    for tensor in file.tensors.values():
        tensors[tensor.type.name] += 1
        parameters[tensor.type.name] += prod(tensor.shape)
        nbytes[tensor.type.name] += tensor.nbytes
    return tuple(
        TypeShare(name, tensors[name], parameters[name], size)
        for name, size in nbytes.most_common()
    )


def _show(value: Any) -> str:
    """A metadata value in short: numbers with thousands, an array of one value as that value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, np.ndarray):
        distinct = np.unique(value).tolist()
        if len(distinct) == 1:
            return f"{_show(distinct[0])} ({len(value)} times)"
        return _printable(", ".join(str(item) for item in value[:32].tolist()))
    return _printable(str(value))


def _printable(text: str) -> str:
    """Text of a file that cannot move the terminal's cursor, and is not longer than a line or two.

    Control characters are written as escapes.
    """
    shown = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
