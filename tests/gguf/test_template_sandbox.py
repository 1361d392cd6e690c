"""What a hostile chat template could compute without end: nothing at load, no single step later."""

import time
import tracemalloc
from contextlib import contextmanager

import pytest

from specrt.errors import FormatError, OptionError
from specrt.gguf.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "Hi"}]
BIG = 10**10
ENDLESS = [
    "9**(9**9)",
    "9**9**9**9**9",
    f"'a' * {BIG}",
    f"{BIG} * 'a'",
    f"[1] * {BIG}",
    f"'%{BIG}d' % 1",
    f"'%.{BIG}f' % 1",
    f"'%(a){BIG}d' % {{'a': 1}}",
    f"'%*d' % ({BIG}, 1)",
    f"'%{BIG}d' | format(1)",
    f"'%*d' | format({BIG}, 1)",
    f"'a' | center({BIG})",
    f"'a' | indent({BIG}, true)",
    f"'a' | indent(width={BIG}, first=true)",
    "'a' | indent('a' * 2**20 * 2**20)",
    f"[1] | batch({BIG}, 0) | list",
    f"[1] | slice({BIG}) | list",
    f"1 | round({BIG}, 'ceil')",
    f"[1] | tojson(indent={BIG})",
    f"'a'.center({BIG})",
    f"'a'.zfill({BIG})",
    f"'{{:{BIG}}}'.format(1)",
    f"'{{:{{}}}}'.format(1, {BIG})",
    f"'{{:{{0[a]}}}}'.format({{'a': {BIG}}})",
    f"'{{a:{BIG}}}'.format_map({{'a': 1}})",
    f"(1).to_bytes({BIG}, 'big')",
    f"lipsum({BIG})",
    f"range({BIG}) | list",
]


@contextmanager
def bounded():
    """At most a second and 64 MB."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 1 and peak < 1 << 26


@pytest.mark.parametrize("expression", ENDLESS)
@pytest.mark.parametrize(
    "around",
    ["{{ %s }}", "{%% set x = %s %%}", "{%% if %s %%}{%% endif %%}", "{{ [%s] | length }}"],
)
def test_loading_computes_nothing_and_rendering_refuses(expression, around):
    with bounded():
        template = ChatTemplate(around.replace("%s", expression).replace("%%", "%"))
        with pytest.raises(OptionError, match="fails on these messages"):
            template.render(MESSAGES)


@pytest.mark.parametrize("expression", ["9**(9**9)", f"'a' * {BIG}", f"'a' | center({BIG})"])
@pytest.mark.parametrize(
    "around",
    [
        "{% if false %}{{ @ }}{% endif %}",
        "{% if false %}{% autoescape @ %}a{% endautoescape %}{% endif %}",
        "{% if false %}{% include @ %}{% endif %}",
        "{% macro f(x=@) %}{{ x }}{% endmacro %}",
        "{{ 1 if true else @ }}",
        "{% if false %}{% for i in [@] %}{% endfor %}{% endif %}",
    ],
)
def test_what_is_not_reached_is_never_computed(expression, around):
    with bounded():
        assert ChatTemplate(around.replace("@", expression)).render(MESSAGES) in ("", "1")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("2 ** 10", "1024"),
        ("2.5 ** 2", "6.25"),
        ("3 * 4", "12"),
        ("'=' * 5", "====="),
        ("3 * [1, 2]", "[1, 2, 1, 2, 1, 2]"),
        ("17 % 5", "2"),
        ("'**%s** at %5.1f%%, no %(8)' % ('a', 2)", None),
        ("'**%s** at %5.1f%% of 123456789' % ('a', 2)", "**a** at   2.0% of 123456789"),
        ("'%s-%s' | format(1, 12345678901)", "1-12345678901"),
        ("'{:>4}|{a}'.format(7, a='b')", "   7|b"),
        ("'{}'.format(12345678901)", "12345678901"),
        ("'a' | center(5)", "  a  "),
        ("12345678901 | string | length", "11"),
        ("'1\n2' | indent(2)", "1\n  2"),
        ("1.25 | round(1)", "1.2"),
        ("[3, 1] | sort | join(',')", "1,3"),
    ],
)
def test_ordinary_expressions_are_computed(expression, expected):
    template = ChatTemplate("{{ " + expression + " }}")
    if expected is None:
        with pytest.raises(OptionError, match="fails on these messages"):
            template.render(MESSAGES)
    else:
        assert template.render(MESSAGES) == expected


def test_a_number_too_long_for_python_is_no_valid_jinja():
    with pytest.raises(FormatError, match="no valid Jinja"):
        ChatTemplate("{{ " + "1" * 5000 + " }}")
