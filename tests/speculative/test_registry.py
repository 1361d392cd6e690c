"""Names become speculators; a Medusa-like toy is added from here alone."""

import numpy as np
import pytest

import specrt
from specrt.errors import OptionError
from specrt.options import SpecOptions
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.registry import Registry, SpeculatorFactory, default_registry
from specrt.state.messages import (
    FINAL_HIDDEN,
    Declined,
    Draft,
    DraftContext,
    Kept,
    residual_entering,
)
from specrt.state.sequence import Cursor, Sequence
from tests.models_on_disk import golden_path
from tests.running import same


class Target:
    """As much of a target as a factory looks at."""

    taps = frozenset({FINAL_HIDDEN})


class Medusa:
    """One linear guess per offset from the last kept row: here offset i guesses |h[0]| + i."""

    name = "medusa"
    max_draft = 3
    default_pmin = 0.35
    taps = frozenset({FINAL_HIDDEN})
    can_arm_after_prefix_reuse = True
    wants_prompt = False

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        return [self._guess(c.sequence.drafter_states.get(self), c.num_draft) for c in contexts]

    def commit(self, kept: list[Kept]) -> None:
        for rows in kept:
            last = np.ravel(rows.taps[FINAL_HIDDEN][-1])
            rows.sequence.drafter_states[self] = int(abs(last[0]))

    def reset(self, sequence: Sequence) -> None:
        sequence.drafter_states.pop(self, None)

    def heard(self, sequence: Sequence) -> int:
        return sequence.cursor.cache_len if self in sequence.drafter_states else 0

    def _guess(self, row: int | None, num_draft: int) -> Draft:
        tokens = [] if row is None else [row + i for i in range(num_draft)]
        return Draft(tokens, [0.5] * len(tokens), self.name)


def create_medusa(target, draft_head, options):
    return Medusa()


def create_choosy(target, draft_head, options):
    return draft_head if draft_head == "mine" else Declined("choosy", "not my head")


@pytest.fixture
def registry():
    made = Registry()
    made.register(SpeculatorFactory("ngram", False, lambda *_: NgramSpeculator()))
    made.register(SpeculatorFactory("medusa", False, create_medusa))
    return made


def resolve(registry, spec, draft_head=None, target=Target):
    return registry.resolve(SpecOptions.of(spec), target(), lambda: draft_head)


def names(registry, spec, draft_head=None):
    return [speculator.name for speculator in resolve(registry, spec, draft_head)[0]]


def test_a_toy_from_a_test_file_proposes_from_the_rows_it_heard(registry):
    (ngram, speculator), declined = resolve(registry, "ngram,medusa")
    sequence = Sequence(0, 20)
    sequence.history[:2] = [5, 6]
    sequence.cursor = Cursor(num_tokens=2, cache_len=1)
    contexts = [DraftContext(sequence, 2)]
    assert speculator.propose(contexts)[0].tokens == []
    speculator.commit([Kept(sequence, 0, [5], 6, {FINAL_HIDDEN: [40]})])
    (draft,) = speculator.propose(contexts)
    assert (draft.tokens, draft.source, declined) == ([40, 41], "medusa", [])
    assert ngram.name == "ngram"
    speculator.reset(sequence)
    assert speculator.propose(contexts)[0].tokens == []


def test_the_toy_drafts_for_a_model_that_is_loaded_with_its_registry(registry):
    spec = SpecOptions(type="medusa", governor=False)  # it costs more than the model does
    llm = specrt.load(golden_path("llama"), spec=spec, registry=registry, verbose=False)
    params = specrt.SamplingParams(max_tokens=40, ignore_eos=True, logprobs=1)
    got = llm.generate([1, 2, 3, 4], params)
    assert got.stats.speculator == "medusa" and got.stats.num_drafted > 0
    same(got, llm.generate([1, 2, 3, 4], params, spec="none"))


def test_what_a_factory_declines_is_told_and_the_others_serve(registry):
    registry.register(SpeculatorFactory("never", False, lambda *_: Declined("never", "no")))
    (speculator,), declined = resolve(registry, "never,ngram")
    assert isinstance(speculator, NgramSpeculator)
    assert declined == [Declined("never", "no")]
    assert resolve(registry, "never") == ((), declined)


@pytest.mark.parametrize(
    ("taps", "reason"),
    [
        ({}, "it needs the tap final_hidden, and the target has none"),
        (
            map(residual_entering, (2, 0, 1)),
            "it needs the tap final_hidden, and the target has residual_entering(0 .. 2)",
        ),
        (
            map(residual_entering, (3, 5)),
            "it needs the tap final_hidden, and the target has residual_entering(3, 5)",
        ),
    ],
)
def test_who_needs_taps_that_the_target_has_not_is_declined(registry, taps, reason):
    class Blind(Target):
        pass

    Blind.taps = frozenset(taps)
    (speculator,), declined = resolve(registry, "medusa,ngram", target=Blind)
    assert isinstance(speculator, NgramSpeculator)
    assert declined == [Declined("medusa", reason)]


def test_auto_and_none(registry):
    assert names(registry, "auto") == ["ngram"]
    assert resolve(registry, "none") == ((), [])
    assert resolve(registry, None) == ((), [])


def test_options_reach_the_ngram_orders():
    (speculator,), _ = resolve(default_registry(), SpecOptions("ngram", ngram_min=3, ngram_max=5))
    assert (speculator.min_order, speculator.max_order) == (3, 5)


def test_a_list_is_a_chain_in_its_order_and_doubles_count_once(registry):
    assert names(registry, "medusa, ngram,medusa") == ["medusa", "ngram"]


@pytest.mark.parametrize("spec", ["eagle9", "ngram,eagle9", "auto,ngram", "ngram,none"])
def test_an_unknown_name_lists_the_known_ones(registry, spec):
    with pytest.raises(OptionError, match="ngram, medusa, draft-head"):
        resolve(registry, spec)


def test_auto_in_a_registry_without_ngram_is_told():
    with pytest.raises(OptionError, match="'ngram': expected"):
        resolve(Registry(), "auto")


def test_draft_head_without_one_is_declined_with_the_reason(registry):
    speculators, declined = resolve(registry, "draft-head")
    assert speculators == ()
    assert declined[0].name == "draft-head" and "no draft head is attached" in declined[0].reason
    registry.register(SpeculatorFactory("choosy", True, create_choosy))
    assert resolve(registry, "choosy")[1][0].name == "choosy"
    assert names(registry, "ngram,draft-head") == ["ngram"]


def test_auto_chains_the_algorithm_that_takes_the_attached_head(registry):
    registry.register(SpeculatorFactory("choosy", True, create_choosy))
    _, declined = resolve(registry, "auto", "other")
    assert names(registry, "auto", "other") == ["ngram"]
    assert declined == [Declined("draft-head", "choosy: not my head")]
    registry.register(
        SpeculatorFactory("taker", True, lambda target, head, options: Medusa()),
    )
    assert names(registry, "auto", "other") == ["ngram", "medusa"]
    assert resolve(registry, "auto", "other")[1] == []


class Block(Medusa):
    name = "block"


def heads(registry, *names):
    """Factories that want a head of their own name; the list of heads that they were asked with."""
    asked = []

    def create(name, head):
        asked.append((name, head))
        return Block() if head == name else Declined(name, f"it takes no {head}")

    for name in names:
        registry.register(SpeculatorFactory(name, True, lambda t, h, o, name=name: create(name, h)))
    return asked


def test_an_algorithm_and_the_alias_for_it_are_one(registry):
    asked = heads(registry, "block")
    for spec in ("block,draft-head", "draft-head,block", "draft-head,ngram,block"):
        asked.clear()
        speculators, declined = resolve(registry, spec, "block")
        assert [s.name for s in speculators] == (
            ["block", "ngram"] if "ngram" in spec else ["block"]
        )
        assert asked == [("block", "block")] and not declined


def test_draft_head_is_an_algorithm_where_one_has_that_name(registry):
    heads(registry, "draft-head", "block")
    assert registry.names == ("auto", "none", "ngram", "medusa", "draft-head", "block")
    assert names(registry, "draft-head,ngram", "draft-head") == ["block", "ngram"]
    speculators, declined = resolve(registry, "draft-head", "block")
    assert (speculators, declined) == ((), [Declined("draft-head", "it takes no block")])
    assert names(registry, "auto", "block") == ["ngram", "block"]
    assert resolve(registry, "auto", "block")[1] == []
    assert names(registry, "auto", "draft-head") == ["ngram", "block"]
    reason = "draft-head: it takes no other; block: it takes no other"
    assert resolve(registry, "auto", "other")[1] == [Declined("draft-head", reason)]


@pytest.mark.parametrize("name", ["ngram", "auto", "none", "medusa", "a,b"])
def test_a_taken_name_cannot_be_registered(registry, name):
    with pytest.raises(OptionError, match=r"speculator name"):
        registry.register(SpeculatorFactory(name, False, create_medusa))


def test_registries_share_nothing(registry):
    assert "medusa" not in default_registry().names
