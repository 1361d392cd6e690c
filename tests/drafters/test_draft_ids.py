"""Heads that guess only some ids: the same drafts where those are likeliest, and never others."""

import numpy as np
import pytest

import specrt
from specrt import SamplingParams, SpecOptions
from specrt.__main__ import main
from specrt.drafters.draft_ids import most_frequent, read_draft_ids
from specrt.errors import OptionError
from specrt.gguf.reader import open_gguf
from tests.models_on_disk import golden_arrays, golden_path

PROMPT = golden_arrays("qwen35-accept")["tokens"].tolist()[:24]
PARAMS = SamplingParams(max_tokens=30, ignore_eos=True)


def drafted(name="qwen35-accept", **options):
    """The answer, and every id that was drafted."""
    llm = specrt.load(golden_path(name), verbose=False, **options)
    (speculator,) = llm.speculation.resolve(SpecOptions(type="draft-head")).speculators
    seen, propose = [], speculator.propose

    def watched(contexts):
        drafts = propose(contexts)
        seen.extend(token for draft in drafts for token in draft.tokens)
        return drafts

    speculator.propose = watched
    spec = SpecOptions(type="draft-head", pmin=0.0, governor=False)
    return llm.generate(PROMPT, PARAMS, spec=spec), seen, llm


def write(path, ids):
    path.write_text("\n".join(map(str, ids)))
    return path


@pytest.mark.parametrize("device", ["cpu", "emulator", "reference"])
def test_only_those_are_drafted_and_nothing_else_changes(tmp_path, device):
    whole, every, _ = drafted(device=device)
    some = sorted(set(every))[::2]
    got, seen, _ = drafted(device=device, draft_ids=write(tmp_path / "ids", some[::-1]))
    assert got.token_ids == whole.token_ids
    assert seen and set(seen) <= set(some)
    assert got.stats.num_accepted


def test_where_all_are_named_the_drafts_are_the_same(tmp_path):
    whole, every, _ = drafted()
    got, seen, _ = drafted(draft_ids=write(tmp_path / "ids", range(256)))
    assert (got.token_ids, seen) == (whole.token_ids, every)


def test_the_plan_counts_the_smaller_head(tmp_path):
    ids = write(tmp_path / "ids", range(64))
    whole, few = drafted()[2].plan, drafted(draft_ids=ids)[2].plan
    with open_gguf(golden_path("qwen35-accept")) as gguf:
        row = gguf.tensors["output.weight"].raw.shape[-1]
    assert few.drafter > whole.drafter  # a head of its own, beside the target's
    assert few.drafter - whole.drafter <= 64 * row


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "0 ids"), ("3 x", "invalid literal"), ("-1 5", "-1 to 5"), ("3 256", "3 to 256")],
)
def test_files_that_hold_something_else_are_refused(tmp_path, text, told):
    path = tmp_path / "ids"
    path.write_text(text)
    with pytest.raises(OptionError, match=told):
        drafted(draft_ids=path)
    with pytest.raises(OptionError, match="No such file"):
        drafted(draft_ids=tmp_path / "none")


def test_the_most_frequent_ids_of_a_text(tmp_path, capsys):
    assert most_frequent([5, 3, 5, 9, 3, 1], 3) == [3, 5, 1]
    text = tmp_path / "text.py"
    text.write_text("def f(x):\n    return x\n" * 3 + "def g(y):\n    return y\n")
    assert main(["count-ids", str(text), "--ids", "6"]) == 0
    ids = write(tmp_path / "ids", capsys.readouterr().out.split())
    found = read_draft_ids(ids, 4096)
    assert len(found) == 6 and (np.diff(found) > 0).all()
    llm = specrt.load(draft_ids=ids, verbose=False)
    spec = SpecOptions(type="draft-head", pmin=0.0, governor=False)
    assert llm.generate("def f(", SamplingParams(max_tokens=20), spec=spec).stats.num_drafted
    assert main(["count-ids", str(tmp_path / "none")]) == 2
