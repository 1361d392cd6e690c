"""Child processes that do not outlive the bench, and whose last words are told."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from benchmarks.peers.engine import PeerError

LOG_LINES = 10
ANSWER_SECONDS = 600.0
"""In which an engine has to answer a prompt."""
STOP_SECONDS = 5.0
PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Child:
    """A process in a session of its own, so that Ctrl-C reaches it through ``stop`` alone.

    What it writes to stderr, and to stdout unless that is a pipe, goes to a temporary file.

    Args:
        name: for errors.
        command: program and arguments.
        pipes: True for pipes to its stdin and from its stdout.
        environment: in addition to our own.

    Raises:
        PeerError: it could not be run.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        pipes: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._stopped = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it is read after the end, too)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else self._log,
                stderr=self._log,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
                preexec_fn=_die_with_parent,
                text=True,
            )
        except OSError as error:
            self._log.close()
            raise PeerError(f"{name}: cannot run {command[0]}: {error}") from error

    @property
    def stdin(self) -> IO[str]:
        """The pipe to it."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def has_ended(self) -> bool:
        """True if it no longer runs."""
        return self.process.poll() is not None

    def line(self, seconds: float, late: str, ended: str) -> str:
        """Wait for the next line of its stdout.

        Args:
            seconds: to wait at most.
            late: what to say if none came.
            ended: what to say if there is no more to come.

        Raises:
            PeerError: with the last lines of its log.
        """
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            raise self.failure(late)
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return line
        with suppress(subprocess.TimeoutExpired):  # it may have closed its stdout, and hang
            self.process.wait(STOP_SECONDS)
        raise self.failure(ended)

    def failure(self, what: str) -> PeerError:
        """An error that says what happened, how it ended and what it said last."""
        status = self.process.poll()
        ended = "" if status is None else f" (exit status {status})"
        return PeerError(f"{self.name}: {what}{ended}; its last lines:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of its log."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES:]) or "  (none)"

    def stop(self) -> None:
        """End it and what it started: politely first, then not; a second call changes nothing."""
        if self._stopped:
            return
        self._stopped = True
        for kind in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, kind)
                self.process.wait(STOP_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # of what it was not there to read
                    pipe.close()


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _die_with_parent() -> None:
    """Where the system can, so that even a bench that was killed leaves nothing behind."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
