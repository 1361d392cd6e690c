"""tools/device_check.sh: its parts, their times, and what it tells."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tools" / "device_check.sh"

pytestmark = pytest.mark.skipif(shutil.which("timeout") is None, reason="needs coreutils")


def check(tmp_path, python, *arguments, **environment):
    """Run the script with a stand-in for Python, which real Python helps where it reads stdin."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\n[ "$1" = - ] && exec {sys.executable} "$@"\n{python}\n')
    stand_in.chmod(0o755)
    given = {"PYTHON": str(stand_in), "OUT": str(tmp_path / "out"), "DEVICE": "cpu"}
    given |= {"WHEELS": str(tmp_path / "none"), "MODELS": "a/one.gguf b/two.gguf"}
    return subprocess.run(
        [str(SCRIPT), *arguments],
        env=os.environ | given | environment,
        capture_output=True,
        text=True,
    )


def saved(tmp_path):
    return json.loads((tmp_path / "out" / "check.json").read_text())


def test_every_part_is_told_last_and_saved(tmp_path):
    done = check(tmp_path, 'echo "$@"')
    assert done.returncode == 0, done.stdout + done.stderr
    told = saved(tmp_path)
    names = [part["part"] for part in told["parts"]]
    assert told["holds"] and told["device"] == "cpu"
    assert names[:4] == ["packages", "build", "machine", "kernels against the reference"]
    assert names[4:7] == ["lossless: a", "lossless: b", "end to end"]
    last = done.stdout.splitlines()[-len(names) :]
    assert all(line.startswith(name) for line, name in zip(last, names, strict=True))
    log = (tmp_path / "out" / "log.txt").read_text()
    assert "-m specrt verify-lossless b/two.gguf --device cpu -n 48" in log


def test_a_part_that_fails_fails_all(tmp_path):
    done = check(tmp_path, 'case "$*" in *verify-kernels*) echo glu is wrong; exit 1;; esac')
    assert done.returncode == 1
    assert "NOT every part holds" in done.stdout and "glu is wrong" in done.stdout
    verdicts = {part["part"]: part["verdict"] for part in saved(tmp_path)["parts"]}
    assert verdicts.pop("kernels against the reference") == "fails (1)"
    assert set(verdicts.values()) == {"holds"}


def test_time_that_is_spent(tmp_path):
    slow = 'case "$*" in *verify-kernels*) sleep 60;; esac'
    done = check(tmp_path, slow, SECONDS_IN_ALL="7")
    assert done.returncode == 1
    verdicts = {part["part"]: part["verdict"] for part in saved(tmp_path)["parts"]}
    assert verdicts["kernels against the reference"].startswith("over its ")
    assert verdicts["end to end"] == "no time left"


def test_without_a_build_nothing_is_measured(tmp_path):
    done = check(tmp_path, 'case "$*" in *build_ext*) exit 3;; esac')
    assert done.returncode == 1
    assert [part["verdict"] for part in saved(tmp_path)["parts"]] == ["holds", "fails (3)"]


def test_wrong_arguments(tmp_path):
    assert check(tmp_path, "", "--all").returncode == 2
