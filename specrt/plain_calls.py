"""What programs record, and programs that are nothing but calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pkgutil import iter_modules
from typing import Any

from specrt import reference
from specrt.ops import Ops
from specrt.reference import Program

OPS = frozenset(vars(Ops)) & {module.name for module in iter_modules(reference.__path__)}
"""What programs record: each of them has a module of its name."""


class PlainCalls:
    """Another op set whose programs are plain calls, one op after the other.

    Args:
        ops: the other one.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._program: Program | None = None

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Within the block ops are noted and not run."""
        self._program = Program()
        try:
            yield self._program
        finally:
            self._program = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._ops, name)
        return call if self._program is None or name not in OPS else partial(self._note, call)

    def _note(self, call: Callable[..., None], *arguments: Any, **keywords: Any) -> None:
        assert self._program is not None
        self._program.calls.append(partial(call, *arguments, **keywords))
