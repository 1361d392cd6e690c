"""A row's logits are bitwise the same however many rows, sequences and threads run beside it."""

from functools import cache

import numpy as np
import pytest

from specrt.gguf.reader import open_gguf
from specrt.host import HostOps, available_levels
from specrt.llm import LLM
from specrt.ops import PAGE
from specrt.options import SpecOptions
from specrt.state.messages import Window
from tests.models_on_disk import GOLDENS, golden_arrays, golden_path, load_golden

COUNT = 300
NUM_ROWS = (*range(1, 18), 33, 65)


def tokens(name: str) -> list[int]:
    """More tokens than gemma3's ring of 12 + 512 positions holds pages for in one chunk."""
    own = golden_arrays(name)["tokens"].tolist()
    return (own * (COUNT // len(own) + 1))[:COUNT]


@cache
def golden(name: str) -> LLM:
    return load_golden(name, kv_type="f16")


def at_level(name: str, level: str, threads: int | None = None) -> LLM:
    return LLM(
        open_gguf(golden_path(name)),
        HostOps(threads, level),
        context=512,
        kv_type="f16",
        spec=SpecOptions(type="none"),
        max_sequences=2,
    )


def rows_of(llm: LLM, ids: list[int], sizes, prefilled: int = 0) -> np.ndarray:
    """Logits of ``ids`` behind a prefilled part, in windows of the given sizes."""
    sequence = llm.target.open_sequence()
    for _ in llm.target.prefill(sequence, ids[:prefilled]):
        pass
    start, rows = prefilled, []
    for size in sizes:
        window = Window(sequence, ids[start : start + size], start)
        rows.append(llm.target.verify([window], logits=True).logits.copy())
        sequence.cursor = llm.target.rollback(sequence, size)
        start += size
    llm.target.close_sequence(sequence)
    return np.concatenate(rows)


@cache
def one_by_one(name: str) -> np.ndarray:
    return rows_of(golden(name), tokens(name), [1] * COUNT)


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("name", GOLDENS)
def test_any_number_of_rows_any_chunk_and_two_sequences(name, level):
    llm = at_level(name, level)
    check_numbers_of_rows(llm, name)
    for chunk in (1, 7, 64, COUNT - 1):
        check_prefill_chunk(llm, name, chunk)
    check_two_sequences(llm, name)


def check_numbers_of_rows(llm: LLM, name: str) -> None:
    """Windows of T rows behind one prefix, none of them kept; then shortly before a page ends."""
    ids, target = tokens(name), llm.target
    sequence = target.open_sequence()
    for start, sizes in ((COUNT - 65, NUM_ROWS), (4 * PAGE - 5, range(1, 18))):
        for _ in target.prefill(sequence, ids[sequence.cursor.cache_len : start]):
            pass
        for num_rows in sizes:
            window = Window(sequence, ids[start : start + num_rows], start)
            got = target.verify([window], logits=True).logits
            expected = one_by_one(name)[start : start + num_rows]
            np.testing.assert_array_equal(got, expected, f"{num_rows} rows")
    target.close_sequence(sequence)


def check_prefill_chunk(llm: LLM, name: str, chunk: int) -> None:
    ids = tokens(name)
    sequence = llm.target.open_sequence()
    for start in range(0, COUNT - 1, chunk):
        for _ in llm.target.prefill(sequence, ids[start : min(start + chunk, COUNT - 1)]):
            pass
    window = Window(sequence, ids[-1:], COUNT - 1)
    got = llm.target.verify([window], logits=True).logits.copy()
    llm.target.close_sequence(sequence)
    np.testing.assert_array_equal(got, one_by_one(name)[-1:], f"chunks of {chunk}")


def num_matching(ids: np.ndarray, window: Window) -> int:
    """How many draft tokens of the window its rows' ids are, up to the first that is not."""
    differs = [i for i, token in enumerate(window.tokens[1:]) if token != ids[i]]
    return min(differs, default=len(window.tokens) - 1)


def check_two_sequences(llm: LLM, name: str) -> None:
    ids, target = tokens(name), llm.target
    long, short = target.open_sequence(), target.open_sequence()
    for _ in target.prefill(long, ids[:200]):
        pass
    for _ in target.prefill(short, ids[:77]):
        pass
    expected = np.concatenate([one_by_one(name)[77:80], one_by_one(name)[200:209]])
    windows = [Window(short, ids[77:80], 77), Window(long, ids[200:209], 200)]
    verification = target.verify(windows, logits=True)
    np.testing.assert_array_equal(verification.logits, expected)
    np.testing.assert_array_equal(verification.ids, expected.argmax(axis=1))
    assert verification.row_offsets == [0, 3, 12]
    assert verification.outcomes[:, 2].tolist() == [
        78 + num_matching(verification.ids[:3], windows[0]),
        201 + num_matching(verification.ids[3:], windows[1]),
    ]
    # One window less than before, the first of its draft tokens right.
    window = Window(long, [ids[200], int(expected[3].argmax()), -1], 200)
    verification = target.verify([window])
    assert verification.outcomes.tolist() == [[1, verification.ids[1], 202]]
    target.close_sequence(long)
    target.close_sequence(short)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("name", GOLDENS)
def test_any_threads_and_instruction_set(name, level, threads):
    llm = at_level(name, level, threads)
    got = rows_of(llm, tokens(name), [64, 3, 1, 17], prefilled=COUNT - 85)
    np.testing.assert_array_equal(got, one_by_one(name)[-85:])


@pytest.mark.parametrize("name", ["llama-quant", "gemma3", "muse-glimmer"])
def test_the_per_token_path_runs_no_numpy_arithmetic(name):
    class Untouchable(np.ndarray):
        def __array_ufunc__(self, *args, **kwargs):
            raise AssertionError("a NumPy ufunc over a buffer")

        def __array_function__(self, *args, **kwargs):
            raise AssertionError("a NumPy function over a buffer")

    class UntouchableOps(HostOps):
        buffers = 0

        def buffer(self, shape, dtype):
            self.buffers += 1
            return super().buffer(shape, dtype).view(Untouchable)

    ops = UntouchableOps(1)
    llm = LLM(
        open_gguf(golden_path(name)),
        ops,
        context=64,
        kv_type="f16",
        spec=SpecOptions(type="none"),
        max_sequences=1,
    )
    assert ops.buffers > 10
    sequence = llm.target.open_sequence()
    for _ in llm.target.prefill(sequence, tokens(name)[:20]):
        pass
    llm.target.verify([Window(sequence, tokens(name)[20:24], 20)], logits=True)
    with pytest.raises(AssertionError, match="ufunc"):
        ops.buffer((3,), np.float32) + 1
