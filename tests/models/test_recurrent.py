"""A hybrid's recurrent states: whatever is taken back, they are those of one row at a time.

What a sequence keeps starts as garbage, and all comparisons are by bits.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest
from emulated import needs_emulator

from specrt.kernels.emulator import Emulator
from specrt.state.messages import Window
from specrt.state.recurrent import MOST_KEPT, RecurrentLayer
from tests.accuracy import assert_golden_float
from tests.models.test_invariance import tokens
from tests.models_on_disk import golden_arrays, load_golden

NAN, HUGE = 0xFF, 0x7E
"""Bytes of a NaN, and of 8e37 in float32."""
EVERY = [(drafted, kept) for drafted in range(1, 8) for kept in range(drafted + 1)]
LONG = [(16, 9), (64, 0), (64, 30), (64, 64)]
FEW = [(1, 0), (3, 1), (3, 3), (7, 0), (7, 5)]
BY_TURNS = [(7, 7), (0, 0), (1, 1), (0, 0), (7, 0), (7, 7)]
ON_EMULATOR = pytest.param("emulator", marks=needs_emulator)
COUNTS = {"cpu": 300, "reference": 160, "emulator": 26}
"""Rows of the plain run."""


def spoiled(device: str, byte: int):
    """A target with garbage in all that it keeps of sequences."""
    target = load_golden("qwen35", device=device, max_sequences=3).target
    for cache_ in target.caches:
        for array in vars(cache_).values():
            if isinstance(array, np.ndarray):
                array.view(np.uint8)[...] = byte
    return target


class Plain:
    """Logits of each row, and states behind each number of rows, fed one at a time."""

    def __init__(self, device: str, ids: list[int]) -> None:
        target = load_golden("qwen35", device=device).target
        self.ids, self.logits, self.states = ids, [], []
        sequence = target.open_sequence()
        for place, token in enumerate(ids):
            got = target.verify([Window(sequence, [token], place)], logits=True)
            self.logits.append(got.logits[0].copy())
            self.states.append(states_before(target, sequence))
            sequence.cursor = target.rollback(sequence, 1)


@cache
def plain(device: str, skipped: int = 0) -> Plain:
    return Plain(device, tokens("qwen35")[skipped:][: COUNTS[device]])


def states_before(target, sequence) -> list[np.ndarray]:
    """What the last verify found before its first row: of each layer the state and the tail."""
    layers = [layer for layer in target.caches if isinstance(layer, RecurrentLayer)]
    assert len(layers) == 4
    at = sequence.slot, 1 - sequence.cursor.live
    return [array[at].copy() for layer in layers for array in (layer.states, layer.tails)]


def step(target, members, windows) -> None:
    """Verify a window (K, m) of each sequence, and keep m + 1 rows; all is as plain."""
    asked = []
    for (sequence, right), (drafted, kept) in zip(members, windows, strict=True):
        start = sequence.cursor.cache_len
        ids = right.ids[start : start + kept + 1]
        wrong = [(token + 1) % 512 for token in right.ids[start + kept + 1 :]]
        ids += (wrong + [3] * drafted)[: drafted - kept]
        asked.append(Window(sequence, ids, start))
    got = target.verify(asked, logits=True)
    for number, ((sequence, right), (_, kept)) in enumerate(zip(members, windows, strict=True)):
        start, first = sequence.cursor.cache_len, got.row_offsets[number]
        for row in range(kept + 1):
            np.testing.assert_array_equal(got.logits[first + row], right.logits[start + row])
        for state, expected in zip(
            states_before(target, sequence), right.states[start], strict=True
        ):
            np.testing.assert_array_equal(state, expected)
    for (sequence, _), (_, kept) in zip(members, windows, strict=True):
        sequence.cursor = target.rollback(sequence, kept + 1)


def shuffled(windows, seed: int):
    """Them in another order, steps without a draft behind some."""
    rng = np.random.default_rng(seed)
    mixed = [windows[i] for i in rng.permutation(len(windows))]
    return [w for one in mixed for w in ([one, (0, 0)] if rng.random() < 0.5 else [one])]


@pytest.mark.parametrize("byte", [NAN, HUGE])
@pytest.mark.parametrize(
    ("device", "windows"),
    [
        ("cpu", shuffled(EVERY + LONG, 1)),
        ("cpu", BY_TURNS),
        pytest.param("emulator", shuffled(FEW, 1), marks=needs_emulator),
    ],
    ids=["every", "by turns", "emulator"],
)
def test_windows_of_which_parts_are_kept(device, windows, byte):
    target = spoiled(device, byte)
    member = target.open_sequence(), plain(device)
    for window in windows:
        step(target, [member], [window])


@pytest.mark.parametrize("byte", [NAN, HUGE])
@pytest.mark.parametrize(
    ("device", "windows"), [("cpu", EVERY), pytest.param("emulator", FEW, marks=needs_emulator)]
)
def test_two_sequences_beside_each_other(device, windows, byte):
    """Each has its own windows and states, and no trace of the other's."""
    target = spoiled(device, byte)
    members = [(target.open_sequence(), plain(device, skipped)) for skipped in (0, 7)]
    for both in zip(shuffled(windows, 1), shuffled(windows, 2), strict=False):
        step(target, members, both)
    step(target, members[::-1], [(1, 0), (2, 1)])  # in the other order


def prefill(target, sequence, right: Plain, chunk: int, count: int) -> None:
    for start in range(0, count, chunk):
        for _ in target.prefill(sequence, right.ids[start : min(start + chunk, count)]):
            pass
    assert sequence.cursor.cache_len == count


@pytest.mark.parametrize(
    ("device", "chunk"),
    [
        *product(["cpu"], (1, 7, 64, MOST_KEPT, MOST_KEPT + 1, 129, 300)),
        *product(["reference"], (64, 129)),
        pytest.param("emulator", 9, marks=needs_emulator),
    ],
)
def test_states_behind_a_prefill_in_chunks(device, chunk):
    target, right = spoiled(device, NAN), plain(device)
    sequence = target.open_sequence()
    prefill(target, sequence, right, chunk, COUNTS[device] - 10)
    for window in FEW[:3]:
        step(target, [(sequence, right)], [window])


def stepped(target, right: Plain, windows):
    """A new sequence behind those."""
    sequence = target.open_sequence()
    for window in windows:
        step(target, [(sequence, right)], [window])
    return sequence


@pytest.mark.parametrize("device", ["cpu", ON_EMULATOR])
@pytest.mark.parametrize("kept", [0, 3])
def test_a_state_saved_with_rows_pending_goes_on_elsewhere(device, kept):
    """In another target, in another slot, and from fewer rows than are pending."""
    right, target, other = plain(device), spoiled(device, NAN), spoiled(device, HUGE)
    sequence = stepped(target, right, ((7, 6), (5, kept)))
    cache_len, arrays = sequence.cursor.cache_len, target.export_state(sequence)
    assert len(arrays["log_u0"]) == sequence.cursor.pending == kept + 1
    beside = other.open_sequence()
    for lost in range(kept + 2):
        restored = other.open_sequence()
        assert restored.slot == 1 and beside.slot == 0
        other.import_state(restored, cache_len, arrays)
        assert other.rewind(restored, cache_len - lost) == cache_len - lost
        for window in ((3, 2), (0, 0), (1, 0)):
            step(other, [(restored, right)], [window])
        other.close_sequence(restored)


@pytest.mark.parametrize("lost", range(6))
def test_a_sequence_goes_back_as_far_as_rows_are_pending(lost):
    """Four are; further back is the beginning."""
    right, target = plain("cpu"), spoiled("cpu", NAN)
    sequence = stepped(target, right, ((7, 6), (5, 3)))
    wanted = sequence.cursor.cache_len - lost
    assert target.rewind(sequence, wanted) == (wanted if lost <= 4 else 0)
    for window in ((4, 2), (0, 0), (2, 0)):
        step(target, [(sequence, right)], [window])


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_more_rows_than_a_window_are_kept_whole_or_not_at_all(device):
    right, target, count = plain(device), spoiled(device, NAN), 80
    sequence = target.open_sequence()
    for _ in range(2):
        got = target.verify([Window(sequence, right.ids[:count], 0)], logits=True)
        np.testing.assert_array_equal(got.logits, right.logits[:count])
    sequence.cursor = target.rollback(sequence, count)
    step(target, [(sequence, right)], [(3, 1)])


@needs_emulator
@pytest.mark.parametrize("failing", [1, 20, 33])
def test_a_step_that_breaks_off_between_two_kernels_can_be_repeated(failing, monkeypatch):
    """Some layers have made the step and some have not; the retry may have another draft."""
    right, target = plain("emulator"), spoiled("emulator", NAN)
    sequence, launch, launched = stepped(target, right, ((3, 2), (5, 3))), Emulator.launch, []

    def interrupted(*args):
        launched.append(args)
        if len(launched) == failing:
            raise KeyboardInterrupt
        launch(*args)

    before = sequence.cursor
    for window in ((5, 1), (0, 0)):
        launched.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Emulator, "launch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                target.verify([Window(sequence, [9] * 6, before.cache_len)])
        assert sequence.cursor == before
        step(target, [(sequence, right)], [window])
        before = sequence.cursor


def test_rollbacks_of_an_independent_engine():
    """Its logits behind a draft of which 0 to 4 tokens were kept."""
    golden, llm = golden_arrays("qwen35"), load_golden("qwen35")
    target, prefix = llm.target, int(golden["rollback_prefix_len"])
    draft, following = (golden[f"rollback_{name}"].tolist() for name in ("draft", "cont"))
    for kept in range(len(draft) + 1):
        sequence = target.open_sequence()
        for _ in target.prefill(sequence, golden["tokens"][:prefix].tolist()):
            pass
        got = target.verify([Window(sequence, draft, prefix)], logits=True)
        assert_golden_float(got.logits, golden["rollback_draft_logits"])
        if kept:
            sequence.cursor = target.rollback(sequence, kept)
        got = target.verify([Window(sequence, following, prefix + kept)], logits=True)
        assert_golden_float(got.logits, golden[f"rollback_keep{kept}_logits"])
        target.close_sequence(sequence)
