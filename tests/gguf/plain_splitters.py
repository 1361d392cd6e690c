"""Splitters written out by hand, character by character: no regular expression decides here."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Collection

Rule = Callable[[str, int], int]
"""Where a match that begins at a place ends; the place itself: there is none."""

SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | frozenset(
    map(chr, range(0x2000, 0x200B))
)
NEWLINES = frozenset("\r\n")


def of(wanted: str) -> Callable[[str], bool]:
    """Characters of these major categories (L, M, N, P, S)."""
    return lambda c: unicodedata.category(c)[0] in wanted


def run(text: str, at: int, member: Callable[[str], bool], most: int | None = None) -> int:
    """The end of the run of members that begins there."""
    end = at
    while end < len(text) and member(text[end]) and (most is None or end - at < most):
        end += 1
    return end


def after_optional(first: Callable[[str], bool], member: Callable[[str], bool]) -> Rule:
    """One ``first`` if a member follows it, then members, at least one."""

    def match(text: str, at: int) -> int:
        if at < len(text) and first(text[at]) and run(text, at + 1, member) > at + 1:
            return run(text, at + 1, member)
        return run(text, at, member)

    return match


def space_then(member: Callable[[str], bool], tail: Collection[str] = ()) -> Rule:
    """A space if a member follows it, then members, at least one, then the tail's characters."""
    body = after_optional(lambda c: c == " ", member)

    def match(text: str, at: int) -> int:
        end = body(text, at)
        return end if end == at else run(text, end, lambda c: c in tail)

    return match


def contraction(any_case: bool) -> Rule:
    def match(text: str, at: int) -> int:
        if text[at] != "'":
            return at
        for size, known in ((1, ("s", "t", "m", "d")), (2, ("re", "ve", "ll"))):
            ending = text[at + 1 : at + 1 + size]
            if (ending.casefold() if any_case else ending) in known:
                return at + 1 + size
        return at

    return match


def up_to_the_last_newline(text: str, at: int) -> int:
    """White space up to and with the last newline in it."""
    end = run(text, at, SPACES.__contains__)
    while end > at and text[end - 1] not in NEWLINES:
        end -= 1
    return end


def white_space(text: str, at: int) -> int:
    """A run of white space, less its last character if a word follows and there are others."""
    end = run(text, at, SPACES.__contains__)
    return end - 1 if end < len(text) and end > at + 1 else end


def either(*rules: Rule) -> Rule:
    """The first rule that matches."""
    return lambda text, at: next((end for rule in rules if (end := rule(text, at)) > at), at)


def cut(text: str, rule: Rule) -> list[str]:
    """The matches, and what lies between them."""
    pieces, rest, at = [], 0, 0
    while at < len(text):
        end = rule(text, at)
        if end > at:
            pieces += [text[rest:at], text[at:end]]
            rest = end
        at = max(at + 1, end)
    return [piece for piece in [*pieces, text[rest:]] if piece]


def words(letter: str, digits: int, not_symbol: str) -> Rule:
    """Llama 3, GLM and the Qwen families."""
    is_symbol = of(not_symbol)
    return either(
        contraction(any_case=True),
        after_optional(lambda c: c not in NEWLINES and not of("LN")(c), of(letter)),
        lambda text, at: run(text, at, of("N"), digits),
        space_then(lambda c: c not in SPACES and not is_symbol(c), NEWLINES),
        up_to_the_last_newline,
        white_space,
    )


GPT2 = either(
    contraction(any_case=False),
    space_then(of("L")),
    space_then(of("N")),
    space_then(lambda c: c not in SPACES and not of("LN")(c)),
    white_space,
)


def among(*ranges: tuple[str, str]) -> Callable[[str], bool]:
    return lambda c: any(first <= c <= last for first, last in ranges)


def one(member: Callable[[str], bool]) -> Rule:
    return lambda text, at: run(text, at, member, 1)


def many(member: Callable[[str], bool]) -> Rule:
    return lambda text, at: run(text, at, member)


def ascii_mark_and_word(text: str, at: int) -> int:
    end = run(text, at + 1, string.ascii_letters.__contains__)
    return end if text[at] in string.punctuation and end > at + 1 else at


def white_space_to_the_end(text: str, at: int) -> int:
    end = run(text, at, SPACES.__contains__)
    return end if end == len(text) else at


def is_space(c: str) -> bool:
    return c in SPACES


CHINESE_TO_KOREAN = among(("\u4e00", "\u9fa5"), ("\u0800", "\u4e00"), ("\uac00", "\ud7ff"))
DIGIT = one(of("N"))
NEWLINE = one(NEWLINES.__contains__)
DEEPSEEK_V3 = (
    lambda text, at: run(text, at, of("N"), 3),
    many(among(("\u4e00", "\u9fa5"), ("\u3040", "\u309f"), ("\u30a0", "\u30ff"))),
    either(
        ascii_mark_and_word,
        after_optional(lambda c: c not in NEWLINES and not of("LPS")(c), of("LM")),
        space_then(of("PS"), NEWLINES),
        up_to_the_last_newline,
        white_space,
    ),
)
DEEPSEEK_CODER = (
    NEWLINE,
    after_optional(is_space, of("L")),
    after_optional(is_space, of("P")),
    many(CHINESE_TO_KOREAN),
    DIGIT,
)
DEEPSEEK_LLM = (
    NEWLINE,
    after_optional(is_space, lambda c: unicodedata.category(c) in ("Lu", "Ll", "Lt")),
    after_optional(
        is_space,
        among(("!", "/"), (":", "~"), ("！", "／"), ("：", "～"), ("‘", "‟"), ("\u3000", "。")),
    ),
    white_space_to_the_end,
    many(CHINESE_TO_KOREAN),
    DIGIT,
)

STAGES: dict[str, tuple[Rule, ...]] = {
    "llama-bpe": (words("L", 3, "LN"),),
    "qwen2": (words("L", 1, "LN"),),
    "qwen35": (words("LM", 1, "LMN"),),
    "gpt-2": (GPT2,),
    "smollm": (DIGIT, GPT2),
    "deepseek-v3": DEEPSEEK_V3,
    "deepseek-coder": DEEPSEEK_CODER,
    "deepseek-llm": DEEPSEEK_LLM,
}


def split(text: str, pre: str) -> list[str]:
    """The words of a text."""
    pieces = [text]
    for rule in STAGES[pre]:
        pieces = [part for piece in pieces for part in cut(piece, rule)]
    return pieces
