"""The embedded model: found by import, packed, described, and loaded where none is named."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from setuptools import Distribution

import specrt
from specrt.assets import FAMILY, FILE, TINY, embedded_model
from specrt.gguf.reader import open_gguf
from specrt.llm import find_model

ROOT = Path(__file__).parent.parent
MOST_BYTES = 16e6


def assets() -> list:
    return [one for one in files("specrt.assets").iterdir() if one.name.endswith(".gguf")]


def test_it_is_found_by_import_and_small():
    path = embedded_model()
    assert path.is_file() and path.name in [one.name for one in assets()]
    assert sum(len(one.read_bytes()) for one in assets()) <= MOST_BYTES
    with open_gguf(path) as gguf:
        assert gguf.metadata["general.name"] == FAMILY
        assert any(name.startswith("blk.6.nextn.") for name in gguf.tensors)


def test_the_card_tells_every_file_and_its_size():
    card = (files("specrt.assets") / "MODEL_CARD.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"\| `(\S+\.gguf)` \| ([\d,]+) \|", card))
    assert told == {one.name: f"{len(one.read_bytes()):,}" for one in assets()}


def test_a_wheel_holds_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    distribution = Distribution()
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    packed = {name for package, _, _, names in build.data_files for name in names}
    assert {Path(name).name for name in packed} >= {"MODEL_CARD.md", "LICENSE-PSF.txt", FILE}


def test_a_source_archive_holds_it():
    manifest = (ROOT / "MANIFEST.in").read_text().splitlines()
    assert "recursive-include specrt/assets *.gguf *.md *.txt" in manifest


@pytest.mark.parametrize("name", [None, TINY])
def test_it_stands_where_no_model_is_named_and_under_its_name(name, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECRT_CACHE", str(tmp_path))
    assert find_model(name) == embedded_model()
    llm = specrt.load(name, verbose=False)
    assert llm.path == embedded_model() and llm.chat_template.is_raw
    assert llm.generate("def ", specrt.SamplingParams(max_tokens=8)).text
    assert not list(tmp_path.iterdir())


def test_a_file_of_that_name_comes_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path(TINY).write_bytes(b"")
    assert find_model(TINY) == TINY
    assert find_model(None) == embedded_model()
