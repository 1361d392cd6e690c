"""The benchmark of host work: what it times is what it says."""

import json

import numpy as np
import pytest

from specrt.bench import host, lattice_walks
from specrt.bench.__main__ import main
from specrt.bench.cases import DRAWS, HISTORIES, TEXTS, text
from specrt.bench.host import (
    HostTime,
    lattice_walk,
    ngram_bounds,
    ngram_calls,
    ngram_steps,
    plain_search,
    sampler_draw,
    walk_bounds,
)
from specrt.bench.step_overhead import StepCase
from specrt.bench.timing import Latency, WrongResultError
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.state.messages import Draft


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_have_their_length_and_repeat_as_they_say(kind):
    for length in (1, 50, 3000):
        ids = text(kind, length, 1000)
        assert ids.shape == (length,) and ids.min() >= 0 and ids.max() < 49152
    seen, repeated = set(), 0
    for pair in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True):
        repeated += pair in seen
        seen.add(pair)
    assert (repeated / len(ids) > 0.1) == (kind != "random")


def test_a_step_commits_three_rows_and_proposes_eight_at_a_steady_length(monkeypatch):
    commits, asked = [], []
    commit, propose = NgramSpeculator.commit, NgramSpeculator.propose

    def noted_commit(self, kept):
        (rows,) = kept
        commits.append((rows.start_pos, len(rows.tokens)))
        assert rows.tokens == rows.sequence.history[rows.start_pos :][:3].tolist()
        assert rows.next_token == rows.sequence.history[rows.start_pos + 3]
        commit(self, kept)

    def noted_propose(self, contexts):
        drafts = propose(self, contexts)
        asked.append((contexts[0].num_draft, contexts[0].sequence.cursor.num_tokens))
        return drafts

    monkeypatch.setattr(NgramSpeculator, "commit", noted_commit)
    monkeypatch.setattr(NgramSpeculator, "propose", noted_propose)
    monkeypatch.setattr(host, "HISTORIES", (1000,))
    (result,) = ngram_steps("copies", 250)
    assert result.calls == len(commits) - 1 == 300  # whole blocks, and one step that was checked
    assert {rows for _, rows in commits} == {3}
    assert min(start for start, _ in commits) == 999
    assert max(start for start, _ in commits) == 999 + 3 * 99
    assert [start for start, _ in commits[1:102]] == [*range(999, 1299, 3), 999]
    assert {num_draft for num_draft, _ in asked} == {8}
    assert asked[0] == (8, 1000) and asked[1] == (8, 1003)
    assert result.drafted > 0.5


def test_a_wrong_draw_has_no_time(monkeypatch):
    monkeypatch.setattr(host, "sample", lambda *_: -1)
    with pytest.raises(WrongResultError, match="differs from the reference"):
        sampler_draw("greedy", 100, 1)


def test_a_wrong_walk_has_no_time(monkeypatch):
    monkeypatch.setattr(lattice_walks, "walk", lambda *_: ([-1], [1.0]))
    with pytest.raises(WrongResultError, match="differs from a plain walk"):
        lattice_walk(3, 4, 1)


def test_walks_of_a_block_and_their_bound():
    result = lattice_walk(7, 8, 5)
    assert (result.part, result.case, result.size, result.calls) == ("walk", "8 candidates", 7, 5)
    slow = HostTime("walk", "8 candidates", 7, Latency(5.1, 6.0), 1)
    assert [bound.holds for bound in walk_bounds([slow])] == [False]
    assert [len(walk_bounds([one])) for one in (result, *times((1.0, 1.0, 1.0)))] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1, 2, 3, 4, 1, 2], [3, 4, 1, 2, 3]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2, 4, 1]),
        ([9, 1, 2, 3, 1, 2, 4, 9, 1, 2], [3, 1, 2, 4, 9]),
        ([7, 7, 7], [7, 7, 7, 7, 7]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_a_plain_search(ids, expected):
    assert plain_search(np.array(ids, np.int32), 5) == expected


@pytest.mark.parametrize("wrong_at", [0, 1])
def test_a_wrong_proposal_has_no_time(monkeypatch, wrong_at):
    propose, proposals = NgramSpeculator.propose, []

    def wrong(self, contexts):
        (draft,) = propose(self, contexts)
        tokens = [*draft.tokens, 5] if len(proposals) == wrong_at else draft.tokens
        proposals.append(tokens)
        return [Draft(tokens, [], self.name)]

    monkeypatch.setattr(NgramSpeculator, "propose", wrong)
    with pytest.raises(WrongResultError, match=r"ngram zipf: .* a plain search has"):
        next(ngram_calls("zipf", 1000, 10))


@pytest.mark.parametrize("case", DRAWS)
def test_draws_of_a_small_vocabulary(case):
    result = sampler_draw(case, 20_000, 3)
    assert (result.calls, result.size) == (3, 20_000)
    assert 0 < result.microseconds.median <= result.microseconds.p999


def times(medians, p999=(5.0, 5.0, 5.0)):
    return [
        HostTime("ngram", "zipf", size, Latency(median, tail), 1, 1.0)
        for size, median, tail in zip(HISTORIES, medians, p999, strict=True)
    ]


def test_the_bounds_of_the_index():
    holds = [[bound.holds for bound in ngram_bounds(times(*case))] for case in (
        ((1.0, 2.0, 1.5),),
        ((1.0, 2.1, 1.5),),
        ((1.0, 2.0, 1.6),),
        ((1.0, 2.0, 1.5), (5.0, 21.0, 5.0)),
    )]  # fmt: skip
    assert holds == [[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert ngram_bounds(times((1.0, 1.0, 1.0))[:2]) == []  # interrupted


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(host, "HISTORIES", (200, 400, 800))
    monkeypatch.setattr(host, "VOCABULARIES", (20_000,))
    monkeypatch.setattr(host, "CONTEXT", 4096)
    monkeypatch.setattr(host, "STEP_CASES", (StepCase(True, True, False, 300),))
    file = tmp_path / "host.json"
    assert main(["host", "--calls", "100", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "p99.9" in printed and "copies" in printed
    saved = json.loads(file.read_text())
    assert saved["complete"]
    assert {one["part"] for one in saved["results"]} == {
        "ngram", "governor", "sampler", "walk", "step", "step draws",
    }  # fmt: skip
    assert len(saved["bounds"]) == 3 * len(TEXTS) + len(lattice_walks.BLOCKS) + 1
