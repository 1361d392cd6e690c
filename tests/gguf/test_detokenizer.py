"""Streams cut anywhere give the text of the whole, and stop where the first stop string ends."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specrt.gguf.detokenizer import find_stop, held_back, take_text

BYTES = st.lists(
    st.sampled_from([*b"ab\x80\xbf\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\xed\xa0\xff\xc0\xf4\x90"]),
    max_size=24,
).map(bytes) | st.text(max_size=12).map(str.encode)
WORDS = st.text("ab", max_size=24).map(str.encode)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5).map(str.encode), max_size=3).map(tuple)


def chunks(data: bytes, cuts: list[int]) -> list[int]:
    """The lengths that the buffer has one after the other."""
    return sorted({min(cut, len(data)) for cut in cuts} | {len(data)})


def stream(data: bytes, ends: list[int]) -> list[str]:
    pieces, start = [], 0
    for end in ends:
        text, start = take_text(data[:end], start)
        pieces.append(text)
    return [*pieces, take_text(data, start, final=True)[0]]


@given(data=BYTES, cuts=st.lists(st.integers(0, 24), max_size=8))
@example(data="é€😀".encode(), cuts=[*range(10)])
@example(data=b"\xe2\x82", cuts=[1, 2])
@example(data=b"\xf0\x9fa\xed\xa0\x80\xff", cuts=[*range(8)])
def test_pieces_joined_are_the_whole_text(data, cuts):
    assert "".join(stream(data, chunks(data, cuts))) == data.decode(errors="replace")


@given(text=st.text(max_size=12), cuts=st.lists(st.integers(0, 40), max_size=8))
def test_a_character_is_never_shown_broken(text, cuts):
    data = text.encode()
    shown = ""
    for piece in stream(data, chunks(data, cuts)):
        shown += piece
        assert text.startswith(shown)


def test_a_character_waits_for_its_last_byte_and_a_broken_one_does_not():
    assert take_text(b"a\xe2\x82", 0) == ("a", 1)
    assert take_text(b"a\xe2\x82\xac", 1) == ("€", 4)
    assert take_text(b"a\xe2\x82b", 1) == ("\ufffdb", 4)
    assert take_text(b"a\xe2\x82", 1, final=True) == ("\ufffd", 3)
    assert take_text(b"abcd", 1, 3) == ("bc", 3)


@pytest.mark.parametrize(
    ("data", "start", "stops", "expected"),
    [
        (b"abcd", 0, (b"bc",), 1),
        (b"abcd", 3, (b"bc",), None),  # complete before start
        (b"abcd", 2, (b"bc",), 1),  # begins before start, ends after it
        (b"xbcxbc", 3, (b"bc",), 4),
        (b"abcd", 0, (b"abcd", b"c"), 2),  # "c" is complete first
        (b"abcd", 0, (b"cd", b"bcd"), 1),  # complete together: the longest
        (b"aaa", 2, (b"aa",), 1),
        (b"abc", 0, (b"abcd",), None),
        (b"", 0, (b"a",), None),
        (b"abc", 0, (), None),
    ],
)
def test_find_stop(data, start, stops, expected):
    assert find_stop(data, start, stops) == expected


@given(data=WORDS, stops=STOPS, cuts=st.lists(st.integers(0, 24), max_size=8))
def test_the_stop_does_not_depend_on_how_the_bytes_arrive(data, stops, cuts):
    def run(ends: list[int]) -> int | None:
        start = 0
        for end in ends:
            if (at := find_stop(data[:end], start, stops)) is not None:
                return at
            start = end
        return None

    at_once = run([len(data)])
    assert run(chunks(data, cuts)) == at_once
    completed = [
        (end, -len(s)) for end in range(1, len(data) + 1) for s in stops if data[:end].endswith(s)
    ]
    assert at_once == (None if not completed else min(completed)[0] + min(completed)[1])


@given(data=WORDS, stops=STOPS)
def test_held_back_is_the_longest_end_that_starts_a_stop(data, stops):
    starts = {s[:n] for s in stops for n in range(1, len(s))}
    expected = max((n for n in range(len(data) + 1) if data[len(data) - n :] in starts), default=0)
    assert held_back(data, stops) == expected


@given(data=WORDS, stops=STOPS, cuts=st.lists(st.integers(0, 24), max_size=8))
def test_a_stream_that_holds_back_never_shows_a_byte_of_a_stop(data, stops, cuts):
    cut = find_stop(data, 0, stops)
    expected = (data if cut is None else data[:cut]).decode()
    shown, emitted, searched = "", 0, 0
    for end in chunks(data, cuts):
        buffer = data[:end]
        stop = find_stop(buffer, searched, stops)
        searched = end
        until = len(buffer) - held_back(buffer, stops) if stop is None else stop
        assert until >= emitted
        text, emitted = take_text(buffer, emitted, until, final=stop is not None)
        shown += text
        assert expected.startswith(shown)
        if stop is not None:
            break
    else:
        shown += take_text(data, emitted, final=True)[0]
    assert shown == expected
