"""Texts and the words that each splitter cuts them into."""

import plain_splitters
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from vocabulary_files import spelled

from specrt.errors import UnsupportedError
from specrt.gguf.splitters import SPLITTERS, splitter

# In each case the words are set apart by "|".
CASES = {
    "llama-bpe": [
        "Hello|,| world|!",
        "I|'m| WE|'LL| don|'t| don|’t",
        "123|456|789|0| |12|,|345|.|67",
        "a| | b|  | c",
        "x|\n|y|\r\n\r\n|z| \t\n|end|  \n|  ",
        "foo|_bar|(x|)| ==| y|;\n| //| z|?!\n\n|ok",
        "日本語のテキスト|。中文",
        "नमस|्त|े",
        "½²| |Ⅷ",
    ],
    "qwen2": ["1|2|3|4| |1|2", "ab|1|2|c", "I|'m| HE|'S", "नमस|्त|े", "a|()\n|b"],
    "qwen35": ["1|2|3", "नमस्ते", "e\u0301a", " नमस्ते|!", "a|()\n|b"],
    "gpt-2": [
        "Hello|,| world|!",
        "1234| 56",
        "I|'m| HE|'|S",
        "a| | b|\n|\n|c",
        "x|!!| ??| ",
        "a|  ",
    ],
    "smollm": ["1|2|3| |4|5", "x|1|y", "I|'m| HE|'|S", "a| | b|\n|\n|c"],
    "deepseek-v3": [
        "123|456|7| |12",
        "日本語のテキスト|。|中文",
        "snake|_case| kebab|-case|.txt",
        "a|!!\n|b",
        "नमस्ते",
        "I|'m| don|'t",
        "x| | y|\n\n|z|  ",
    ],
    "deepseek-coder": [
        "a|\n|\n|b",
        "x| y|\tz|  | w",
        "1|2|3",
        "日本語|。|中文",
        "f|(|x|)| +| y",
        "a| ?!| b",
    ],
    "deepseek-llm": [
        "a|\n|\n|b",
        "x| y|\tz|  | w",
        "1|2|3| |4|5",
        "日本語|。|中文",
        "éµ| |ⅅ|!?",
        "a|  ",
    ],
}
FAMILY = {
    "chatglm-bpe": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "glm4": "llama-bpe",
    "joyai-llm": "deepseek-v3",
    "llama-v3": "llama-bpe",
    "llama3": "llama-bpe",
    "starcoder": "smollm",
}

# Parts of texts in which one character more or less decides; all were assigned before Unicode 10,
# so that no library is too old to know their category.
INK = """
's 'S 't 'T 're 'RE 'Ve 'll 'lL 'd 'm 'x ' ’s '\u017f
a Zz é ß ж Ω ǅ ªʰ אב عر नम स्त े \u0301 \u0903 \u20dd
日本 語 の カ ー 한 \u4e00 \u9fa5 \u9fb0 ㄱ 。 、 ！ ～
1 12 345 6789 ½ ² Ⅷ 〇 ١٢ １２３４
_ - ?! ... $ += ( ) // ~ ` @ # € © « — \\ ] ^ " <|im_end|> 😀 👩\u200d🚀 ❤️ 🇩🇪
\x00 \x7f \u200b \u200d \ufeff \ue000 \U000f0000
"""
SPACE = [*" \t\n\r\v\x1c\x85\xa0\u2003\u2028\u3000", "  ", "   ", "\r\n", "\n\n", " \n", "\n "]
PARTS = INK.split() + SPACE
COMPILED = {pre: splitter(pre).compile() for pre in CASES}
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


def test_every_splitter_has_cases():
    assert CASES.keys() | FAMILY.keys() == SPLITTERS.keys()
    assert plain_splitters.STAGES.keys() == CASES.keys()


def test_members_of_a_family_share_their_patterns():
    for pre, kind in FAMILY.items():
        assert splitter(pre).patterns == splitter(kind).patterns


@pytest.mark.parametrize("pre", CASES)
@settings(max_examples=400)
@given(text=TEXTS)
def test_any_text_is_cut_as_by_hand(pre, text):
    words = [word for word, _ in COMPILED[pre].pre_tokenize_str(text)]
    assert words == [spelled(word) for word in plain_splitters.split(text, pre)]


@pytest.mark.parametrize("pre", ["gpt-2", "smollm"])
@given(text=TEXTS)
def test_gpt_2_is_what_its_authors_library_has_built_in(pre, text):
    """These models' own files name the splitter, and not a pattern."""
    digits = [pre_tokenizers.Digits(individual_digits=True)] if pre != "gpt-2" else []
    own = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    expected = pre_tokenizers.Sequence(own).pre_tokenize_str(text)
    assert COMPILED[pre].pre_tokenize_str(text) == expected


@pytest.mark.parametrize("pre", SPLITTERS)
def test_words(pre):
    split = splitter(pre).compile()
    for case in CASES[FAMILY.get(pre, pre)]:
        words = split.pre_tokenize_str(case.replace("|", ""))
        assert [word for word, _ in words] == [spelled(word) for word in case.split("|")]


def test_llama_3_and_glm_take_whole_words_and_llama_3_adds_bos():
    llama, glm = {"llama-bpe", "llama-v3", "llama3"}, {"glm4", "chatglm-bpe"}
    assert {pre for pre, rules in SPLITTERS.items() if rules.whole_words} == llama | glm
    assert {pre for pre, rules in SPLITTERS.items() if rules.add_bos} == llama


def test_an_unknown_name_lists_the_known_ones():
    expected = r"'frobnicate'.*deepseek-coder.*qwen35.*starcoder; take a file with one of these$"
    with pytest.raises(UnsupportedError, match=expected):
        splitter("frobnicate")
