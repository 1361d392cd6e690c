"""Prefill moves the cursor over a chunk once everybody has heard of it."""

from functools import cache

import pytest
from toys import Head

from specrt import SamplingParams
from specrt.completion import completion
from specrt.lossless import fixed_request
from specrt.state.messages import FINAL_HIDDEN
from tests.models_on_disk import golden_arrays, load_golden
from tests.running import run, same

PARAMS = SamplingParams(max_tokens=20, ignore_eos=True, temperature=1.0, seed=5, logprobs=1)
CHUNKS = (64, 32, 2, 1)


@cache
def llm(name):
    return load_golden(name)


def prompt(name):
    return (golden_arrays(name)["tokens"].tolist() * 3)[: sum(CHUNKS) + 1]


@cache
def plain(name):
    return run(llm(name), prompt(name), PARAMS)


def interrupted(head, number, after):
    """Ctrl-C in the commit of that chunk, before or after the head has heard of it."""
    hear, calls = head.commit, []

    def commit(kept):
        calls.append(kept)
        if len(calls) == number + 1 and not after:
            raise KeyboardInterrupt
        hear(kept)
        if len(calls) == number + 1:
            raise KeyboardInterrupt

    head.commit = commit


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(len(CHUNKS)))
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35"])
def test_a_prefill_that_was_broken_off_goes_on_with_the_chunk_that_was_not_heard(
    name, number, after
):
    whole = prompt(name) + plain(name).token_ids
    head = Head(lambda c: whole[c.sequence.cursor.num_tokens :])
    interrupted(head, number, after)
    request = fixed_request(llm(name), prompt(name), PARAMS, (head,), 3)
    sequence, runtime = request.sequence, llm(name).generator.runtime
    with pytest.raises(KeyboardInterrupt):
        runtime.prefill(request)
    assert sequence.cursor.cache_len == sum(CHUNKS[:number])
    assert head.heard(sequence) == sum(CHUNKS[: number + after])
    assert sequence.tokens == prompt(name)
    for _ in llm(name).generator.run(request):
        pass
    same(completion(request), plain(name))
    assert request.speculators == (head,) and not request.stats.declined
    assert head.positions == list(range(sequence.cursor.cache_len))
    assert request.stats.num_accepted > 10
    llm(name).target.close_sequence(sequence)


def test_the_cursor_is_moved_by_whoever_asks_for_the_next_chunk():
    target, ids = llm("llama").target, prompt("llama")[:-1]
    sequence = target.open_sequence()
    seen = [
        (kept.start_pos, sequence.cursor.cache_len, kept.next_token, len(kept.tokens))
        for kept in target.prefill(sequence, ids, [FINAL_HIDDEN])
    ]
    starts = [sum(CHUNKS[:i]) for i in range(len(CHUNKS))]
    following = [*(ids[start] for start in starts[1:]), None]
    assert seen == list(zip(starts, starts, following, CHUNKS, strict=True))
    assert sequence.cursor.cache_len == len(ids)
    sequence.cursor = type(sequence.cursor)()
    chunks = target.prefill(sequence, ids)
    next(chunks), next(chunks)
    chunks.close()
    assert sequence.cursor.cache_len == CHUNKS[0]
    target.close_sequence(sequence)
