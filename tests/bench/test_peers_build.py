"""Building llama-server: its steps with stand-ins for pip, CMake and the compiler."""

import io
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.peers import build
from benchmarks.peers.__main__ import main

LIST = "llama_cpp_python-0.3.36/vendor/llama.cpp/CMakeLists.txt"


def archive(folder, *names):
    file = folder / "llama_cpp_python-0.3.36.tar.gz"
    with tarfile.open(file, "w:gz") as packed:
        for name in names:
            packed.addfile(tarfile.TarInfo(name), io.BytesIO())


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Every command, and what pip and CMake leave behind."""
    commands = []

    def run(command, failed):
        commands.append(command)
        if "download" in command:
            archive(Path(command[command.index("--dest") + 1]), LIST)
        if "--build" in command:
            server = Path(command[command.index("--build") + 1]) / "bin" / "llama-server"
            server.parent.mkdir(parents=True)
            server.write_text("#!/bin/sh\necho version: 1\n")
            server.chmod(0o755)

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setattr(build, "_which", lambda name: f"/bin/{name}")
    monkeypatch.setenv("SPECRT_PEERS", str(tmp_path / "peers"))
    return commands


def test_the_steps(tools, tmp_path, capsys):
    assert main(["build", "--jobs", "3"]) == 0
    fetch, configure, compile_ = tools
    assert fetch[:4] == [sys.executable, "-m", "pip", "download"]
    assert fetch[-1] == "llama-cpp-python==0.3.36" and "--no-binary" in fetch
    assert not [part for part in fetch if "://" in part]  # pip is configured by its user
    source = tmp_path / "peers" / "source-0.3.36" / "vendor" / "llama.cpp"
    assert configure[configure.index("-S") + 1] == str(source)
    assert {"-DGGML_NATIVE=ON", "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF"} < set(configure)
    assert "-DLLAMA_BUILD_COMMIT=llama-cpp-python-source-0.3.36" in configure
    assert compile_[-2:] == ["--parallel", "3"] and "llama-server" in compile_
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["version: 1", str(build.built_server())]
    assert not list((tmp_path / "peers").glob(".fetch-*"))


def test_the_source_is_fetched_once(tools, tmp_path):
    for folder in ("one", "two"):
        source = build.fetch(tmp_path, "0.3.36")
        build.build({"cmake": "cmake"}, source, tmp_path / folder, 1)
    assert ["download" in command for command in tools].count(True) == 1


def test_an_archive_without_llama_cpp(tools, tmp_path, monkeypatch, capsys):
    def run(command, failed):
        archive(Path(command[command.index("--dest") + 1]), "llama_cpp_python-0.3.36/setup.py")

    monkeypatch.setattr(build, "_run", run)
    assert main(["build"]) == 2
    assert "holds no vendor/llama.cpp" in capsys.readouterr().err
    assert not list((tmp_path / "peers").iterdir())


@pytest.mark.parametrize(
    ("missing", "told"),
    [({"cmake"}, 'pip install -e ".[peers]"'), ({"c++", "g++", "clang++"}, "apt-get install g++")],
)
def test_a_missing_tool(monkeypatch, capsys, missing, told):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "_which", lambda name: None if name in missing else name)
    assert main(["build"]) == 2
    assert told in capsys.readouterr().err


def test_ninja_is_used_where_it_is(monkeypatch, tools, tmp_path):
    assert set(build.find_tools()) == {"cmake", "ninja"}
    monkeypatch.setattr(build, "_which", lambda name: None if name == "ninja" else name)
    assert set(build.find_tools()) == {"cmake"}
    build.build({"cmake": "cmake", "ninja": "/n"}, tmp_path, tmp_path / "b", 1)
    assert "-DCMAKE_MAKE_PROGRAM=/n" in tools[-2]


def test_a_step_that_fails_is_told(tmp_path):
    with pytest.raises(build.PeerError, match="cannot be compiled: exit status 7 of"):
        build._run([sys.executable, "-c", "raise SystemExit(7)"], "it cannot be compiled")
    with pytest.raises(build.PeerError, match="cannot be compiled"):
        build._run([str(tmp_path / "none")], "it cannot be compiled")


def test_where_it_lies(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECRT_PEERS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.peers_folder() == tmp_path / "specrt" / "peers"
    monkeypatch.setenv("SPECRT_PEERS", str(tmp_path / "own"))
    assert build.peers_folder() == tmp_path / "own"
