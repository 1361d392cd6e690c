"""Text to token ids and back, as the GGUF file says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from specrt._ext.token_merge import PieceMerger, RankMerger, ScoreMerger
from specrt.errors import UnsupportedError
from specrt.gguf.reader import GGUFFile
from specrt.gguf.splitters import splitter
from specrt.gguf.strings import StringArray
from specrt.gguf.vocabulary import PREFIX, TokenType, Vocabulary

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

__all__ = [
    "ByteLevelBPE",
    "Gemma4BPE",
    "NoText",
    "SentencePiece",
    "Tokenizer",
    "load_tokenizer",
]

SPACE = "\u2581"  # how SentencePiece spells a space


class Tokenizer(Protocol):
    """What the library asks of a tokenizer.

    Attributes:
        vocab_size: ids are below it; the model's embedding may be longer (padding).
        bos_id, eos_id: None where the file names none.
        add_bos: whether the file puts BOS before a text.
        end_ids: the tokens that end a generation.
        chat_template: the file's, in Jinja; None: it has none.
        has_text: False if there is no text, only ids.
    """

    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    end_ids: frozenset[int]
    chat_template: str | None
    has_text: bool

    def encode(
        self, text: str, add_bos: bool | None = None, parse_special: bool = False
    ) -> list[int]:
        """The ids of a text.

        Args:
            text: any text; lone surrogates become ``?``.
            add_bos: put BOS first; None: as the file says. EOS comes last if the file says so,
                but not with False: such a text, as a chat prompt, spells its own edges.
            parse_special: take control tokens that the text spells out (``<|im_end|>``) as such,
                as chat templates need. Else they are plain text, so a user cannot forge them.

        Raises:
            UnsupportedError: the file has no text.
        """

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids that start a text; bytes that are no UTF-8 become U+FFFD.

        It is ``b"".join(map(token_bytes, ids))``, less one leading space where the tokenizer puts
        a space before a text (SentencePiece's ``add_space_prefix``). What continues a text is
        that join as it is.
        """

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """What a token adds to a text: nothing for a control token, or an id that has no piece."""


class _TextTokenizer:
    """What all kinds with text share; a kind says how plain text is cut and pieces are spelled."""

    has_text = True
    space_prefix = False

    def __init__(self, file: GGUFFile, vocabulary: Vocabulary) -> None:
        self._file, self._vocabulary = file, vocabulary
        self._kinds = vocabulary.types.tobytes()  # quicker to index than an array
        self._texts: dict[int, bytes] = {}  # of ids that were met: a step has to be short
        self.vocab_size = len(vocabulary.tokens)
        self.bos_id, self.eos_id = vocabulary.bos_id, vocabulary.eos_id
        self.add_bos = vocabulary.add_bos
        self.end_ids = vocabulary.end_ids
        self.chat_template = file.get("tokenizer.chat_template", str, None)

    def _encode_plain(self, text: str, after_special: bool) -> list[int]:
        raise NotImplementedError

    def _piece_bytes(self, raw: bytes) -> bytes:
        raise NotImplementedError

    def encode(
        self, text: str, add_bos: bool | None = None, parse_special: bool = False
    ) -> list[int]:
        vocabulary = self._vocabulary
        text = text.encode(errors="replace").decode()
        first = vocabulary.add_bos if add_bos is None else add_bos
        ids = [self.bos_id] if first and self.bos_id is not None else []
        after_special = True
        pieces = vocabulary.special if parse_special else vocabulary.user_defined
        for part in pieces.split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encode_plain(part, after_special)
            after_special = isinstance(part, int)
        if vocabulary.add_eos and add_bos is not False and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        data = b"".join(self.token_bytes(token, skip_special) for token in ids)
        if self.space_prefix:
            data = data.removeprefix(b" ")
        return data.decode(errors="replace")

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        if not skip_special:
            return self._token_bytes(token, False)
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self._token_bytes(token, True)
        return text

    def _token_bytes(self, token: int, skip_special: bool) -> bytes:
        if not 0 <= token < self.vocab_size:
            return b""
        kind, tokens = self._kinds[token], self._vocabulary.tokens
        if kind == TokenType.NORMAL:
            return self._piece_bytes(tokens.raw(token))
        if kind == TokenType.BYTE:
            return bytes((self._vocabulary.byte_values[token],))
        if kind == TokenType.USER_DEFINED or (kind == TokenType.CONTROL and not skip_special):
            return tokens.raw(token)
        return b""


def _rank_merger(file: GGUFFile, vocabulary: Vocabulary) -> RankMerger:
    merges = file.get(PREFIX + "merges", StringArray)
    return RankMerger(
        *vocabulary.tokens.spans, vocabulary.mergeable, vocabulary.byte_tokens, *merges.spans
    )


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's printable character for each byte, the other way round."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): bytes([byte]) for byte in printable}
    return table | {chr(256 + i): bytes([byte]) for i, byte in enumerate(others)}


class ByteLevelBPE(_TextTokenizer):
    """Model ``gpt2``: words by a splitter, each spelled in GPT-2's byte alphabet, then merges."""

    def __init__(self, file: GGUFFile) -> None:
        self._splitter = splitter(file.get(PREFIX + "pre", str, "(missing)"))
        super().__init__(file, Vocabulary(file, add_bos=self._splitter.add_bos))
        self._bytes = _byte_alphabet()

    @cached_property
    def _merger(self) -> PieceMerger:
        return _rank_merger(self._file, self._vocabulary)

    @cached_property
    def _split(self) -> PreTokenizer:
        return self._splitter.compile()

    def _encode_plain(self, text: str, after_special: bool) -> list[int]:
        ids: list[int] = []
        for word, _ in self._split.pre_tokenize_str(text):
            raw = word.encode()
            whole = self._merger.find(raw) if self._splitter.whole_words else -1
            ids += [whole] if whole >= 0 else self._merger.encode(raw)
        return ids

    def _piece_bytes(self, raw: bytes) -> bytes:
        return b"".join(self._bytes.get(c) or c.encode() for c in raw.decode(errors="replace"))


class _SpacedTokenizer(_TextTokenizer):
    """The SentencePiece alphabet: U+2581 for a space, ``<0xNN>`` for bytes that no piece holds."""

    def _piece_bytes(self, raw: bytes) -> bytes:
        return raw.replace(SPACE.encode(), b" ")


class SentencePiece(_SpacedTokenizer):
    """Model ``llama``: characters merge by score, over the whole text."""

    def __init__(self, file: GGUFFile) -> None:
        super().__init__(file, Vocabulary(file, add_bos=True))
        self.space_prefix = file.get(PREFIX + "add_space_prefix", bool, True)

    @cached_property
    def _merger(self) -> PieceMerger:
        vocabulary = self._vocabulary
        scores = vocabulary.per_token("scores", np.float32)
        byte_tokens = vocabulary.byte_tokens
        if vocabulary.unknown_id is not None:
            byte_tokens[byte_tokens < 0] = vocabulary.unknown_id
        return ScoreMerger(*vocabulary.tokens.spans, vocabulary.mergeable, byte_tokens, scores)

    def _encode_plain(self, text: str, after_special: bool) -> list[int]:
        prefix = SPACE if self.space_prefix and after_special else ""
        return self._merger.encode((prefix + text.replace(" ", SPACE)).encode())


class Gemma4BPE(_SpacedTokenizer):
    """Model ``gemma4``: ranked merges over lines; a run of newlines may be one piece."""

    def __init__(self, file: GGUFFile) -> None:
        super().__init__(file, Vocabulary(file, add_bos=True))

    @cached_property
    def _merger(self) -> PieceMerger:
        return _rank_merger(self._file, self._vocabulary)

    def _encode_plain(self, text: str, after_special: bool) -> list[int]:
        ids: list[int] = []
        for piece in re.findall(r"[^\n]+|\n+", text.replace(" ", SPACE)):
            raw = piece.encode()
            whole = self._merger.find(raw) if raw[0] == ord("\n") else -1
            ids += [whole] if whole >= 0 else self._merger.encode(raw)
        return ids


class NoText:
    """Models ``test`` and ``none``: the file runs on ids alone."""

    has_text = False
    add_bos = False

    def __init__(self, file: GGUFFile) -> None:
        self.chat_template: str | None = None
        tokens = file.get(PREFIX + "tokens", StringArray, None)
        size = file.get(f"{file.architecture}.vocab_size", int, 0)
        self.vocab_size = size if tokens is None else len(tokens)
        self.bos_id = file.get(PREFIX + "bos_token_id", int, None)
        self.eos_id = file.get(PREFIX + "eos_token_id", int, None)
        self.end_ids = frozenset(() if self.eos_id is None else (self.eos_id,))

    def encode(
        self, text: str, add_bos: bool | None = None, parse_special: bool = False
    ) -> list[int]:
        raise UnsupportedError(
            "this file has no tokenizer (tokenizer.ggml.model is test or none), so text cannot be "
            "encoded; pass a list of token ids"
        )

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        return ""

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        return b""


KINDS: dict[str, Callable[[GGUFFile], Tokenizer]] = {
    "gemma4": Gemma4BPE,
    "gpt2": ByteLevelBPE,
    "llama": SentencePiece,
    "none": NoText,
    "no_vocab": NoText,
    "test": NoText,
}


def load_tokenizer(file: GGUFFile) -> Tokenizer:
    """The tokenizer that a file carries; what only ``encode`` needs is made at its first call.

    Raises:
        UnsupportedError: a ``tokenizer.ggml.model`` or ``tokenizer.ggml.pre`` that is not run.
        FormatError, MismatchError: the file contradicts itself, or lacks a key.
    """
    model = file.get(PREFIX + "model", str)
    if model not in KINDS:
        raise UnsupportedError(
            f"tokenizer.ggml.model is {model!r}, expected one of {', '.join(KINDS)}; "
            "take a file with one of these"
        )
    return KINDS[model](file)
