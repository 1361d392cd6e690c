"""Engines that are Python packages, each model in a process of its own: JSON, a line each way.

``python -m benchmarks.peers.worker ENGINE SETTINGS`` is the child; ``PythonEngine`` starts it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.engine import PREFILL, Answer, Job, PeerError, Server
from benchmarks.peers.processes import ANSWER_SECONDS, Child

Complete = Callable[[Job], Answer]
"""What ``load`` of an engine's file gives: a loaded model that answers."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine's ``load`` is told.

    Args:
        model: the file's path.
        mode: ``plain``, ``prefill`` or a speculation of the engine's.
        context: positions of a sequence.
        threads: of the CPU.
        options: the engine's own.
    """

    model: str
    mode: str
    context: int
    threads: int
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PythonEngine:
    """An engine whose file in ``engines`` has ``load(settings) -> Complete``.

    Args:
        name: as in tables and flags.
        module: of its file.
        version: of its package.
        speculations: its modes that draft.
        environment: of its process, in addition to ours.
        start_seconds: in which it has to come up.
    """

    name: str
    module: str
    version: str
    model: Path
    context: int
    threads: int
    speculations: Sequence[str] = ()
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    start_seconds: float = 120.0

    def start(self, mode: str) -> Server:
        """Start a process and wait until its model is loaded.

        Raises:
            PeerError: it ended, or did not come up in time.
        """
        settings = Settings(str(self.model), mode, self.context, self.threads, self.options)
        command = [sys.executable, "-m", __name__, self.module, json.dumps(asdict(settings))]
        # The child must find what this process has found, wherever it was started.
        path = os.pathsep.join([os.getcwd() if p == "" else p for p in sys.path])
        environment = self.environment | {"PYTHONPATH": path}
        child = Child(f"{self.name} ({mode})", command, pipes=True, environment=environment)
        try:
            late = f"it did not come up in {self.start_seconds:g} seconds (--start-seconds)"
            child.line(self.start_seconds, late, "it ended before it came up")
        except BaseException:
            child.stop()
            raise
        return WorkerServer(child)

    def about(self) -> dict[str, Any]:
        """Version and settings."""
        return {
            "version": self.version,
            "modes": ["plain", PREFILL, *self.speculations],
            "options": self.options,
            "environment": self.environment,
        }


class WorkerServer:
    """A process whose model is loaded."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def complete(self, job: Job) -> Answer:
        """Ask, and wait for the answer.

        Raises:
            PeerError: it died, or did not answer in time.
        """
        with suppress(BrokenPipeError):  # it died; its stdout ends, too
            print(json.dumps(asdict(job)), file=self._child.stdin, flush=True)
        late = f"no answer in {ANSWER_SECONDS:g} seconds"
        line = self._child.line(ANSWER_SECONDS, late, "no answer")
        return Answer(**json.loads(line))

    def stop(self) -> None:
        """End it."""
        self._child.stop()


def serve(load: Callable[[Settings], Complete], settings: Settings) -> None:
    """Load, say so, and answer line by line until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    complete = load(settings)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(complete(Job(**json.loads(line))))), file=answers, flush=True)


def main() -> int:
    """Serve the engine that the arguments name."""
    module, settings = sys.argv[1:]
    try:
        serve(import_module(module).load, Settings(**json.loads(settings)))
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
