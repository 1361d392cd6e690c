"""What a block drafter follows of a sequence: it drafts like one that never saw anything else."""

import gguf
import numpy as np
import pytest

from specrt import SamplingParams, SpecOptions
from specrt.drafters.dflash_head import DFlashHead
from specrt.drafters.dflash_passes import WAITING, DFlashPasses
from specrt.errors import MismatchError
from specrt.models.tap_rows import MOST_HELD
from specrt.state.messages import DraftContext
from tests.following import Following
from tests.models_on_disk import DRAFTER_GOLDENS, golden_arrays, golden_path, load_golden
from tests.rewriting import rewritten

SLIDING, MIXED, FULL = "dflash2-qwen35", "dflash2-muse", "dspark-qwen3"
TARGETS = {SLIDING: "qwen35", MIXED: "muse-glimmer", FULL: "qwen3"}
TOKENS = (golden_arrays("qwen35")["tokens"].tolist() * 20)[:500]


@pytest.fixture(scope="module", params=TARGETS)
def llm(request):
    return load_golden(TARGETS[request.param], request.param, max_sequences=4)


@pytest.fixture(scope="module")
def sliding():
    return load_golden(TARGETS[SLIDING], SLIDING, max_sequences=4)


@pytest.fixture
def follow(llm):
    """Sequences that are closed behind the test."""
    opened = []

    def follow():
        opened.append(Following(llm, "block"))
        return opened[-1]

    yield follow
    for session in opened:
        llm.target.close_sequence(session.sequence)


def behind(llm, tokens):
    session = Following(llm, "block")
    session.prefill(tokens[:-1], tokens[-1])
    draft = session.draft(session.speculator.max_draft)
    llm.target.close_sequence(session.sequence)
    return draft


def drafted(session):
    return session.draft(session.speculator.max_draft)


def told_from(session, first, end):
    """What is drafted behind rows of which the first were not heard of."""
    sequence = session.sequence
    sequence.history[: first + 1] = TOKENS[: first + 1]
    sequence.cursor = sequence.cursor._replace(num_tokens=first + 1)
    for _ in session.target.prefill(sequence, TOKENS[:first]):
        pass
    session.prefill(TOKENS[first:end], TOKENS[end])
    return drafted(session)


def lowest_seen(session):
    head, position = session.speculator.head, session.sequence.cursor.cache_len
    return head._lowest(session.sequence.drafter_states[head], position)


@pytest.mark.parametrize("piece", [1, 3, 9, 10, 64, 65, 129])
def test_it_matters_not_in_which_pieces_rows_come(llm, follow, piece):
    session = follow()
    for start in range(0, 300, piece):
        rows = TOKENS[start : min(start + piece, 300)]
        session.prefill(rows, TOKENS[start + len(rows)])
        if start % 2:
            session.draft(3)
    assert drafted(session) == behind(llm, TOKENS[:301]) == drafted(session)


def test_at_every_offset_of_the_ring(llm, follow):
    """Drafts between write blocks over positions that later rows take."""
    session = follow()
    layout = session.speculator.head.passes.layout
    all_pages, ring = layout.window > 0, 64 * layout.ring_pages or 64
    session.prefill(TOKENS[:110], TOKENS[110])
    for end in range(111, 111 + ring + 4):
        session.prefill(TOKENS[end - 1 : end], TOKENS[end])
        draft = drafted(session)
        if all_pages or end % 8 == 0:
            assert draft == behind(llm, TOKENS[: end + 1])


def test_a_layer_sees_all_that_it_can(llm, follow):
    """However long ago a row came; where all layers slide, those that none sees are left out."""
    session = follow()
    session.prefill(TOKENS[:400], TOKENS[400])
    drafted(session)
    head = session.speculator.head
    windows = head.weights.keys.windows
    first = 400 - max(windows) + 1 if all(windows) else 0
    assert head.passes._blocks.inputs.lowest[0] == first


@pytest.mark.parametrize("num_waiting", [1, 9, 10, 15, 16, 40, 63])
def test_rows_of_many_steps_wait_for_the_next_draft(llm, follow, num_waiting):
    """Nothing is injected meanwhile that no block will see."""
    session = follow()
    session.prefill(TOKENS[:100], TOKENS[100])
    drafted(session)
    for _ in range(2):
        start = session.sequence.cursor.cache_len
        window, _ = session.verify(TOKENS[start + 1 : start + num_waiting])
        session.keep(window, num_waiting, TOKENS[start + num_waiting])
    assert drafted(session) == behind(llm, TOKENS[: 101 + 2 * num_waiting])


@pytest.mark.parametrize("num_kept", [1, 2, 4])
def test_rows_that_were_taken_back_leave_nothing(llm, follow, num_kept):
    session = follow()
    session.prefill(TOKENS[:20], TOKENS[20])
    window, _ = session.verify([*TOKENS[21 : 20 + num_kept], 3, 4, 5][:4])
    session.keep(window, num_kept, TOKENS[20 + num_kept])
    assert drafted(session) == behind(llm, TOKENS[: 21 + num_kept])


def test_a_step_that_was_broken_off_behind_its_commit_leaves_nothing(llm, follow):
    session = follow()
    session.prefill(TOKENS[:20], TOKENS[20])
    expected, before = drafted(session), session.sequence.cursor
    window, _ = session.verify(TOKENS[1:40])
    session.keep(window, 40, 7)
    session.sequence.cursor = before
    session.sequence.history[20] = TOKENS[20]
    assert drafted(session) == expected
    window, _ = session.verify(TOKENS[21:24])
    session.keep(window, 4, TOKENS[24])
    assert drafted(session) == behind(llm, TOKENS[:25])


def test_rows_that_come_twice_change_nothing(llm, follow):
    session = follow()
    session.prefill(TOKENS[:40], TOKENS[40])
    drafted(session)
    sequence, taps = session.sequence, session.speculator.taps
    for kept in session.target.kept_rows(sequence, 33, 40, taps):
        session.speculator.commit([kept])
    assert drafted(session) == behind(llm, TOKENS[:41])


def test_sequences_in_one_call_draft_as_alone(llm, follow):
    sessions, lengths = [follow() for _ in range(3)], (20, 33, 1)
    for session, length in zip(sessions, lengths, strict=True):
        session.prefill(TOKENS[:length], TOKENS[length])
    contexts = [
        DraftContext(session.sequence, num, 0.0)
        for session, num in zip(sessions, (5, 3, 2), strict=True)
    ]
    drafts = sessions[0].speculator.propose(contexts)
    for draft, length, num in zip(drafts, lengths, (5, 3, 2), strict=True):
        expected = behind(llm, TOKENS[: length + 1])
        assert draft.tokens == expected.tokens[:num]
        assert draft.confidences == expected.confidences[:num]


def test_rows_that_were_not_heard_of_are_not_seen(llm, follow):
    """As behind a reused prefix: what another sequence left in the slot is no key."""
    drafts = []
    for filler in (3, 4):
        session = follow()
        caches = session.speculator.head.passes.caches
        for cache in caches:
            cache.k[...] = cache.v[...] = filler
        sequence = session.sequence
        sequence.history[:31] = TOKENS[:31]
        sequence.cursor = sequence.cursor._replace(num_tokens=31)
        for _ in session.target.prefill(sequence, TOKENS[:30]):
            pass
        assert drafted(session).tokens == []
        session.prefill(TOKENS[30:36], TOKENS[36])
        drafts.append(drafted(session))
        assert session.speculator.heard(sequence) == 0
    assert drafts[0] == drafts[1] and drafts[0].tokens


@pytest.mark.parametrize("length", [395, 340, 250, 130, 20, 1])
def test_far_back_it_goes_on(llm, follow, length):
    """Where sliding layers have lost keys it sees fewer rows, else all."""
    session = follow()
    session.prefill(TOKENS[:400], TOKENS[400])
    drafted(session)
    sequence, target = session.sequence, session.target
    reached = target.rewind(sequence, length)
    sequence.history[reached] = TOKENS[reached]
    session.speculator.head.reset(sequence)
    drafted(session)
    session.prefill(TOKENS[reached : reached + 90], TOKENS[reached + 90])
    draft = drafted(session)
    assert draft.tokens
    assert draft == told_from(follow(), lowest_seen(session), reached + 90)


@pytest.mark.parametrize("length", [250, 140, 1])
def test_a_cursor_that_was_put_back_far_is_drafted_behind(llm, follow, length):
    """A sequence whose rows are all gone drafts nothing until it hears of some."""
    session = follow()
    session.prefill(TOKENS[:400], TOKENS[400])
    drafted(session)
    sequence = session.sequence
    sequence.cursor = sequence.cursor._replace(cache_len=length, num_tokens=length + 1)
    sequence.history[length] = TOKENS[length]
    draft = drafted(session)
    if draft.tokens:
        assert draft == told_from(follow(), lowest_seen(session), length)
    else:
        assert session.speculator.head.passes.layout.window


def test_rows_that_the_target_no_longer_keeps_are_left_out(sliding):
    """They waited, and later ones stand where they were kept."""
    session, kept_from = Following(sliding, "block"), 400 - MOST_HELD
    session.prefill(TOKENS[:400], TOKENS[400])
    sequence, length = session.sequence, kept_from + 5
    sequence.cursor = sequence.cursor._replace(cache_len=length, num_tokens=length + 1)
    sequence.history[length] = TOKENS[length]
    session.speculator.head.reset(sequence)
    other = Following(sliding, "block")
    assert drafted(session) == told_from(other, kept_from, length)
    for one in (session, other):
        sliding.target.close_sequence(one.sequence)


@pytest.mark.parametrize(
    ("name", "block_size"), [("dflash-qwen35", 65), ("dflash-qwen35", 20), ("dspark-qwen3", 64)]
)
def test_long_blocks_of_several_sequences_are_one_call(name, block_size, tmp_path, monkeypatch):
    """Each with as many rows that wait as a draft takes in."""
    size = {"dflash.block_size": (block_size, gguf.GGUFValueType.UINT32)}
    path = rewritten(golden_path(name), tmp_path / "drafter.gguf", keys=size)
    llm = load_golden(DRAFTER_GOLDENS[name], draft_model=path, max_sequences=4)
    sessions, alone, calls = [Following(llm, "block") for _ in range(4)], [], []
    for number, session in enumerate(sessions):
        end = 20 + number
        session.prefill(TOKENS[number : end - WAITING], TOKENS[end - WAITING])
        drafted(session)
        session.prefill(TOKENS[end - WAITING : end], TOKENS[end])
    contexts = [DraftContext(session.sequence, 64, 0.0) for session in sessions]
    draft = DFlashPasses.draft
    monkeypatch.setattr(
        DFlashPasses, "draft", lambda *args: calls.append(len(args[1])) or draft(*args)
    )
    drafts = sessions[0].speculator.propose(contexts)
    for session in sessions:
        alone.append(drafted(session))
    assert calls == [4, 1, 1, 1, 1]
    assert drafts == alone and len(drafts[0].tokens) == sessions[0].speculator.max_draft


def test_a_session_is_saved_and_loaded_beside_no_step(llm, tmp_path, monkeypatch):
    """A head may compute for it."""
    lock, held = llm.generator.runtime.lock, []
    for name in ("export_state", "import_state"):
        method = getattr(DFlashHead, name)
        monkeypatch.setattr(
            DFlashHead, name, lambda *args, of=method: held.append(lock.locked()) or of(*args)
        )
    with llm.session() as session:
        session.generate(TOKENS[:30], SamplingParams(max_tokens=5), spec="block")
        session.save(tmp_path / "saved.npz")
    type(session).load(llm, tmp_path / "saved.npz").close()
    assert held == [True, True]


def test_a_session_goes_back_and_on_with_its_drafter(llm):
    spec = SpecOptions(type="block", num_draft=3, pmin=0.0, governor=False)
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    with llm.session() as session:
        for prompt in (TOKENS[:30], TOKENS[:40], TOKENS[:300], TOKENS[:40], TOKENS[:2]):
            got = session.generate(prompt, params, spec=spec)
            assert got.token_ids == llm.generate(prompt, params, spec=None).token_ids
            assert got.stats.num_drafted


@pytest.mark.parametrize("length", [2, 9, 60, 300])
def test_a_saved_session_drafts_on(llm, length, tmp_path):
    spec = SpecOptions(type="block", num_draft=3, pmin=0.0, governor=False)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompt, path = TOKENS[:length], tmp_path / "saved.npz"
    with llm.session() as session:
        first = session.generate(prompt, params, spec=spec)
        prompt = [*prompt, *first.token_ids, 5]
        session.save(path)
        expected = session.generate(prompt, params, spec=spec)
    with type(session).load(llm, path) as session:
        state = session._open().drafter_states
        assert len(state) == 1
        got = session.generate(prompt, params, spec=spec)
    assert got.token_ids == expected.token_ids
    assert got.stats.cached_tokens == expected.stats.cached_tokens == len(prompt) - 2
    assert got.stats.num_accepted_counts == expected.stats.num_accepted_counts


@pytest.mark.parametrize("back", [1, 12, 40])
def test_a_loaded_sequence_may_go_back(llm, follow, back):
    """To rows that no save has of a layer that slides: it sees none of those."""
    session, drafts = follow(), []
    head = session.speculator.head
    session.prefill(TOKENS[:300], TOKENS[300])
    state = head.export_state(session.sequence)
    for filler in (3, 4):
        for cache in head.passes.caches:
            cache.k[...] = cache.v[...] = filler
        head.import_state(session.sequence, state)
        before = session.sequence.cursor
        end = 300 - back
        session.sequence.cursor = before._replace(cache_len=end, num_tokens=end + 1)
        drafts.append(drafted(session))
        session.sequence.cursor = before
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize(
    "change",
    [
        {"first": np.array([30])}, {"first": np.array([-1])}, {"first": np.zeros(2, np.int32)},
        {"first": np.array([0.0])}, {"k0": np.zeros((3, 2, 32), np.float32)},
        {"v1": np.zeros((15, 2, 32), np.float16)}, {"first": ()},
    ],
    ids=str,
)  # fmt: skip
def test_a_saved_drafter_of_another_shape_is_refused(sliding, change):
    session = Following(sliding, "block")
    session.prefill(TOKENS[:30], TOKENS[30])
    head = session.speculator.head
    state = head.export_state(session.sequence)
    expected = drafted(session)
    head.import_state(session.sequence, state)
    assert drafted(session) == expected
    with pytest.raises(MismatchError, match="saved drafter"):
        head.import_state(session.sequence, state | change)
    sliding.target.close_sequence(session.sequence)


def test_buffers_may_hold_anything(llm, follow):
    expected = behind(llm, TOKENS[:30])
    session = follow()
    passes = session.speculator.head.passes
    for cache in passes.caches:
        cache.k[...] = cache.v[...] = np.nan
    for array in (passes.logits, passes.encoded):
        array[...] = np.nan
    session.prefill(TOKENS[:29], TOKENS[29])
    assert drafted(session) == expected


@pytest.mark.parametrize("device", ["emulator", "reference"])
def test_other_devices_follow_alike(device):
    llm = load_golden(TARGETS[MIXED], MIXED, device=device)
    session = Following(llm, "block")
    session.prefill(TOKENS[:20], TOKENS[20])
    drafted(session)
    window, _ = session.verify([TOKENS[21], 3, 4])
    session.keep(window, 2, TOKENS[22])
    expected, head = behind(llm, TOKENS[:23]), session.speculator.head
    state = head.export_state(session.sequence)
    assert drafted(session) == expected
    del session.sequence.drafter_states[head]
    assert drafted(session).tokens == []
    head.import_state(session.sequence, state)
    assert drafted(session) == expected
