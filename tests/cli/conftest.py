"""What the tests of the commands share."""

from pathlib import Path

import pytest

from specrt.__main__ import main
from specrt.settings import SETTINGS
from tests.tiny_model import write_tiny_model


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for setting in SETTINGS:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("cli") / "tiny.gguf")


@pytest.fixture(scope="session")
def bare_model(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("cli") / "bare.gguf", template=None)


@pytest.fixture
def cli(capsys):
    """Run a command: its exit status, stdout and stderr."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
