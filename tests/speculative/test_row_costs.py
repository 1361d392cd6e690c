"""What rows cost is measured behind the first token, within a budget, and nothing stays of it."""

import pytest

import specrt
from specrt import SamplingParams, SpecOptions
from specrt.options import GovernorOptions
from specrt.speculative import runtime as runtime_module
from specrt.speculative.governor import CostCurve, Governor
from specrt.speculative.row_costs import (
    BUDGET,
    ROUNDS,
    draft_seconds,
    measured_sizes,
    row_seconds,
)
from specrt.state.messages import FINAL_HIDDEN, Draft
from tests.models_on_disk import golden_arrays, golden_path, load_golden
from tests.running import same
from tests.speculative.toys import CONTEXT, Scripted, request_of

PARAMS = SamplingParams(max_tokens=30, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=30, temperature=1.0, seed=3, logprobs=1, ignore_eos=True)


class Clocked:
    """A target whose verifies take scripted seconds, and a clock that knows them.

    Args:
        seconds: of T rows.
        first: what the first call of each T takes more.
    """

    context, max_draw_ids = CONTEXT, None

    def __init__(self, seconds, first: float = 0.0):
        self.seconds, self.first = seconds, first
        self.now, self.calls, self.prepared = 0.0, [], []

    def clock(self) -> float:
        return self.now

    def prepare(self, windows, *, taps, logits):
        self.now += 1.0  # what is made before a call is not its time
        self.prepared.append((len(windows[0].tokens), taps, logits))

    def verify(self, windows, *, taps, logits):
        (window,) = windows
        rows = len(window.tokens)
        assert window.start_pos + rows <= self.context
        self.now += self.seconds(rows) + self.first * (rows not in self.calls)
        self.calls.append(rows)
        assert self.prepared[-1] == (rows, taps, logits)


def measure(target: Clocked, max_draft: int = 8, at: int = 3, **request):
    asked = request_of(0, Scripted("head", {}), **request)
    asked.sequence.cursor = asked.sequence.cursor._replace(num_tokens=at, cache_len=at - 1)
    asked.max_draft = max_draft
    before = asked.sequence.cursor
    found = row_seconds(target, asked, target.clock)
    assert asked.sequence.cursor == before
    return found


def flat(rows: int) -> float:
    return 1e-3 * (1 + 0.1 * (rows - 1))


def test_the_first_call_of_a_row_count_is_forgiven():
    target = Clocked(flat, first=0.5)
    found = measure(target)
    assert found == {}  # plain itself was slow: on such a device nothing else is tried
    target.first = 0.5
    found = measure(target)
    assert found == pytest.approx({size: flat(size + 1) for size in (0, 8, 7, 3, 2, 1)})
    assert target.calls == [1, 1, *[1, 9, 8, 4, 2, 3] * ROUNDS]


def test_it_asks_for_what_steps_ask_for():
    target = Clocked(flat)
    measure(target)
    assert {(taps, logits) for _, taps, logits in target.prepared} == {
        (frozenset({FINAL_HIDDEN}), False)
    }


def test_the_budget_ends_it():
    """Rows that cost far more than a plain one: what was timed counts, and no more is."""
    target = Clocked(lambda rows: 2e-3 * rows)
    found = measure(target, 16)
    timed = sum(found.values())
    assert found == pytest.approx({size: 2e-3 * (size + 1) for size in found})
    assert {0, 16} <= set(found) < set(measured_sizes(16))
    assert timed < BUDGET + 2e-3 * 17


@pytest.mark.parametrize("plain", [BUDGET / 2, 0.2, 60.0])
def test_a_slow_target_is_asked_once(plain):
    target = Clocked(lambda rows: plain * rows)
    assert measure(target) == {}
    assert target.calls == [1]


@pytest.mark.parametrize(("at", "most"), [(CONTEXT, 0), (CONTEXT - 1, 1), (CONTEXT - 4, 4)])
def test_the_end_of_the_context(at, most):
    found = measure(Clocked(flat), at=at)
    assert max(found, default=0) == most


def test_the_least_call_counts():
    later = [*[1.0, 1.5, 1.2, 1.0, 2.0, 1.0], *[1.3, 1.0, 1.0, 1.6, 1.0, 1.2]]
    noise = iter([1.4, *[2.0] * 6, *later])
    found = measure(Clocked(lambda rows: flat(rows) * next(noise)))
    assert found == {}  # a first plain call of 2 and later ones of 1
    noise = iter([1.4, 1.1, *[2.0] * 5, *later])
    found = measure(Clocked(lambda rows: flat(rows) * next(noise)))
    assert found == pytest.approx({size: flat(size + 1) for size in (0, 8, 7, 3, 2, 1)})


class ClockedDrafter(Scripted):
    """Drafts that take scripted seconds by their tokens, the first of each length more."""

    def __init__(self, seconds, first: float = 0.0, most: int = 64):
        super().__init__("head", {})
        self.seconds, self.first, self.most, self.now, self.asked = seconds, first, most, 0.0, []

    def clock(self) -> float:
        return self.now

    def propose(self, contexts):
        ((_, num_draft, pmin),) = contexts
        assert pmin == 0
        self.now += self.seconds(num_draft) + self.first * (num_draft not in self.asked)
        self.asked.append(num_draft)
        return [Draft([7] * min(num_draft, self.most), [], "head")]


def measure_drafts(drafter, max_draft: int = 8, at: int = 3):
    asked = request_of(0, drafter)
    asked.sequence.cursor = asked.sequence.cursor._replace(num_tokens=at, cache_len=at - 1)
    asked.max_draft = max_draft
    return draft_seconds(drafter, asked, drafter.clock)


def test_drafts_are_measured_by_their_tokens_and_first_calls_forgiven():
    drafter = ClockedDrafter(lambda k: 1e-4 * (1 + k), first=5e-3)
    found = measure_drafts(drafter, max_draft=4)
    expected = {0: 2e-4, 1: 2e-4, 2: 3e-4, 4: 5e-4}
    assert found == pytest.approx(expected)
    assert measure_drafts(ClockedDrafter(lambda k: 1e-4, most=0)) == pytest.approx({0: 1e-4})
    assert sorted(measure_drafts(ClockedDrafter(lambda k: 1e-4), max_draft=1)) == [0, 1]


def test_slow_drafts_are_measured_for_one_length_alone():
    drafter = ClockedDrafter(lambda k: BUDGET, first=100.0)
    assert measure_drafts(drafter) == pytest.approx({0: BUDGET, 1: BUDGET})
    assert drafter.asked == [1, 1]


def test_no_draft_is_measured_behind_the_context():
    for at, most in ((CONTEXT - 2, 2), (CONTEXT - 1, 1), (CONTEXT, 0)):
        drafter = ClockedDrafter(lambda k: 1e-4)
        found = measure_drafts(drafter, at=at)
        assert max(drafter.asked, default=0) == most == max(found, default=0)


def test_sizes_are_ends_first_and_both_sides_of_each_step():
    assert measured_sizes(8) == [0, 8, 7, 3, 1, 2]
    assert measured_sizes(16) == [0, 16, 7, 8, 3, 1, 2, 15]
    assert measured_sizes(2) == [0, 2, 1]
    assert measured_sizes(64)[-2:] == [32, 63]
    assert measured_sizes(0) == [0]


def test_a_seed_is_the_curve_until_real_calls_say_otherwise():
    curve = CostCurve(0.1)
    curve.add(3, 9.0)
    curve.seed({0: 1.0, 8: 2.0, 7: 1.5})
    assert [curve.at(size) for size in (0, 7, 8, 10)] == pytest.approx([1, 1.5, 2, 2.25])
    assert curve.at(3) == pytest.approx(1 + 3 * 0.5 / 7)  # what was before is forgotten
    curve.add(8, 2.4)
    assert curve.at(8) / curve.at(0) == pytest.approx(2.0 + (2.4 / 1.02 - 2.0) / 4)
    for size in (0, 8):
        for _ in range(100):
            curve.add(size, {0: 1.0, 8: 3.0}[size])
    assert curve.at(8) == pytest.approx(3, rel=0.05)


def test_a_seed_without_a_plain_call_is_refused():
    curve = CostCurve(0.1)
    for sizes in ({1: 1.0}, {0: 1.0, 65: 2.0}):
        with pytest.raises(ValueError, match="expected 0"):
            curve.seed(sizes)


@pytest.mark.parametrize("factor", [0.25, 0.4, 2.5, 4.0])
def test_it_is_measured_anew_where_calls_have_become_slower_or_faster(factor):
    curve = CostCurve(0.1)
    assert not curve.wants_seed
    curve.add(0, 1.0)
    assert curve.wants_seed
    curve.seed({0: 1.0, 8: 2.0})
    for _ in range(60):
        assert not curve.wants_seed  # nothing has changed
        curve.add(0, 1.0)
    for _ in range(20):
        curve.add(0, factor)
    assert curve.wants_seed
    curve.seed({})
    for _ in range(6):
        assert not curve.wants_seed  # measuring takes its share of the time only
        curve.add(0, 1.0)


@pytest.mark.parametrize("factor", [0.1, 0.5, 3.0])
def test_a_machine_that_changes_moves_all_sizes_at_once(factor):
    """Though nothing but drafts of 8 is seen, the others' costs follow."""
    curve = CostCurve(0.1)
    curve.seed({0: 1.0, 3: 1.3, 8: 2.0})
    for seconds in [2.0] * 20 + [2.0 * factor] * 8:
        curve.add(8, seconds)
    assert curve.at(0) == pytest.approx(factor, rel=0.2)
    assert curve.at(3) / curve.at(0) == pytest.approx(1.3, rel=0.1)
    assert curve.at(8) / curve.at(0) == pytest.approx(2.0, rel=0.2)


@pytest.fixture
def measured(monkeypatch):
    """Emitted ids at each measurement of the runtime's."""
    at = []

    def noting(target, request):
        at.append(request.sequence.num_generated)
        return row_seconds(target, request)

    monkeypatch.setattr(runtime_module, "row_seconds", noting)
    return at


@pytest.mark.parametrize("params", [PARAMS, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35"])
def test_the_runtime_measures_behind_the_first_token_and_changes_nothing(name, params, measured):
    llm = load_golden(name, kv_type="f16", max_sequences=1)
    ids = golden_arrays(name)["tokens"].tolist()[:30]
    plain = llm.generate(ids, params, spec="none")
    assert measured == []
    for _ in range(2):
        same(llm.generate(ids, params, spec="ngram"), plain)
    assert measured == [1]
    same(llm.generate(ids, params, spec=SpecOptions("ngram", governor=False)), plain)
    assert measured == [1]


@pytest.mark.parametrize(
    ("spec", "times"),
    [("auto", [1]), ("none", []), (SpecOptions("ngram", governor=False), [])],
    ids=["auto", "none", "fixed"],
)
def test_loading_measures_before_the_first_request(spec, times, measured):
    llm = specrt.load(golden_path("llama"), spec=spec, verbose=False)
    assert measured == times
    llm.generate(golden_arrays("llama")["tokens"].tolist()[:30], PARAMS)
    assert measured == times


def test_rows_are_measured_once_for_all_who_draft(measured):
    llm = specrt.load(golden_path("llama"), verbose=False)
    for spec in ("ngram", SpecOptions("ngram", governor=GovernorOptions(margin=0.1))):
        llm.generate(golden_arrays("llama")["tokens"].tolist()[:30], PARAMS, spec=spec)
    assert measured == [1]


@pytest.mark.parametrize("context", [1, 2, 3])
def test_a_context_without_room_for_that_loads_too(context):
    llm = specrt.load(golden_path("llama"), context=context, verbose=False)
    assert llm.context == context


def test_a_batch_is_measured_once_for_all(measured):
    llm = load_golden("llama", kv_type="f16", max_sequences=2)
    ids = golden_arrays("llama")["tokens"].tolist()[:30]
    prompts = [ids, ids[:9]]
    plain = llm.generate(prompts, PARAMS, spec="none")
    got = llm.generate(prompts, PARAMS, spec="ngram")
    for one, expected in zip(got, plain, strict=True):
        same(one, expected)
    assert measured == [1]


def test_an_interrupted_measurement_leaves_the_sequence_as_it_was(monkeypatch):
    llm = load_golden("llama", kv_type="f16")
    ids = golden_arrays("llama")["tokens"].tolist()[:30]
    plain = llm.generate(ids, PARAMS, spec="none")
    sequence = llm.target.open_sequence()
    request = llm.generator.request(sequence, ids, PARAMS, "ngram")
    llm.generator.runtime.prefill(request)
    llm.generator.runtime.step([request])
    before, verify = sequence.cursor, llm.target.verify

    def interrupted(windows, **options):
        verify(windows, **options)
        if len(windows[0].tokens) > 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(llm.target, "verify", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generator.runtime.step([request])
    monkeypatch.undo()
    assert sequence.cursor == before
    while sequence.cursor.finish_reason is None:
        llm.generator.runtime.step([request])
    assert sequence.tokens[len(ids) :] == plain.token_ids


def test_what_was_measured_is_where_drafting_begins():
    """The policy knows the step behind 8 rows without having taken it."""
    governor = Governor()
    governor.rows.add(0, 1.0)
    governor.rows.seed({0: 1.0, 8: 1.9, 7: 1.5, 3: 1.1, 1: 1.0})
    policy = governor.policy()
    asked = []
    for _ in range(8):
        asked.append(policy.num_draft("right", 8))
        policy.proposed("right", asked[-1], 0.0)
        governor.rows.add(asked[-1], [1, 1, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.9][asked[-1]])
        policy.observe(asked[-1], asked[-1])
    assert asked[-1] == 7
    assert 8 not in asked
