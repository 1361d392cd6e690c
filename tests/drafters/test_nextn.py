"""NextN heads: drafts against an independent engine's, and what they follow of a sequence."""

import numpy as np
import pytest

from specrt import GovernorOptions, SamplingParams, SpecOptions
from specrt.drafters.nextn_head import TAKEN_IN, WAITING, NextNHead
from specrt.errors import MismatchError, OptionError
from specrt.models.qwen35 import Qwen35
from specrt.models.tap_rows import PIECE, RING
from specrt.state.messages import FINAL_HIDDEN, DraftContext
from tests.following import Following
from tests.models_on_disk import golden_arrays, load_golden

DEVICES = ["cpu", "emulator", "reference"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["qwen35", "qwen35-quant", "qwen35moe"])
def test_chains(name, device):
    """Behind prefixes, and behind a partial acceptance of the first chain."""
    arrays = golden_arrays(name)
    llm = load_golden(name, device=device)
    for number in range(3):
        session, chain = Following(llm), f"mtp_chain{number}"
        prefix = arrays["tokens"][: arrays[f"{chain}_prefix_len"]].tolist()
        session.prefill(prefix, int(arrays[f"{chain}_tokens_fed"][0]))
        expected = arrays[f"{chain}_draft"].tolist()
        assert session.draft(len(expected)).tokens == expected
        if number == 0:
            verified = arrays["mtp_r2_verify_tokens"].tolist()
            window, _ = session.verify(verified[1:])
            assert window.tokens == verified
            num_kept = 1 + int(arrays["mtp_r2_n_kept"])
            session.keep(window, num_kept, int(arrays["mtp_r2_tokens_fed"][0]))
            assert session.draft(4).tokens == arrays["mtp_r2_draft"].tolist()
        llm.target.close_sequence(session.sequence)


@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_session_round_by_round(device):
    arrays = golden_arrays("qwen35-accept")
    session = Following(load_golden("qwen35-accept", device=device))
    prompt = arrays["tokens"][: arrays["trace_prompt_len"]].tolist()
    rounds = [arrays[f"trace_{key}"].tolist() for key in ("id_last", "pos0", "draft")]
    session.prefill(prompt, rounds[0][0])
    emitted = []
    for last, position, draft, accepted, following in zip(
        *rounds, arrays["trace_n_accepted"].tolist(), arrays["trace_next"].tolist(), strict=True
    ):
        sequence = session.sequence
        assert (sequence.last_token, sequence.cursor.cache_len) == (last, position)
        assert session.draft(4).tokens == draft
        window, ids = session.verify(draft)
        assert ids[:accepted] == draft[:accepted] and ids[accepted] == following
        assert accepted == 4 or ids[accepted] != draft[accepted]
        session.keep(window, accepted + 1, following)
        emitted += [*draft[:accepted], following]
    assert [rounds[0][0], *emitted] == arrays["trace_output"].tolist()


PROMPT = golden_arrays("qwen35-accept")["tokens"].tolist()


@pytest.fixture(scope="module")
def llm():
    return load_golden("qwen35-accept", max_sequences=4)


def behind(llm, tokens, num_draft=5):
    """What a head drafts that has followed nothing else."""
    session = Following(llm)
    session.prefill(tokens[:-1], tokens[-1])
    draft = session.draft(num_draft)
    llm.target.close_sequence(session.sequence)
    return draft


@pytest.mark.parametrize(
    "piece", [1, 3, WAITING, WAITING + 1, TAKEN_IN, TAKEN_IN + 1, PIECE, PIECE + 5]
)
def test_it_matters_not_in_which_pieces_rows_come(llm, piece):
    tokens = (PROMPT * 6)[:RING]
    session = Following(llm)
    for start in range(0, len(tokens) - 1, piece):
        rows = tokens[start : min(start + piece, len(tokens) - 1)]
        session.prefill(rows, tokens[start + len(rows)])
        if start % 2:
            session.draft(3)
    assert session.draft(5) == behind(llm, tokens)
    assert session.draft(5) == session.draft(5)
    llm.target.close_sequence(session.sequence)


@pytest.mark.parametrize("device", DEVICES)
def test_the_target_s_logit_scale_is_the_head_s(device, monkeypatch):
    """A quarter of each logit: the same ids, less sure."""
    plain = load_golden("qwen35-accept", device=device)
    expected, logits = behind(plain, PROMPT[:30]), plain.logits(PROMPT[:30])
    monkeypatch.setattr(Qwen35, "logit_scale", 0.25)
    flat = load_golden("qwen35-accept", device=device)
    np.testing.assert_array_equal(flat.logits(PROMPT[:30]), logits / 4)
    got = behind(flat, PROMPT[:30])
    assert got.tokens == expected.tokens and len(got.tokens) == 5
    assert (np.array(got.confidences) < np.array(expected.confidences)).all()


@pytest.mark.parametrize("num_kept", [1, 2, 4])
def test_rows_that_were_taken_back_leave_nothing(llm, num_kept):
    """Behind a verify of which some rows stay it drafts like one that never saw the others."""
    session = Following(llm)
    session.prefill(PROMPT[:20], PROMPT[20])
    window, _ = session.verify([*PROMPT[21 : 20 + num_kept], 3, 4, 5][:4])
    session.keep(window, num_kept, PROMPT[20 + num_kept])
    assert session.draft(5) == behind(llm, PROMPT[: 21 + num_kept])
    llm.target.close_sequence(session.sequence)


def test_a_step_that_was_broken_off_behind_its_commit_leaves_nothing(llm):
    session = Following(llm)
    session.prefill(PROMPT[:20], PROMPT[20])
    expected = session.draft(5)
    before = session.sequence.cursor
    window, _ = session.verify(PROMPT[1:40])
    session.keep(window, 40, 7)
    session.sequence.cursor = before
    session.sequence.history[20] = PROMPT[20]
    assert session.draft(5) == expected
    window, _ = session.verify(PROMPT[21:24])
    session.keep(window, 4, PROMPT[24])
    assert session.draft(5) == behind(llm, PROMPT[:25])
    llm.target.close_sequence(session.sequence)


def test_sequences_in_one_call_draft_as_alone(llm):
    """Also where they draft different numbers, and one ends before the others by its gate."""
    sessions, lengths = [Following(llm) for _ in range(3)], (20, 33, 1)
    for session, length in zip(sessions, lengths, strict=True):
        session.prefill(PROMPT[:length], PROMPT[length])
    alone = [behind(llm, PROMPT[: length + 1]) for length in lengths]
    gate = sorted(alone[1].confidences)[0]
    contexts = [
        DraftContext(session.sequence, num_draft, pmin)
        for session, num_draft, pmin in zip(
            sessions, (5, 5, 2), (0.0, np.nextafter(gate, 1), 0.0), strict=True
        )
    ]
    drafts = sessions[0].speculator.propose(contexts)
    cut = alone[1].confidences.index(gate)
    for draft, expected, length in zip(drafts, alone, (5, cut, 2), strict=True):
        assert draft.tokens == expected.tokens[:length]
        assert draft.confidences == expected.confidences[:length]
    for session in sessions:
        llm.target.close_sequence(session.sequence)


def test_confidences_are_shares_among_the_ten_likeliest(llm):
    session = Following(llm)
    session.prefill(PROMPT[:20], PROMPT[20])
    draft = session.draft(1)
    logits = np.sort(session.speculator._head._passes._logits[0].astype(np.float64))[::-1][:10]
    share = 1 / np.exp(logits - logits[0]).sum()
    assert draft.confidences == pytest.approx([share], rel=1e-6)  # float32, as the ops have it
    assert session.draft(1, np.nextafter(draft.confidences[0], 1)).tokens == []
    llm.target.close_sequence(session.sequence)


def test_a_session_goes_back_and_on_with_its_head(llm):
    """A prompt that shares a prefix with what the session holds; far back the ring has lost it."""
    spec = SpecOptions(type="draft-head", num_draft=3, pmin=0.0, governor=False)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with llm.session() as session:
        for prompt in (PROMPT[:30], PROMPT[:40], (PROMPT * 7)[:300], PROMPT[:40], PROMPT[:2]):
            got = session.generate(prompt, params, spec=spec)
            expected = llm.generate(prompt, params, spec=spec)
            assert got.token_ids == expected.token_ids
            assert got.stats.num_accepted_counts == expected.stats.num_accepted_counts
            assert got.stats.num_drafted


@pytest.mark.parametrize("pieces", [1, 9])
def test_a_turn_that_was_left_is_gone_on_with(llm, pieces, tmp_path):
    """Nothing is prefilled anew: a parked head has heard of all rows, in a saved session too."""
    parked = SpecOptions(type="draft-head", num_draft=3, governor=GovernorOptions(first_credit=0))
    with llm.session() as session:
        stream = session.stream(PROMPT[:30], SamplingParams(max_tokens=40), spec=parked)
        for _ in range(pieces):
            next(stream)
        stream.close()
        consumed = session.cached_tokens
        session.save(tmp_path / "saved.npz")
        turn = [*PROMPT[:30], *stream.completion.token_ids, 5, 6]
        got = session.generate(turn, SamplingParams(max_tokens=5), spec=parked)
        assert got.stats.cached_tokens == consumed == len(turn) - 3
    with type(session).load(llm, tmp_path / "saved.npz") as session:
        again = session.generate(turn, SamplingParams(max_tokens=5), spec=parked)
        assert again.stats.cached_tokens == consumed and again.token_ids == got.token_ids


def test_a_closed_session_tells_its_head_nothing(llm, monkeypatch):
    """Its slot may be another sequence's by then."""
    parked = SpecOptions(type="draft-head", num_draft=3, governor=GovernorOptions(first_credit=0))
    session = llm.session()
    stream = session.stream(PROMPT[:30], SamplingParams(max_tokens=40), spec=parked)
    for _ in range(5):
        next(stream)
    session.close()
    told = []
    monkeypatch.setattr(NextNHead, "catch_up", lambda head, rows: told.append(rows))
    with pytest.raises(OptionError, match="session is closed"):
        session.generate(PROMPT[:30])
    assert not told


@pytest.mark.parametrize("length", [2, TAKEN_IN // 2, TAKEN_IN + 3, RING + 50])
def test_a_saved_session_drafts_on(llm, length, tmp_path):
    """Without a prefill of what it has consumed; a head that finds nothing hears of all anew."""
    spec = SpecOptions(type="draft-head", num_draft=3, pmin=0.0, governor=False)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompt, path = (PROMPT * 7)[:length], tmp_path / "saved.npz"
    with llm.session() as session:
        first = session.generate(prompt, params, spec=spec)
        prompt += [*first.token_ids, 5]
        session.save(path)
        expected = session.generate(prompt, params, spec=spec)
    with load_golden("qwen35-accept").session() as other:
        session = type(other).load(llm, path)
    got = session.generate(prompt, params, spec=spec)
    assert got.token_ids == expected.token_ids
    assert got.stats.cached_tokens == expected.stats.cached_tokens == len(prompt) - 2
    assert got.stats.num_accepted_counts == expected.stats.num_accepted_counts
    plain = load_golden("qwen35-accept")
    with type(session).load(plain, path) as session:
        got = session.generate(prompt, params, spec=spec)
        assert got.token_ids == expected.token_ids and got.stats.num_drafted


@pytest.mark.parametrize(
    "change",
    [
        {"k": np.zeros((5, 2, 32), np.float32)},
        {"v": np.zeros((0, 2, 32), np.float32)},
        {"k": np.zeros((30, 2, 31), np.float32), "v": np.zeros((30, 2, 32), np.float32)},
        {"hidden": np.zeros((3, 96))},
        {"hidden": np.zeros((400, 96), np.float32)},
    ],
    ids=lambda change: str({name: array.shape for name, array in change.items()}),
)
def test_a_saved_head_of_another_shape_is_refused(llm, change):
    session = Following(llm)
    session.prefill(PROMPT[:30], PROMPT[30])
    session.draft(2)
    head = session.speculator._head
    state = head.export_state(session.sequence)
    head.import_state(session.sequence, state)
    with pytest.raises(MismatchError, match="saved draft head"):
        head.import_state(session.sequence, state | change)
    llm.target.close_sequence(session.sequence)


def test_buffers_may_hold_anything(llm):
    """All that the head writes is garbage first, cache and ring included."""
    expected = behind(llm, PROMPT[:30])
    session = Following(llm)
    head = session.speculator._head
    passes = head._passes
    ring = llm.target.tap_rows.ring(FINAL_HIDDEN)
    arrays = [ring, passes._own_hidden, passes._drafted.view(np.float32)]
    cache = head._passes.cache
    for array in [*arrays, cache.k, cache.v]:
        array[...] = np.nan
    session.prefill(PROMPT[:29], PROMPT[29])
    assert session.draft(5) == expected
    llm.target.close_sequence(session.sequence)
