"""What a GGUF file says of its tokens, whichever way they are made from text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cached_property

import numpy as np

from specrt.errors import FormatError, MismatchError
from specrt.gguf.reader import GGUFFile
from specrt.gguf.strings import StringArray

__all__ = ["SpecialPieces", "TokenType", "Vocabulary"]

PREFIX = "tokenizer.ggml."

END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Files name one or two end tokens; these end a generation too wherever a file marks them as
# special. `</s>` only as a control token: in Gemma 3 it is an HTML tag that answers may hold.
END_TEXTS = frozenset(
    {
        *("<eos>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<turn|>"),
        *("<|tool_response>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>"),
        *("<|EOT|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>"),
        *("<|fim_pad|>", "<|fim_repo|>", "<|repo_name|>", "<|file_sep|>", "<reponame>"),
    }
)
BYTE_TEXT = re.compile(rb"<0x([0-9A-Fa-f]{2})>")


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class SpecialPieces:
    """Finds pieces that are taken whole before any tokenising, from the left, longest first."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {text: token for text, token in ids.items() if text}
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        self._first = re.compile("|".join(map(re.escape, self._lengths)) or r"(?!)")

    def split(self, text: str) -> Iterator[str | int]:
        """The text as non-empty stretches without special pieces, and the ids between them."""
        start = at = 0
        while match := self._first.search(text, at):
            at = match.start()
            for size in self._lengths[text[at]]:
                token = self._ids.get(text[at : at + size])
                if token is not None:
                    if at > start:
                        yield text[start:at]
                    yield token
                    start = at = at + size
                    break
            else:
                at += 1
        if start < len(text):
            yield text[start:]


class Vocabulary:
    """The tokens of a file with their types, special ids and rules.

    Args:
        file: a GGUF file with ``tokenizer.ggml.tokens``.
        add_bos: whether BOS comes first when the file does not say.

    Attributes:
        tokens: ``[V]``, as the file spells them.
        types: ``[V]`` uint8, of ``TokenType``; control are also BOS, the end tokens and the unknown
            piece, whatever the file says: none of them is text.
        end_ids: the tokens that end a generation: the file's EOS, EOT and EOM, and the special
            tokens that are known to end a turn or a document.

    Raises:
        FormatError: arrays of different lengths, or an id outside the vocabulary.
        MismatchError: a key that is needed is missing.
    """

    def __init__(self, file: GGUFFile, *, add_bos: bool = False) -> None:
        self._file = file
        self.tokens = file.get(PREFIX + "tokens", StringArray)
        types = self.per_token("token_type", np.int32, TokenType.NORMAL)
        types = np.where(np.isin(types, list(TokenType)), types, TokenType.UNUSED)
        self.types = types.astype(np.uint8)
        self.bos_id = self._special_id("bos_token_id")
        self.eos_id = self._special_id("eos_token_id")
        self.unknown_id = self._special_id("unknown_token_id")
        self.add_bos = self._adds("add_bos_token", add_bos, self.bos_id)
        self.add_eos = self._adds("add_eos_token", False, self.eos_id)
        self.end_ids = self._end_ids()
        self.types[self.types == TokenType.UNKNOWN] = TokenType.CONTROL
        self.types[[i for i in (*self.end_ids, self.bos_id) if i is not None]] = TokenType.CONTROL

    def per_token(self, name: str, dtype: type, default: float | None = None) -> np.ndarray:
        """The file's array of that name, ``[V]`` dtype, or ``default`` in every place."""
        count = len(self.tokens)
        if default is not None and PREFIX + name not in self._file.metadata:
            return np.full(count, default, dtype)
        values = self._file.get(PREFIX + name, np.ndarray)
        if len(values) < count:
            raise FormatError(
                f"{PREFIX}{name} has {len(values)} entries, expected one for each of the {count} "
                "tokens: convert the model again, or take another file"
            )
        return np.ascontiguousarray(values[:count], dtype)

    def _special_id(self, name: str) -> int | None:
        token = self._file.get(PREFIX + name, int, None)
        if token is not None and not 0 <= token < len(self.tokens):
            raise FormatError(
                f"{PREFIX}{name} is {token}, expected an id below {len(self.tokens)}: "
                "convert the model again, or take another file"
            )
        return token

    def _adds(self, name: str, default: bool, token: int | None) -> bool:
        adds = self._file.get(PREFIX + name, bool, default and token is not None)
        if adds and token is None:
            raise MismatchError(
                f"{PREFIX}{name} is true and {PREFIX}{name[4:]}_id is missing; expected the id of "
                "the token to add: convert the model again, or take another file"
            )
        return adds

    def _end_ids(self) -> frozenset[int]:
        ends = {self._special_id(name) for name in END_KEYS} - {None}
        marked = np.isin(self.types, (TokenType.CONTROL, TokenType.USER_DEFINED))
        for text, token in self._ids(marked).items():
            control = self.types[token] == TokenType.CONTROL
            if text in END_TEXTS or (control and text == "</s>"):
                ends.add(token)
        return frozenset(token for token in ends if token is not None)

    def _ids(self, chosen: np.ndarray) -> dict[str, int]:
        return {self.tokens[i]: i for i in np.flatnonzero(chosen).tolist()}

    @cached_property
    def user_defined(self) -> SpecialPieces:
        """What is taken whole from any text."""
        return SpecialPieces(self._ids(self.types == TokenType.USER_DEFINED))

    @cached_property
    def special(self) -> SpecialPieces:
        """What is taken whole from a text in which special pieces are meant as such."""
        return SpecialPieces(
            self._ids(np.isin(self.types, (TokenType.USER_DEFINED, TokenType.CONTROL)))
        )

    @property
    def mergeable(self) -> np.ndarray:
        """``[V]`` uint8: 1 for the pieces that plain text may become."""
        return (~np.isin(self.types, (TokenType.CONTROL, TokenType.BYTE))).astype(np.uint8)

    @cached_property
    def byte_values(self) -> dict[int, int]:
        """The byte that each token ``<0xNN>`` stands for."""
        values = {}
        for token in np.flatnonzero(self.types == TokenType.BYTE).tolist():
            text = self.tokens.raw(token)
            if not (match := BYTE_TEXT.fullmatch(text)):
                raise FormatError(
                    f"token {token} is a byte spelled {text[:40]!r}, expected <0xNN>: "
                    "convert the model again, or take another file"
                )
            values[token] = int(match[1], 16)
        return values

    @property
    def byte_tokens(self) -> np.ndarray:
        """``[256]`` int32: the token for a byte that no piece holds; -1: there is none."""
        tokens = np.full(256, -1, np.int32)
        for token, value in self.byte_values.items():
            tokens[value] = token
        return tokens
