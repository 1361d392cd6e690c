"""Other ways of rolling back and drafting: the same tokens and steps, and then their times."""

import json
from types import SimpleNamespace

import pytest

from specrt import SpecOptions
from specrt.bench import ablation_results, ablation_variants
from specrt.bench.__main__ import main
from specrt.bench.ablation_results import (
    Total,
    bounds_of,
    catch_up_share,
    pending_seconds,
    worth_of,
)
from specrt.bench.ablation_variants import ALL, Ablation, Model, asked_for
from specrt.bench.rollback_targets import SnapshotTarget
from specrt.drafters.nextn_head import NextNHead
from specrt.errors import OptionError
from specrt.settings import ABLATIONS, VERIFY_SNAPSHOTS
from specrt.stats import Stats
from tests.models_on_disk import load_golden
from tests.tiny_model import write_tiny_model

NAMES = [one.name for one in ALL]
FEW = ["ablations", "--tokens", "16", "--rounds", "2", "--prompts", "vector"]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for setting in ABLATIONS:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


class WrongRow(SnapshotTarget):
    """Takes the state of the row before the kept one."""

    def rollback(self, sequence, num_kept):
        self._places = {slot: place - 1 for slot, place in self._places.items()}
        return super().rollback(sequence, num_kept)


class OtherDrafts(NextNHead):
    """Never proposes what it found."""

    def draft_chain(self, contexts):
        drafts = super().draft_chain(contexts)
        return [draft._replace(tokens=[t ^ 1 for t in draft.tokens]) for draft in drafts]


def wrong_row(model):
    return WrongRow(model.trunk, model.ops, 2, model.num_draft + 1, **model.options)


def other_drafts(model, target):
    return OtherDrafts(model.weights, target, model.trunk)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Ablation("broken", VERIFY_SNAPSHOTS, True, target=wrong_row), "another answer than plain"),
        (Ablation("broken", VERIFY_SNAPSHOTS, True, head=other_drafts), "steps by K and by m"),
    ],
)
def test_no_time_is_told_of_a_way_that_does_something_else(broken, message, monkeypatch, capsys):
    monkeypatch.setattr(ablation_variants, "ALL", (broken,))
    assert main([*FEW, "--tokens", "64", "--spec-pmin", "0"]) == 1
    captured = capsys.readouterr()
    assert f"wrong result: vector, broken: {message}" in captured.err and captured.out == ""


def test_the_command(tmp_path, capsys):
    file = tmp_path / "ablations.json"
    assert main([*FEW, "--spec-pmin", "0", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("default", *NAMES, "3604 -> 0 ms", "4 to 5 %"))
    saved = json.loads(file.read_text())
    assert saved["complete"] and [one["name"] for one in saved["results"]] == ["default", *NAMES]
    default, *others = saved["results"]
    assert default["worth"] is None and default["tokens"] == 16 and default["corrected"] > 0
    for one in others:
        worth = one["worth"]
        assert (one["tokens"], one["steps"]) == (16, default["steps"])
        assert worth["ms"]["low"] <= worth["ms"]["median"] <= worth["ms"]["high"]
        assert worth["ratio"]["median"] > 0
    assert [bound["bar"] for bound in saved["bounds"]] == [0.01, 0.01, 0.05]


@pytest.mark.parametrize(
    ("flags", "variables", "expected"),
    [
        ([], {"SPECRT_VERIFY_SNAPSHOTS": "1"}, ["rollback: snapshots"]),
        ([], {"TS_Q35_VERIFY_SNAPSHOTS": "0"}, ["rollback: replay"]),
        (["--verify-snapshots", "0"], {"SPECRT_VERIFY_SNAPSHOTS": "1"}, ["rollback: replay"]),
        ([], {"TS_MTP_FOLD_CATCHUP": "0", "TS_Q35_MTP_DRAFT_PERSIST": "off"}, NAMES[3:]),
        (["--verify-defer-state", "0"], {}, ["rows: settled at once"]),
        (["--mtp-draft-program", "0"], {"SPECRT_MTP_FOLD_CATCHUP": "1"}, NAMES[4:]),
        ([], {"SPECRT_MTP_FOLD_CATCHUP": "1", "SPECRT_VERIFY_DEFER_STATE": "1"}, NAMES),
    ],
)
def test_settings_ask_for_some(flags, variables, expected, monkeypatch, tmp_path):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "some.json"
    assert main([*FEW, "--rounds", "1", *flags, "--json", str(file)]) == 0
    saved = json.loads(file.read_text())
    assert [one["name"] for one in saved["results"][1:]] == expected
    folded = [one for one in saved["bounds"] if "catch-up" in one["name"]]
    assert len(folded) == ("catch-up: unfolded" in expected)


@pytest.mark.parametrize("setting", ABLATIONS, ids=lambda setting: setting.name)
def test_a_wrong_variable_is_named(setting, monkeypatch):
    for variable in setting.variables[::-1]:
        monkeypatch.setenv(variable, "2")
        with pytest.raises(OptionError, match=f"{variable} = '2': expected 1 or 0"):
            asked_for({})


def test_a_model_without_a_draft_head_is_refused(tmp_path, capsys):
    path = write_tiny_model(tmp_path / "llama.gguf")
    assert main(["ablations", "--model", str(path), "--prompts", "fact-primes"]) == 2
    assert "need a draft head, and it has none" in capsys.readouterr().err


def total(step_ms, draft=0.0, catch_up=0.0, rollback=0.0, seconds=1.0):
    """Ten steps, twenty tokens."""
    stats = Stats(steps=10, origins=["accepted"] * 20)
    stats.phases.draft, stats.phases.commit = 10 * draft, 10 * catch_up
    stats.phases.rollback = 10 * rollback
    stats.phases.verify = 10 * (step_ms - draft - catch_up - rollback)
    return Total(stats, seconds, 10 * catch_up / 1e3)


def test_what_the_default_is_worth():
    default, others = [total(2.0), total(4.0)], [total(3.0, seconds=2), total(5.0, seconds=3)]
    worth = worth_of(default, others)
    assert (worth.ms.median, worth.share.low, worth.share.high) == pytest.approx((1, 0.25, 0.5))
    assert worth.ms_of_256_tokens == pytest.approx(128) and worth.ratio.median == 2.5


def test_folded_catch_up_is_what_drafts_of_one_waiting_row_need_not_do():
    folded, unfolded = total(2.0, draft=0.5, catch_up=0.1), total(2.0, draft=0.4, catch_up=0.9)
    assert catch_up_share([folded] * 3, [unfolded] * 3) == pytest.approx(0.1)


def test_the_bounds(monkeypatch):
    unfolded = next(one for one in ALL if "catch-up" in one.name)
    variants = [
        SimpleNamespace(name="a", ablation=None),
        SimpleNamespace(name="b", ablation=unfolded),
    ]
    totals = {"a": total(2.0, draft=0.5, rollback=0.01), "b": total(2.0, draft=0.46)}
    monkeypatch.setattr(ablation_results, "_totals", lambda rounds, one: [totals[one.name]])
    found = [(bound.figure, bound.holds) for bound in bounds_of(variants, [{}], 4e-5)]
    assert found == [
        (pytest.approx(0.005), True),
        (pytest.approx(0.025), False),
        (pytest.approx(0.02), True),
    ]
    assert len(bounds_of(variants[:1], [{}], None)) == 1


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_pending_rows_take_time_where_ops_tell_theirs(device):
    shared = Model(load_golden("qwen35", device=device), SpecOptions("none"))
    seconds = pending_seconds(shared, 3, 1)
    assert abs(seconds) < 1e-3 if device == "cpu" else seconds is None


def test_an_interrupt_keeps_the_rounds_before_it(tmp_path, monkeypatch):
    from specrt.bench import ablations

    measured = ablations.measure

    def interrupted(*arguments):
        yield next(measured(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(ablations, "measure", interrupted)
    file = tmp_path / "some.json"
    assert main([*FEW, "--verify-snapshots", "1", "--json", str(file)]) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and len(saved["results"]) == 2
