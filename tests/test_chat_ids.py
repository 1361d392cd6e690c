"""The ids of chats: BOS is there once where the file or its template wants it, never twice."""

import pytest

from specrt.generate import chat_ids
from specrt.gguf.chat_template import ChatTemplate
from tests.gguf.vocabulary_files import ALPHABET, BYTES, CONTROL, NORMAL, SPACE, UNKNOWN, Files

USER = [{"role": "user", "content": "a"}]
TINYLLAMA = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
    "{{ '<|user|>\\n' + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
GEMMA3 = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\\n' }}"
    "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}"
)
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou help<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def sentencepiece(files, special=(), **keys):
    pieces = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), *BYTES, (SPACE, NORMAL)]
    pieces += [("a", NORMAL), *((text, CONTROL) for text in special)]
    keys = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0} | keys
    return files.load("llama", pieces, scores=[0.0] * len(pieces), **keys)


def byte_level(files, bos, special=(), *, pre, **keys):
    pieces = [(c, NORMAL) for c in ALPHABET] + [(bos, CONTROL), *((s, CONTROL) for s in special)]
    return files.load("gpt2", pieces, merges=["a b"], bos_token_id=256, ggml__pre=pre, **keys)


def ids(tokenizer, source, messages=USER, bos="<s>", eos="</s>"):
    return chat_ids(tokenizer, ChatTemplate(source, bos, eos), messages)


@pytest.mark.parametrize("adds", [None, True])
def test_a_template_without_bos_gets_the_files(files, adds):
    tokenizer = sentencepiece(files, **({} if adds is None else {"add_bos_token": adds}))
    text = ChatTemplate(TINYLLAMA, "<s>", "</s>").render(USER)
    assert text.startswith("<|user|>\na</s>")
    plain = tokenizer.encode(text, add_bos=False, parse_special=True)
    assert 1 not in plain
    assert ids(tokenizer, TINYLLAMA) == [1, *plain]


def test_a_file_that_adds_none_gets_none(files):
    tokenizer = sentencepiece(files, add_bos_token=False)
    assert 1 not in ids(tokenizer, TINYLLAMA)
    assert ids(tokenizer, "{{ bos_token }}a").count(1) == 1


def test_no_end_token_is_added_behind_a_chat(files):
    tokenizer = sentencepiece(files, add_eos_token=True)
    assert ids(tokenizer, "{{ messages[0].content }}") == [1, 259, 260]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("model", ["gemma3", "llama3"])
def test_templates_with_bos_keep_one(files, model, adds):
    if model == "gemma3":
        special = ("<start_of_turn>", "<end_of_turn>")
        tokenizer = sentencepiece(files, special, add_bos_token=adds, add_space_prefix=False)
        template = ChatTemplate(GEMMA3, "<s>", "")
    else:
        special = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
        tokenizer = byte_level(files, "<|begin|>", special, add_bos_token=adds, pre="llama-bpe")
        template = ChatTemplate(LLAMA3, "<|begin|>", "")
    got = chat_ids(tokenizer, template, USER)
    assert got == tokenizer.encode(template.render(USER), add_bos=False, parse_special=True)
    assert got[0] == tokenizer.bos_id
    assert got.count(tokenizer.bos_id) == 1


@pytest.mark.parametrize("adds", [False, True])
def test_smollm2_begins_with_its_first_turn(files, adds):
    """Its BOS is the token that opens every turn."""
    special = ["<|im_end|>"]
    tokenizer = byte_level(files, "<|im_start|>", special, add_bos_token=adds, pre="smollm")
    template = ChatTemplate(SMOLLM2, "<|im_start|>", "<|im_end|>")
    got = chat_ids(tokenizer, template, USER)
    assert got == tokenizer.encode(template.render(USER), add_bos=False, parse_special=True)
    assert got.count(256) == 3 and got[:2] != [256, 256]


@pytest.mark.parametrize("adds", [False, True])
def test_raw_contents_are_text(files, adds):
    tokenizer = sentencepiece(files, add_bos_token=adds)
    expected = tokenizer.encode("a<s>")
    got = ids(tokenizer, None, [{"role": "user", "content": "a<s>"}])
    assert got == expected and got.count(1) == adds
