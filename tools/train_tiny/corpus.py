"""Texts, their split, a tokenizer trained on them, and their ids.

The texts are the running Python's standard library without site-packages and, if given, a folder
of reStructuredText documentation.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

KINDS = ("lib", "doc", "test")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
HELD_OUT = 8
"""Of 256 values of a hash's first byte: about 3 % of the files."""
QWEN2_SPLIT = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What ``tokenizer.ggml.pre = qwen2`` means to who reads the file."""


@dataclass(frozen=True, slots=True)
class Text:
    """A file; hashes of its name decide where it goes."""

    kind: str
    name: str
    text: str

    @property
    def is_held_out(self) -> bool:
        """Whether training never sees it."""
        return _digest(f"{self.kind}/{self.name}")[0] < HELD_OUT

    @property
    def is_for_tokenizer(self) -> bool:
        """Whether the tokenizer learns from it: of the tests a quarter."""
        return not self.is_held_out and (self.kind != "test" or _digest(self.name)[1] < 64)


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def standard_library(root: Path | None = None) -> Iterator[tuple[str, str, Path]]:
    """Kind, name and path of the standard library's own sources."""
    root = root or Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not {"site-packages", "dist-packages", "__pycache__"} & set(name.parts):
            is_test = {"test", "tests", "idle_test"} & set(name.parts)
            yield ("test" if is_test else "lib"), str(name), path


def documentation(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Kind, name and path of its ``.rst`` or ``.rst.txt`` files."""
    for path in sorted(root.rglob("*.rst.txt")) + sorted(root.rglob("*.rst")):
        yield "doc", str(path.relative_to(root)), path


def texts(files: Iterable[tuple[str, str, Path]]) -> Iterator[Text]:
    """What is text and no table of generated data: few digits, no very long line."""
    for kind, name, path in files:
        try:
            text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        head = text[:200_000]
        digits = sum(c.isdigit() for c in head)
        if len(text) < 64 or digits > 0.2 * len(head) or max(map(len, text.split("\n"))) > 2000:
            continue
        yield Text(kind, name, text)


def train_tokenizer(lines: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE with the special tokens at its end."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIALS),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer


def build(work: Path, files: Iterable[tuple[str, str, Path]], vocab_size: int) -> dict[str, Any]:
    """Write ``tokenizer.json``, ``train_<kind>.npy`` and ``held_<kind>.npy`` (uint16 ids).

    Behind each file stands the end token.

    Returns:
        Files, bytes and tokens of each part.
    """
    work.mkdir(parents=True, exist_ok=True)
    found = list(texts(files))
    tokenizer = train_tokenizer((t.text for t in found if t.is_for_tokenizer), vocab_size)
    tokenizer.save(str(work / "tokenizer.json"))
    end, parts = tokenizer.token_to_id(SPECIALS[0]), {}
    for kind in KINDS:
        for name, held in (("train", False), ("held", True)):
            part = [t.text for t in found if t.kind == kind and t.is_held_out == held]
            encoded = tokenizer.encode_batch(part)
            ids = [token for one in encoded for token in (*one.ids, end)]
            np.save(work / f"{name}_{kind}.npy", np.array(ids, np.uint16))
            size = sum(len(text.encode()) for text in part)
            parts[f"{name}_{kind}"] = {"files": len(part), "bytes": size, "tokens": len(ids)}
    (work / "corpus.json").write_text(json.dumps(parts, indent=1))
    return parts
