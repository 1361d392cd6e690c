"""What a type checker sees of the library, and that it is what happens."""

import subprocess
import sys
from pathlib import Path

from tests import typed_use
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).parent.parent


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return result.stdout + result.stderr


def test_a_strict_program_is_clean(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import specrt\nspecrt.laod()\nspecrt.SamplingParams(stop=3)\n")
    cache = ("--cache-dir", str(tmp_path), "--follow-imports", "silent")
    told = mypy(*cache, "--ignore-missing-imports", str(wrong), "tests/typed_use.py")
    lines = [line for line in told.splitlines() if ": error: " in line]
    assert [line.rpartition("[")[2] for line in lines] == ["attr-defined]", "arg-type]"], told


def test_it_also_runs(tmp_path):
    llm = typed_use.load_it(write_tiny_model(tmp_path / "tiny.gguf"))
    assert len(typed_use.generate_it(llm)) == 3
    assert [len(llm.generate("a", p).token_ids) for p in typed_use.params_of_it()] == [1, 1, 1]
    assert typed_use.stream_it(llm).token_ids
    assert typed_use.talk_to_it(llm, tmp_path / "saved").token_ids
    typed_use.look_into_it(llm)
