"""Small vocabulary-only GGUF files, written by the gguf package."""

from pathlib import Path

import gguf

from specrt.gguf.reader import open_gguf
from specrt.gguf.tokenizer import Tokenizer, load_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"
# Spelled out here by another rule than the library's: GPT-2's printable stand-ins.
SHIFTED = [b for b in range(256) if not (33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255)]
ALPHABET = [chr(256 + SHIFTED.index(b)) if b in SHIFTED else chr(b) for b in range(256)]
BYTES = [(f"<0x{b:02X}>", BYTE) for b in range(256)]


def spelled(text: str) -> str:
    """A text in the byte alphabet."""
    return "".join(ALPHABET[b] for b in text.encode())


def write(path: Path, model: str, pieces: list[tuple[str, int]], **keys: object) -> Path:
    """A file with these ``(piece, type)``; ``keys`` are further ``tokenizer.ggml.*``."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_types([kind for _, kind in pieces])
    for name, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"tokenizer.{name.replace('__', '.')}", value)
        else:
            writer.add_array(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


class Files:
    """Makes tokenizers out of vocabularies."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "vocabulary.gguf"

    def load(self, model: str, pieces: list[tuple[str, int]], **keys: object) -> Tokenizer:
        return load_tokenizer(open_gguf(write(self.path, model, pieces, **keys)))

    def byte_level(self, *, pre: str = "gpt-2", **keys: object) -> Tokenizer:
        """All bytes, ``l o -> lo``, ``Ġ lo -> Ġlo``, ``w 's``-like merges and special pieces."""
        merges = ["l o", "o w", "lo w", f"{ALPHABET[32]} low", "e r", "low er"]
        pieces = [(c, NORMAL) for c in ALPHABET]
        pieces += [(m.replace(" ", ""), NORMAL) for m in merges]
        pieces += [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<tag>", USER_DEFINED)]
        return self.load("gpt2", pieces, ggml__pre=pre, merges=merges, **keys)

    def sentence_piece(self, **keys: object) -> Tokenizer:
        """Bytes, letters and pieces in which the better score and the leftmost pair decide."""
        pieces = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), *BYTES]
        scored = {SPACE: -20, "a": -21, "b": -22, "c": -23, "ab": -2, "bc": -1, "aa": -3}
        scored |= {SPACE + "a": -5, "abc": -6, "<": -30, "s": -30, ">": -30, "<s": -7, "é": -9}
        pieces += [(piece, NORMAL) for piece in scored]
        scores = [0.0] * 259 + [float(score) for score in scored.values()]
        keys = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **keys}
        return self.load("llama", pieces, scores=scores, **keys)

    def gemma4(self, **keys: object) -> Tokenizer:
        """Ranked merges over the SentencePiece alphabet."""
        pieces = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), *BYTES]
        pieces += [(c, NORMAL) for c in (SPACE, "a", "b", "\n", "ab", "\n\n", SPACE + "a")]
        pieces += [("\n\n\n", NORMAL), (SPACE + "ab", NORMAL), ("<tool>", USER_DEFINED)]
        merges = ["a b", f"{SPACE} a", f"{SPACE} ab", f"{SPACE}a b"]
        return self.load(
            "gemma4", pieces, merges=merges, **{"bos_token_id": 2, "eos_token_id": 1, **keys}
        )


def names(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The pieces as text, special ones spelled out; a lone byte as its number."""
    raw = [tokenizer.token_bytes(i, skip_special=False) for i in ids]
    return [r.decode() if r.isascii() or len(r) > 1 else f"{r[0]:#x}" for r in raw]
