"""How byte-level BPE cuts a text into words before it merges, by ``tokenizer.ggml.pre``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specrt.errors import UnsupportedError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

__all__ = ["SPLITTERS", "Splitter", "splitter"]


@dataclass(frozen=True, slots=True)
class Splitter:
    """The rules that a ``tokenizer.ggml.pre`` stands for.

    Args:
        patterns: regular expressions, one after the other, each over the pieces left by the one
            before; what a pattern does not match stays a piece.
        whole_words: a word that is in the vocabulary is taken without merging.
        add_bos: BOS comes first when the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False

    def compile(self) -> PreTokenizer:
        """The patterns, then each piece in the byte alphabet of GPT-2."""
        # Imported here since files without byte-level BPE, and runs on ids, need none of it.
        from tokenizers import Regex, pre_tokenizers

        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, alphabet])


def _words(word: str, digits: str, symbols: str) -> str:
    """The pattern that Llama 3, GLM 4 and the Qwen families share but for three classes."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{word}+|{digits}| ?{symbols}+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_LLAMA3 = _words(r"\p{L}", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]")
_QWEN2 = _words(r"\p{L}", r"\p{N}", r"[^\s\p{L}\p{N}]")
_QWEN35 = _words(r"[\p{L}\p{M}]", r"\p{N}", r"[^\s\p{L}\p{M}\p{N}]")
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# The cased letters as that model lists them; as escapes, since some of the characters do not
# survive a normalising editor.
_CASED = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}"
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}"
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}"
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}"
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}"
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}"
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}"
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}"
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}"
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
)

LLAMA3 = Splitter((_LLAMA3,), whole_words=True, add_bos=True)
GLM4 = Splitter((_LLAMA3,), whole_words=True)
QWEN2 = Splitter((_QWEN2,))
QWEN35 = Splitter((_QWEN35,))
GPT2 = Splitter((_GPT2,))
STARCODER = Splitter((r"\p{N}", _GPT2))
DEEPSEEK_V3 = Splitter(
    (
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
DEEPSEEK_LLM = Splitter(
    (
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
        r"\s+$",
        r"[一-龥ࠀ-一가-퟿]+",
        r"\p{N}",
    )
)
DEEPSEEK_CODER = Splitter((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"))

SPLITTERS: dict[str, Splitter] = {
    "chatglm-bpe": GLM4,
    "deepseek-coder": DEEPSEEK_CODER,
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-r1-qwen": QWEN2,
    "deepseek-v3": DEEPSEEK_V3,
    "glm4": GLM4,
    "gpt-2": GPT2,
    "joyai-llm": DEEPSEEK_V3,
    "llama-bpe": LLAMA3,
    "llama-v3": LLAMA3,
    "llama3": LLAMA3,
    "qwen2": QWEN2,
    "qwen35": QWEN35,
    "smollm": STARCODER,
    "starcoder": STARCODER,
}


def splitter(pre: str) -> Splitter:
    """The rules for a ``tokenizer.ggml.pre``.

    Raises:
        UnsupportedError: a name that is not in the table: a guess would give wrong ids silently.
    """
    if pre not in SPLITTERS:
        raise UnsupportedError(
            f"tokenizer.ggml.pre is {pre!r}, expected one of {', '.join(SPLITTERS)}; "
            "take a file with one of these"
        )
    return SPLITTERS[pre]
