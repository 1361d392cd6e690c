"""Chat messages to prompt text, by the Jinja template that the file carries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from specrt.errors import FormatError, OptionError
from specrt.gguf.template_sandbox import TemplateEnvironment

__all__ = ["ChatTemplate"]

MAX_CHARACTERS = 1 << 24


class _Refused(Exception):
    """The template itself called ``raise_exception``."""


class _GenerationBlocks(Extension):
    """``{% generation %}``, which marks the answers for training, is its body."""

    tags = {"generation"}  # noqa: RUF012 (as the base class has it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: Jinja's own escapes ``<`` and the like for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _environment() -> TemplateEnvironment:
    environment = TemplateEnvironment(
        filters={"tojson": _tojson},
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlocks, "jinja2.ext.loopcontrols"],
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Check for what a typing slip leaves out; a call of tools may stand in place of a content.

    Raises:
        OptionError: no messages, or one lacks its role or content.
    """
    expected = "expected a list of messages, each with a role and a content"
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise OptionError(f"messages = {messages!r}: {expected}")
    for message in messages:
        whole = isinstance(message, Mapping) and "role" in message
        if not whole or not ("content" in message or "tool_calls" in message):
            raise OptionError(f"messages hold {message!r}: {expected}")


class ChatTemplate:
    """A model's chat template, run in a sandbox: it reaches no file and no attribute of Python.

    Making it computes nothing of what the template says. ``render`` bounds its output and each of
    its steps, but not how many steps it takes.

    Args:
        source: Jinja as transformers takes it; None: the file has no template, and ``render``
            gives the messages' contents, a newline between them.
        bos_token, eos_token: what the template sees under these names.

    Raises:
        FormatError: the source is no valid Jinja.
    """

    def __init__(self, source: str | None, bos_token: str = "", eos_token: str = "") -> None:
        self.is_raw = source is None
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = _environment().from_string(source or "")
        # Jinja compiles to Python, whose own limits (nesting, digits) are other exceptions.
        except Exception as error:
            raise FormatError(
                f"tokenizer.chat_template is no valid Jinja: {error}; expected a template as "
                "transformers takes it: take a file with a valid one, or without any"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt for these messages.

        It spells special tokens out, BOS included where the template prints it: encode it with
        ``parse_special=True, add_bos=False``, and add BOS where it is missing and the file adds it.

        Args:
            messages: each with ``role`` and ``content``.
            add_generation_prompt: end where the assistant's answer begins.
            variables: what else the template reads, as ``enable_thinking=False`` or ``tools``.

        Raises:
            OptionError: these are no messages, or the template refuses them, fails on them, or
                does not end.
        """
        _check_messages(messages)
        if self.is_raw:
            return "\n".join(str(message.get("content") or "") for message in messages)
        names: dict[str, Any] = {"tools": None, "documents": None, **self._tokens, **variables}
        names |= {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        pieces, size = [], 0
        try:
            for piece in self._template.generate(names):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_CHARACTERS:
                    raise _Refused(f"more than {MAX_CHARACTERS} characters")
        except _Refused as error:
            raise OptionError(
                f"the chat template refuses these messages: {error}; "
                "expected roles and contents as the model was trained on"
            ) from None
        except Exception as error:  # a program over the caller's values: anything may fail in it
            raise OptionError(
                f"the chat template fails on these messages: {type(error).__name__}: {error}; "
                "expected role and content as text: check them and the template's variables"
            ) from None
        return "".join(pieces)
