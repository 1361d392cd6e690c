"""Processes that a test sends Ctrl-C to."""

from __future__ import annotations

import signal
import subprocess
from typing import Any


def popen(command: list[Any], **options: Any) -> subprocess.Popen:
    """Start a process that hears SIGINT, also where the tests run as a background job.

    A shell starts background jobs with SIGINT ignored, and children inherit that.
    """
    return subprocess.Popen(command, preexec_fn=_hear_interrupts, **options)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
