"""How contestants stand: by category, by turn and in all, and who wins."""

from dataclasses import replace

import pytest

from specrt import SpecOptions
from specrt.bench.contestants import Contestant
from specrt.bench.pairs import Pair, Run
from specrt.bench.prompts import Prompt
from specrt.bench.standings import Measured, markdown, results_of, show_standings
from specrt.bench.standings_picture import draw
from specrt.completion import Completion
from specrt.stats import Stats

FAST = Contestant("fast", 3, None, SpecOptions(type="fast", num_draft=3))
LONG = replace(FAST, num_draft=5)


def run_of(seconds, steps, tokens):
    stats = Stats()
    for num_draft, num_accepted in steps:
        stats.count_step(num_draft, num_accepted)
    stats.phases.verify, stats.phases.plain, stats.phases.draft = 6.0, 1.0, 3.0
    return Run(Completion("t", tokens, "length", [], stats, [1]), seconds)


def measured(category, ratio, *, turn=1, governed=True, who=FAST, tokens=(0, 1, 2, 3), steps=None):
    prompt = Prompt(f"{category}-1", category, ())
    ids = list(tokens)
    plain = run_of(ratio, [(0, 0)] * 4, ids)
    spec = run_of(1.0, steps or [(3, 2), (0, 0)], ids)
    return Measured(who, Pair(prompt, turn, plain, spec), governed)


def pairs(category, *ratios, **options):
    """The first without the governor."""
    first, *others = ratios
    fixed = measured(category, first, governed=False, **options)
    return [fixed, *(measured(category, ratio, **options) for ratio in others)]


def test_medians_of_pairs_then_geometric_means_of_prompts():
    told = pairs("prose", 9, 1.0, 2.0, 5.0) + pairs("code", 3, 8.0)
    told += pairs("code", 7, 0.5, turn=3)
    (result,) = results_of(told)
    prose, code, everything = result.standings
    assert (prose.category, code.category, everything.category) == ("prose", "code", "all")
    assert prose.ratio == pytest.approx(2.0)
    assert code.ratio == pytest.approx(2.0) and (code.least, code.most) == (0.5, 8.0)
    assert everything.ratio == pytest.approx((2.0 * 8.0 * 0.5) ** (1 / 3))
    assert prose.fixed_ratio == pytest.approx(9) and code.fixed_ratio == pytest.approx(21**0.5)
    assert everything.turns == [1, 3]
    assert result.standing("code", 3).ratio == pytest.approx(0.5)
    assert result.standing("prose", 3) is None
    assert result.prompts == {"prose-1": 2.0, "code-1": 8.0, "code-1, turn 3": 0.5}


def test_what_drafts_are_worth_is_of_the_pairs_without_the_governor():
    told = [
        measured("prose", 1, governed=False, steps=[(3, 3), (3, 1), (2, 0)]),
        measured("prose", 1, steps=[(1, 0), (0, 0), (0, 0), (0, 0)]),
    ]
    (result,) = results_of(told)
    (one, _) = result.standings
    assert one.acceptance_rate == pytest.approx(4 / 8)
    assert one.acceptance_length == pytest.approx(1 + 4 / 3)
    assert one.acceptance_at == pytest.approx([2 / 3, 1 / 3, 1 / 2])
    assert one.verify_ms == pytest.approx(2.0) and one.draft_ms == pytest.approx(1.0)
    assert one.drafts_per_step == pytest.approx(1 / 4)
    assert one.step_ms == pytest.approx(10 / 4) and one.plain_ms == pytest.approx(10 / 4)
    assert one.tokens_per_second == pytest.approx(4)


def test_who_was_not_measured_both_ways_has_no_standing():
    told = [*pairs("prose", 1, 2.0), measured("prose", 3, governed=False, who=LONG)]
    assert [result.contestant for result in results_of(told)] == [FAST]


def test_degenerate_answers_are_marked(capsys):
    looping = [7] * 70
    told = pairs("prose", 1, 2.0) + pairs("code", 1, 3.0, tokens=looping)
    results = results_of(told)
    prose, code, everything = results[0].standings
    assert prose.degenerate == [] and code.degenerate == everything.degenerate == ["code-1"]
    show_standings(results)
    printed = capsys.readouterr().out
    assert "3.00*" in printed and "2.00*" not in printed
    assert "plain" in printed


def test_the_winner_of_each_category_is_bold():
    told = pairs("prose", 1, 0.8) + pairs("code", 1, 1.5)
    told += pairs("prose", 1, 0.9, who=LONG) + pairs("code", 1, 1.25, who=LONG)
    table = markdown(results_of(told), "m.gguf", {"cpu": "a CPU", "threads": 2})
    assert table.splitlines()[0].startswith("m.gguf, on a CPU, 2 threads")
    assert table.splitlines()[2:] == [
        "| drafts | K | prose | code | all |",
        "| --- | --- | --- | --- | --- |",
        "| plain |  | **1.00** | 1.00 | 1.00 |",
        "| fast | 3 | 0.80 | **1.50** | **1.10** |",
        "| fast | 5 | 0.90 | 1.25 | 1.06 |",
    ]


def test_the_picture_has_axes_with_units_and_a_line_for_each(tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")
    seen = []

    class Noted(figures.Figure):
        def savefig(self, *arguments, **keywords):
            seen.append(self)
            super().savefig(*arguments, **keywords)

    monkeypatch.setattr(figures, "Figure", Noted)
    told = pairs("prose", 1, 0.8) + pairs("code", 1, 1.5)
    told += pairs("prose", 1, 0.9, who=LONG) + pairs("code", 1, 1.25, who=LONG)
    file = tmp_path / "x.png"
    draw(file, results_of(told), "tiny")
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    bars, lines = seen[0].axes
    assert "[1]" in bars.get_ylabel() and "[1]" in lines.get_ylabel()
    heights = [[bar.get_height() for bar in group] for group in bars.containers]
    assert heights[0] == pytest.approx([0.8, 1.5, 1.2**0.5])
    assert [text.get_text() for text in bars.get_xticklabels()] == ["prose", "code", "all"]
    assert [line.get_ydata().tolist() for line in lines.lines] == [[1.0, 1.0, 0.0]] * 2
