"""Texts and the words that each splitter cuts them into."""

import pytest
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
        "x|\n|y|\r\n\r\n|z| |\t\n|end|  \n|  ",
        "foo|_bar|(|x|)| ==| y|;\n| //| z|?!\n\n|ok",
        "日本語のテキスト|。|中文",
        "नमस|्त|े",
        "½|²| |Ⅷ",
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
        "123| |45",
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


def test_every_splitter_has_cases():
    assert CASES.keys() | FAMILY.keys() == SPLITTERS.keys()


@pytest.mark.parametrize("pre", SPLITTERS)
def test_words(pre):
    split = splitter(pre).compile()
    for case in CASES[FAMILY.get(pre, pre)]:
        words = split.pre_tokenize_str(case.replace("|", ""))
        assert [word for word, _ in words] == [spelled(word) for word in case.split("|")]


def test_only_llama_3_takes_whole_words_and_adds_bos():
    llama = {"llama-bpe", "llama-v3", "llama3"}
    assert {pre for pre, rules in SPLITTERS.items() if rules.whole_words} == llama
    assert {pre for pre, rules in SPLITTERS.items() if rules.add_bos} == llama


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnsupportedError, match=r"'frobnicate'.*deepseek-coder.*qwen35.*starcoder"):
        splitter("frobnicate")
