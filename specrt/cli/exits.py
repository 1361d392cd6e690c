"""How a command ends: what is raised on purpose becomes one line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from specrt.errors import SpecrtError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def exit_status(run: Callable[[], int]) -> int:
    """Run a command.

    Returns:
        What it returns; 2 after an error; 130 after Ctrl-C; 141 if stdout was closed.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character
    try:
        return run()
    except BrokenPipeError:
        # What is still buffered must not fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich has heard of it first
            return EXIT_BROKEN_PIPE
        raise
    except (SpecrtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
