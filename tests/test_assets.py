"""The embedded model: found by import, packed, described, and loaded where none is named."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from setuptools import Distribution

import specrt
from specrt.assets import FAMILY, FILES, TINY, TINY_DRAFTER, embedded_drafter, embedded_model
from specrt.drafters import TARGET_ID, check_drafter
from specrt.errors import MismatchError, OptionError
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
    found = {Path(name).name for name in packed}
    assert found >= {path.name for path in FILES.values()}
    assert found >= {"MODEL_CARD.md", "LICENSE-PSF.txt"}


def test_a_source_archive_holds_it():
    manifest = (ROOT / "MANIFEST.in").read_text().splitlines()
    assert "recursive-include specrt/assets *.gguf *.md *.txt" in manifest


def test_its_drafter_was_trained_for_it():
    assert embedded_drafter().name in [one.name for one in assets()]
    with open_gguf(embedded_model()) as model, open_gguf(embedded_drafter()) as drafter:
        assert drafter.metadata["general.name"] == f"{FAMILY}-dflash2"
        assert drafter.metadata[TARGET_ID] == model.metadata["specrt.model_id"]
        assert "selector_hidden.weight" in drafter.tensors
        check_drafter(model, drafter)


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
    for name in FILES:
        Path(name).write_bytes(b"")
        assert find_model(name) == name
    assert find_model(None) == embedded_model()


def test_the_drafter_stands_under_its_name_where_a_draft_model_is_named(monkeypatch):
    assert find_model(TINY_DRAFTER) == embedded_drafter()
    llm = specrt.load(draft_model=TINY_DRAFTER, verbose=False)
    assert llm.head_file.path == embedded_drafter()
    monkeypatch.setenv("SPECRT_SPEC_DRAFT_MODEL", TINY_DRAFTER)
    assert specrt.load(verbose=False).head_file.path == embedded_drafter()
    params = specrt.SamplingParams(max_tokens=60, ignore_eos=True)
    spec = specrt.SpecOptions(type="block", num_draft=7, pmin=0.0, governor=False)
    got = llm.generate("def __init__(self", params, spec=spec)
    assert got.token_ids == llm.generate("def __init__(self", params, spec="none").token_ids
    assert got.stats.num_accepted > 30  # of 59 behind the first token


def test_names_of_no_file_and_names_in_the_other_one_s_place_are_told():
    with pytest.raises(OptionError, match=f"no file 'tiny-medusa'.*{TINY}, {TINY_DRAFTER}, "):
        specrt.load(draft_model="tiny-medusa", verbose=False)
    with pytest.raises(MismatchError, match="pass it as the draft model"):
        specrt.load(TINY_DRAFTER, verbose=False)
    with pytest.raises(MismatchError, match="pass it as the model"):
        specrt.load(draft_model=TINY, verbose=False)
