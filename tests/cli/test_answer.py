"""What stands below an answer, and which token a character came from."""

from specrt.cli.answer import OriginSpans, legend, summary
from specrt.stats import Phases, Stats


def test_summary_says_who_drafted_or_why_not():
    stats = Stats(speculator="ngram", time_to_first_token=12.3, plain_step_ms=10.0)
    stats.phases = Phases(prefill=5, verify=40, plain=10)
    stats.count_step(4, 4)
    stats.count_step(4, 1)
    stats.count_step(0, 0)
    line = summary(stats)
    assert "ngram: 5/8 accepted (62 %), length 3.5" in line
    assert "8 tokens at 160.0/s, 1.60x plain" in line and "first after 12 ms" in line
    assert "ngram: no draft" in summary(Stats(speculator="ngram"))
    assert "plain; draft-head: none" in summary(Stats(declined=["draft-head: none"]))
    assert "5 accepted" in legend(stats).plain and "1 plain" in legend(stats).plain


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
