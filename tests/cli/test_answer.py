"""The line below an answer, and which token a character came from."""

import pytest

from specrt.cli.answer import OriginSpans, for_terminal, legend, summary
from specrt.stats import Phases, Stats


@pytest.fixture
def stats():
    stats = Stats(speculator="ngram", time_to_first_token=12.3, plain_step_ms=10.0)
    stats.phases = Phases(prefill=5, verify=40, plain=10)
    stats.count_step(4, 4)
    stats.count_step(4, 1)
    stats.count_step(0, 0)
    return stats


def test_summary_says_who_drafted(stats):
    assert summary(stats) == (
        "ngram: 5/8 accepted (62 %), length 3.5 · 8 tokens at 160.0/s, 1.60x plain · "
        "first after 12 ms"
    )
    assert "5 accepted · 1 bonus" in legend(stats).plain and "1 plain" in legend(stats).plain


def test_no_ratio_without_a_measured_plain_step(stats):
    stats.plain_step_ms, stats.num_draft_counts = None, {4: 2}
    assert "160.0/s · first" in summary(stats)


def test_summary_says_why_nobody_drafted():
    assert summary(Stats()).startswith("plain (speculation is off)")
    assert summary(Stats(speculator="ngram")).startswith("ngram: no draft")
    assert summary(Stats(declined=["draft-head: none"])).startswith("plain; draft-head: none")


def test_origins_follow_characters_over_tokens():
    pieces = [b"ab", "é".encode()[:1], "é".encode()[1:] + b"c", b"\xff", b"d", b""]
    spans = OriginSpans(lambda token: pieces[token])
    spans.add([0, 1], ["plain", "accepted"])
    assert list(spans.spans("ab")) == [("ab", "plain")]
    spans.add([2, 3, 4, 5], ["bonus", "corrected", "plain", "accepted"])
    assert list(spans.spans("éc\ufffdd")) == [
        ("é", "accepted"),
        ("c", "bonus"),
        ("\ufffd", "corrected"),
        ("d", "plain"),
    ]
    assert list(spans.spans("")) == []


def test_no_escape_sequence_of_a_model_reaches_a_terminal():
    assert for_terminal("a\x1b[2Jb\x07\x9b1m\r\n\tü€") == "a[2Jb1m\n\tü€"
