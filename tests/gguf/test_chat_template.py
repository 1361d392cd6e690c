"""Chat templates: what they print, what they may use, and how they fail."""

from datetime import datetime

import pytest

from specrt.errors import FormatError, OptionError
from specrt.gguf import chat_template
from specrt.gguf.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Yo"}]
CHATML = """{{ bos_token }}{% for message in messages %}
    {% if message['role'] == 'system' %}
        {% continue %}
    {% endif %}
<|im_start|>{{ message.role }}
{{ message.content }}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}
<think></think>
{% endif %}
{% endif %}"""


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, "<bos>", "<eos>").render(MESSAGES, **variables)


def test_messages_and_variables_reach_the_template():
    expected = "<bos><|im_start|>user\nHi <b><eos>\n<|im_start|>assistant\nYo<eos>\n"
    assert render(CHATML, add_generation_prompt=False) == expected
    assert render(CHATML) == expected + "<|im_start|>assistant\n"
    thinking = render(CHATML, enable_thinking=False)
    assert thinking == expected + "<|im_start|>assistant\n<think></think>\n"
    system = [{"role": "system", "content": "no"}, *MESSAGES]
    assert ChatTemplate(CHATML, "<bos>", "<eos>").render(system, add_generation_prompt=False) == (
        expected
    )


def test_without_a_template_the_contents_stand_alone():
    raw = ChatTemplate(None, "<bos>", "<eos>")
    assert (raw.is_raw, raw.render(MESSAGES)) == (True, "Hi <b>\nYo")
    assert not ChatTemplate("").is_raw
    assert ChatTemplate("").render(MESSAGES) == ""


def test_what_transformers_gives_templates_is_there():
    assert render("{{ messages[0] | tojson }}") == '{"role": "user", "content": "Hi <b>"}'
    assert render("{{ {'b': 1, 'a': 'é'} | tojson(indent=1, sort_keys=true) }}") == (
        '{\n "a": "é",\n "b": 1\n}'
    )
    assert render("{{ strftime_now('%Y') }}") == datetime.now().strftime("%Y")
    assert render("{{ tools is none }} {{ documents is none }}") == "True True"
    assert render("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}") == "user"
    assert render("a{% generation %}{{ messages[1].content }}{% endgeneration %}b") == "aYob"


def test_a_template_refuses_messages_in_its_own_words():
    with pytest.raises(OptionError, match="refuses these messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("source", ["{% if %}", "{{ a", "{% nosuch %}", "{{ x | nosuch }}"])
def test_no_jinja_is_an_error_of_the_file(source):
    with pytest.raises(FormatError, match=r"no valid Jinja.*take a file with a valid one"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages[0].nosuch.more }}",
        "{{ messages[0].content + 1 }}",
        "{{ nosuch() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ strftime_now.__globals__.os }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_fails_or_is_forbidden_is_an_error_of_the_call(source):
    with pytest.raises(OptionError, match="fails on these messages"):
        render(source)


def test_output_is_bounded(monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 1000)
    with pytest.raises(OptionError, match="more than 1000 characters"):
        render("{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}")
    assert render("{% for i in range(1000) %}x{% endfor %}") == "x" * 1000
