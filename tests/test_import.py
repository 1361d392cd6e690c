"""``import specrt`` brings in nothing heavy."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = {"numba", "cupy", "scipy", "gguf", "jinja2", "numpy", "rich", "tokenizers"}


def test_a_fresh_process_imports_none_of_it():
    script = "import sys, specrt; print(specrt.SamplingParams(), *sys.modules, sep='\\n')"
    command = [sys.executable, "-c", script]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    modules = set(printed.splitlines())
    assert "specrt.options" in modules
    assert not modules & HEAVY
