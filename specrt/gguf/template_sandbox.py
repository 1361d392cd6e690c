"""The Jinja environment of chat templates, where no single step can take all time or memory.

A template comes with a file from anywhere. Compiling it computes nothing; a loop of the template
may still run long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import update_wrapper, wraps
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

__all__ = ["TemplateEnvironment"]

MAX_SIZE = 1 << 20
"""The most items or characters that an operator repeats to, or that an argument asks for."""
MAX_BITS = 4096
"""Of a product or power of integers."""

# Widths and precisions of seven digits are too long, and of ``*`` unknown.
TOO_WIDE = re.compile(r"%(?:\([^)]*\)+)?[-#0 +]*(?:\*|\d*\.?(?:\*|\d{7}))")
TOO_WIDE_FIELD = re.compile(r"\d{7}")


def _refuse(what: str) -> NoReturn:
    raise OverflowError(f"{what} is too large for a chat template")


class _NothingFolded(CodeGenerator):
    """Computes no constant expression while it compiles; ``optimized=False`` still does some."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:
        for keyword in node.options:
            self.writeline(f"context.eval_ctx.{keyword.key} = ")
            self.visit(keyword.value, frame)
        frame.eval_ctx.volatile = True


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if TOO_WIDE_FIELD.search(format_spec):
            _refuse(f"the format {format_spec!r}")
        return str(super().format_field(value, format_spec))


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that compiles without computing and bounds what an operator, call or filter gives.

    Args:
        filters: added to Jinja's own.
        options: of Jinja's ``Environment``.
    """

    code_generator_class = _NothingFolded
    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, *, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(optimized=False, **options)
        del self.globals["lipsum"]  # as many words as are asked for
        known = {**self.filters, **filters}
        self.filters = {name: _bounded(function) for name, function in known.items()}
        self.filters["format"] = _format

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right`` unless that is too large."""
        {"*": _check_product, "**": _check_power, "%": _check_format}[operator](left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls, unless it is Python's own and an argument is too large."""
        if isinstance(__obj, BuiltinMethodType):
            _check_sizes(args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``str.format`` and ``format_map`` in the sandbox, without wide fields."""
        if super().wrap_str_format(value) is None:
            return None
        text, formatter = value.__self__, _Formatter(self)

        def wrapper(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                (mapping,) = args
                return formatter.vformat(text, (), mapping)
            return formatter.vformat(text, args, kwargs)

        return update_wrapper(wrapper, value)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, with its arguments behind the value bounded."""
    skipped = 2 if hasattr(function, "jinja_pass_arg") else 1

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_sizes(args[skipped:], kwargs)
        return function(*args, **kwargs)

    return bounded


def _format(text: object, *args: Any, **kwargs: Any) -> str:
    """``text % args``, as Jinja's filter, which gets no further than the operator."""
    _check_format(str(text), args)
    return str(text) % (kwargs or args)


def _check_sizes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and abs(value) > MAX_SIZE:
            _refuse(f"the argument {value}")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_BITS:
            _refuse("a product")
        return
    for items, count in ((left, right), (right, left)):
        if isinstance(count, int) and hasattr(items, "__len__") and len(items) * count > MAX_SIZE:
            _refuse(f"{len(items)} items {count} times")


def _check_power(left: Any, right: Any) -> None:
    whole = isinstance(left, int) and isinstance(right, int)
    if whole and left.bit_length() * max(right, 0) > MAX_BITS:
        _refuse("a power")


def _check_format(left: Any, right: Any) -> None:
    if isinstance(left, str) and TOO_WIDE.search(left):
        _refuse("the width or precision of a format")
