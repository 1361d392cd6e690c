"""Block drafters against an independent engine: encoder, blocks, candidates, walks, sessions."""

import numpy as np
import pytest

from specrt.host import HostOps
from specrt.kernels import KernelOps
from specrt.reference import ReferenceOps
from specrt.state.messages import residual_entering
from tests.accuracy import assert_golden_float, assert_golden_quantised
from tests.following import Following
from tests.models_on_disk import DRAFTER_GOLDENS, golden_arrays, load_golden

DEVICES = ["cpu", "emulator", "reference"]
FLOATS = [name for name in DRAFTER_GOLDENS if not name.endswith("quant")]


class Golden:
    """A drafter that follows the engine's sequence, block by block."""

    def __init__(self, name, device):
        self.arrays = golden_arrays(name)
        llm = load_golden(DRAFTER_GOLDENS[name], drafter=name, device=device)
        self.session = Following(llm, "block")
        self.head = self.session.speculator.head
        self.to_host = self.session.target.ops.to_host

    def block(self, number):
        """What the block with that number drafts, behind the rows that the engine injected."""
        prefix, tokens = f"block{number}", self.arrays["tokens"].tolist()
        end, start = (
            int(self.arrays[f"{prefix}_n_injected"]),
            self.session.sequence.cursor.cache_len,
        )
        self.session.prefill(tokens[start:end], int(self.arrays[f"{prefix}_ids"][0]))
        return self.session.draft(self.head.num_drafting)

    def expected(self, number, key):
        """The engine's, of the rows that draft."""
        return self.arrays[f"block{number}_{key}"][-self.head.num_drafting :]

    def logits(self):
        """Of the last draft's rows."""
        return self.to_host(self.head.passes.logits)[: self.head.num_drafting]

    def expected_logits(self, number):
        """Of a reduced vocabulary the ids that it has; the others are not to be had."""
        logits, names = self.expected(number, "logits"), self.head.weights.names
        if names is None:
            return logits
        others = np.delete(logits, names, axis=1)
        assert np.isneginf(others).all()
        return logits[:, names]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLOATS)
def test_blocks(name, device):
    golden = Golden(name, device)
    for number in range(3):
        draft = golden.block(number)
        assert draft.tokens == golden.expected(number, "draft").tolist()
        assert_golden_float(golden.logits(), golden.expected_logits(number))
        for key in ("conf", "pick_prob"):
            if f"block{number}_{key}" in golden.arrays:
                assert_golden_float(np.array(draft.confidences), golden.expected(number, key))


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", DRAFTER_GOLDENS)
def test_a_shorter_draft_is_the_beginning_of_the_whole_one(name, device):
    """What rows nobody asked for would have drafted is left out, and the block is the same."""
    golden = Golden(name, device)
    whole = golden.block(0)
    assert len(whole.tokens) == golden.head.num_drafting
    for num_draft in range(1, len(whole.tokens)):
        draft = golden.session.draft(num_draft)
        assert draft.tokens == whole.tokens[:num_draft]
        assert draft.confidences == whole.confidences[:num_draft]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLOATS)
def test_encoded_rows(name, device):
    """What keys and values are of, for the rows that the engine encoded."""
    golden = Golden(name, device)
    session, expected = golden.session, golden.arrays["enc_out"]
    tokens, seen = golden.arrays["tokens"].tolist(), 0
    sequence, taps = session.sequence, session.speculator.taps
    sequence.history[: len(tokens)] = tokens
    for kept in session.target.prefill(sequence, tokens[: len(expected)], taps):
        session.speculator.commit([kept])
        golden.head.passes.inject(sequence, kept.start_pos, len(kept.tokens))
        rows = golden.to_host(golden.head.passes.encoded)[: len(kept.tokens)]
        assert_golden_float(rows, expected[kept.start_pos :][: len(rows)])
        layers = golden.head.weights.keys.target_layers
        features = [golden.to_host(kept.taps[residual_entering(layer)]) for layer in layers]
        joined = np.concatenate(features, axis=1)
        assert_golden_float(joined, golden.arrays["features"][kept.start_pos :][: len(rows)])
        seen += len(rows)
    assert seen == len(expected)


def check_lattice(golden, number):
    picks, n = golden.head.weights.picks, golden.head.num_drafting
    ids = picks.candidates.read(0, n, None)
    assert ids.tolist() == golden.expected(number, "cand").tolist()
    k = ids.shape[1]
    scores, expected = golden.to_host(picks.scores(1, n))[0], golden.expected(number, "scores")
    assert_golden_float(scores[:k], expected[0, 0])
    assert_golden_float(scores[k:].reshape(n - 1, k, k), expected[1:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["dflash2-qwen35", "dflash2-muse"])
def test_candidates_and_scores(name, device):
    golden = Golden(name, device)
    for number in range(3):
        golden.block(number)
        check_lattice(golden, number)


def test_without_the_targets_transform_of_logits_walks_are_others(monkeypatch):
    """Its scale and its cap: a candidate's logit weighs more or less beside its pair's score."""
    golden, same = Golden("dflash2-muse", "cpu"), []
    target, keys = golden.session.target, golden.head.weights.keys
    assert (keys.logit_scale, keys.softcap) == (target.trunk.logit_scale, target.trunk.softcap)
    head = type(target.ops).head
    bare = {"softcap": 0.0, "scale": 1.0}
    monkeypatch.setattr(
        HostOps, "head", lambda ops, *args, **given: head(ops, *args, **given | bare)
    )
    without = Golden("dflash2-muse", "cpu")
    for number in range(3):
        expected = golden.expected(number, "draft").tolist()
        assert golden.block(number).tokens == expected
        same.append(without.block(number).tokens == expected)
    assert not all(same)


def exactly(weight):
    return lambda ops, tensor, role="int8", bias=None: weight(ops, tensor, "int8x2", bias)


@pytest.mark.parametrize("device", DEVICES)
def test_a_quantised_file_of_exact_rows_drafts_the_same(device, monkeypatch):
    """Of candidates that differ by less than logits may, the kernels have two in another order."""
    for ops in (ReferenceOps, HostOps, KernelOps):
        monkeypatch.setattr(ops, "weight", exactly(ops.weight))
    golden = Golden("dflash2-qwen35-quant", device)
    for number in range(3):
        draft = golden.block(number)
        assert draft.tokens == golden.expected(number, "draft").tolist()
        candidates = golden.head.weights.picks.candidates
        found = [
            candidates.read(0, golden.head.num_drafting, None),
            golden.expected(number, "cand"),
        ]
        if device == "emulator":
            logits = golden.expected(number, "logits")
            assert_golden_float(*(np.take_along_axis(logits, ids.astype(int), 1) for ids in found))
        else:
            assert found[0].tolist() == found[1].tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_a_quantised_file_is_near(device):
    golden = Golden("dflash2-qwen35-quant", device)
    for number in range(3):
        golden.block(number)
        assert_golden_quantised(golden.logits(), golden.expected(number, "logits"))


@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_session_round_by_round(device):
    """DSpark, whose drafts are partly accepted."""
    golden = Golden("dspark-accept", device)
    session, arrays = golden.session, golden.arrays
    prompt = arrays["tokens"][: arrays["trace_prompt_len"]].tolist()
    rounds = [arrays[f"trace_{key}"].tolist() for key in ("id_last", "pos0", "draft")]
    session.prefill(prompt, rounds[0][0])
    emitted = []
    trace = [arrays[f"trace_{key}"].tolist() for key in ("n_accepted", "next")]
    rows = zip(*rounds, *trace, strict=True)
    for number, (last, position, draft, accepted, following) in enumerate(rows):
        sequence = session.sequence
        assert (sequence.last_token, sequence.cursor.cache_len) == (last, position)
        got = session.draft(len(draft))
        assert got.tokens == draft
        assert_golden_float(np.array(got.confidences), arrays["trace_conf"][number])
        assert_golden_float(golden.logits(), arrays["trace_draft_logits"][number])
        window, ids = session.verify(draft)
        assert ids[:accepted] == draft[:accepted] and ids[accepted] == following
        session.keep(window, accepted + 1, following)
        emitted += [*draft[:accepted], following]
    assert [rounds[0][0], *emitted] == arrays["trace_output"].tolist()
