"""Tables, JSON and what is computed from pairs."""

import json

import pytest

from specrt.bench.arguments import contexts_for
from specrt.bench.pairs import Pair, Run, check_equal
from specrt.bench.prompts import Prompt, load_prompts, prompts_for
from specrt.bench.report import Bound, check_writable, collect, degenerate, save, show
from specrt.bench.summary import merged, ms_per_step, summarise, totals
from specrt.bench.timing import Latency, Spread, WrongResultError, interleaved, machine
from specrt.completion import Completion
from specrt.errors import OptionError
from specrt.gguf.reader import open_gguf
from specrt.stats import Stats
from tests.tiny_model import write_tiny_model

PROMPT = Prompt("p", "prose", ({"role": "user", "content": "x"},))


def run_of(tokens: list[int], seconds: float, steps=((0, 0),), text="t", reason="length") -> Run:
    stats = Stats(speculator="ngram", time_to_first_token=5.0)
    for num_draft, num_accepted in steps:
        stats.count_step(num_draft, num_accepted)
    stats.phases.verify, stats.phases.plain, stats.phases.prefill = 8.0, 3.0, 4.0
    return Run(Completion(text, tokens, reason, [], stats, [1]), seconds)


def pair_of(plain: float, spec: float, tokens=range(10), prompt=PROMPT, turn=1) -> Pair:
    steps = ((4, 4), (4, 2), (0, 0), (2, 0))
    ids = list(tokens)
    return Pair(prompt, turn, run_of(ids, plain), run_of(ids, spec, steps))


def test_spread_and_latency():
    assert Spread.of([3.0, 1.0, 2.0, 9.0]) == Spread(2.5, 1.0, 9.0)
    latency = Latency.of([1e-6] * 998 + [5e-5] * 2)
    assert latency.median == pytest.approx(1.0) and latency.p999 == pytest.approx(50, rel=0.05)


def test_interleaved_alternates_and_times_each_call():
    order = []
    seconds = interleaved({name: lambda name=name: order.append(name) for name in "abc"}, 3)
    assert "".join(order) == "abccbaabc"
    assert [len(samples) for samples in seconds.values()] == [3, 3, 3]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([7] * 64, True),
        ([1, 2, 3] * 30, True),
        (list(range(100)) + [1, 2] * 32, True),
        ([*range(32), *range(32)], True),
        ([*range(33), *range(31)], False),
        ([7] * 63, False),
        ([7] * 63 + [8], False),
        (list(range(64)), False),
        ([], False),
    ],
)
def test_degenerate(ids, expected):
    assert degenerate(ids) is expected


def test_ratios_are_of_pairs_and_totals_of_time():
    measured = [pair_of(1.0, 0.5), pair_of(2.0, 0.5), pair_of(1.0, 1.0)]
    (result,) = summarise(measured)
    assert result.ratio == Spread(2.0, 1.0, 4.0)
    assert result.plain.tokens_per_second == Spread(10.0, 5.0, 10.0)
    assert (result.pairs, result.tokens, result.turn) == (3, 10, 1)
    whole = totals(measured)
    assert whole.tokens == 30
    assert whole.ratio == pytest.approx(4.0 / 2.0)
    assert whole.plain_tokens_per_second == pytest.approx(30 / 4.0)
    assert whole.mean_ratio == pytest.approx(2.0)


def test_acceptance_of_all_pairs_together():
    (result,) = summarise([pair_of(1.0, 1.0), pair_of(1.0, 1.0)])
    assert result.acceptance_rate == pytest.approx(6 / 10)
    assert result.acceptance_length == pytest.approx(1 + 6 / 3)
    assert result.acceptance_at == pytest.approx([2 / 3, 2 / 3, 1 / 2, 1 / 2])
    assert result.num_draft_counts == {0: 2, 2: 2, 4: 4}


def test_phases_are_per_step_of_their_kind():
    stats = merged([pair_of(1.0, 1.0).spec.completion.stats] * 2)
    per_step = ms_per_step(stats)
    assert per_step["verify"] == pytest.approx(16 / 6)
    assert per_step["plain"] == pytest.approx(6 / 2)
    assert per_step["draft"] == 0
    assert stats.phases.prefill == 8


def test_turns_and_prompts_are_told_apart():
    other = Prompt("q", "prose", PROMPT.messages)
    measured = [pair_of(1, 1, turn=2), pair_of(1, 1, turn=3), pair_of(1, 1, prompt=other)]
    assert [result.label for result in summarise(measured)] == ["p, turn 2", "p, turn 3", "q"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (run_of([1, 2, 4], 1), "token 2 is 4, plain 3"),
        (run_of([1, 2], 1), "2 tokens, plain 3"),
        (run_of([1, 2, 3], 1, text="u"), "text 'u', plain 't'"),
        (run_of([1, 2, 3], 1, reason="stop"), "finish_reason 'stop', plain 'length'"),
    ],
)
def test_an_answer_that_speculation_changed_has_no_time(other, message):
    check_equal(Pair(PROMPT, 1, run_of([1, 2, 3], 1), run_of([1, 2, 3], 9)))
    with pytest.raises(WrongResultError, match=message):
        check_equal(Pair(PROMPT, 1, run_of([1, 2, 3], 1), other))


def test_what_came_before_an_interrupt_is_kept():
    def results():
        yield 1
        yield 2
        raise KeyboardInterrupt

    assert collect(results()) == ([1, 2], False)
    assert collect(iter([1])) == ([1], True)


def test_bounds():
    assert Bound("a", 0.98, 0.98).holds and not Bound("a", 0.97, 0.98).holds
    assert Bound("a", 64, 64, at_most=True).holds and not Bound("a", 65, 64, at_most=True).holds


def test_json_has_no_folders(tmp_path):
    file = tmp_path / "out.json"
    path = str(tmp_path / "model.gguf")
    content = {
        "a": Spread(1.0, 2.0, 3.0),
        4: [f"{path}: no such key", "tok/s", "x/y", f"at {path}"],
    }
    save(file, content)
    assert json.loads(file.read_text()) == {
        "a": {"median": 1.0, "low": 2.0, "high": 3.0},
        "4": ["model.gguf: no such key", "tok/s", "x/y", "at model.gguf"],
    }


def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path):
    check_writable(None)
    check_writable(tmp_path / "new.json")
    for path in (tmp_path, tmp_path / "none" / "new.json"):
        with pytest.raises(OptionError, match="folder that exists"):
            check_writable(path)


def test_the_machine_is_described_without_names():
    described = machine(threads=1, level="portable")
    assert described["threads"] == 1 and described["level"] == "portable"
    assert described["cores"] >= 1 and described["cpu"] and described["numpy"]
    assert not {"host", "hostname", "user", "node"} & set(described)


def test_tables_are_whole_where_there_is_no_terminal(capsys):
    show("A title", ("name", "value"), [("x" * 60, "1"), ("short", "2")])
    printed = capsys.readouterr().out
    assert "A title" in printed and "x" * 60 in printed


def test_prompts():
    assert len(load_prompts()) == 13
    assert [one.id for one in load_prompts(["json-sort", "prose-gpu"])] == [
        "prose-gpu",
        "json-sort",
    ]
    with pytest.raises(OptionError, match=r"nothing: expected some of prose-gpu"):
        load_prompts(["nothing"])
    assert all(one.messages[-1]["role"] == "user" for one in load_prompts())


def test_prompts_go_with_the_model(tmp_path):
    assert prompts_for(write_tiny_model(tmp_path / "m.gguf")) == load_prompts()
    own = prompts_for(None)
    assert own == prompts_for("tiny") and len(own) == 8
    assert {one.category for one in own} == {"code", "prose"}
    assert [one.id for one in prompts_for(None, ["rst", "vector"])] == ["vector", "rst"]
    with pytest.raises(OptionError, match=r"prose-gpu: expected some of vector"):
        prompts_for(None, ["prose-gpu"])


def test_contexts_are_as_long_as_the_model_has_room_for(tmp_path):
    with open_gguf(write_tiny_model(tmp_path / "m.gguf", context=500)) as gguf:
        assert contexts_for(gguf, None, 8) == [128, 492]
        assert contexts_for(gguf, [492], 8) == [492]
        for asked, rows in (([493], 8), (None, 500)):
            with pytest.raises(OptionError, match="expected at most 500"):
                contexts_for(gguf, asked, rows)
    with open_gguf(write_tiny_model(tmp_path / "l.gguf", context=8192)) as gguf:
        assert contexts_for(gguf, None, 8) == [128, 4096]
