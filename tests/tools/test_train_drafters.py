"""Block drafters at toy size: what they compute, learn and write; only where torch is installed."""

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specrt  # noqa: E402 (what stands above skips all of it)
from specrt.assets import embedded_drafter, embedded_model  # noqa: E402
from tests.models_on_disk import golden_arrays  # noqa: E402
from tests.tools.drafter_files import OF_A_TRAINING, OTHER_VALUES, TENSORS, VALUES  # noqa: E402
from tests.tools.plain_drafter import PlainDrafter  # noqa: E402
from tests.tools.toy_training import TAPS, TOY, scattered, small_corpus  # noqa: E402
from tools.train_tiny import draft, export, texts, train  # noqa: E402
from tools.train_tiny.__main__ import parser  # noqa: E402
from tools.train_tiny.draft import KINDS  # noqa: E402
from tools.train_tiny.gguf_file import read_tensors  # noqa: E402
from tools.train_tiny.model import Trunk  # noqa: E402
from tools.train_tiny.optim import shares_done  # noqa: E402

torch.set_num_threads(1)  # more of them wait for each other on a busy machine
SHAPES = {
    "vocab_size": TOY.vocab_size,
    "width": TOY.width,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 16,
    "ffn": 96,
    "block_size": 6,
    "target_layers": TAPS,
    "context": TOY.context,
}
MORE = {
    "dflash": {},
    "dflash2": {"window": 9, "conv_taps": 3, "rank": 8, "top_k": 5},
    "dspark": {"rank": 8},
}
STEPS = 60


def config(kind):
    return KINDS[kind][1](**SHAPES, **MORE[kind])


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Texts of a trunk that was hardly trained, on small programs."""
    folder = tmp_path_factory.mktemp("work")
    small_corpus(folder)
    train.train(folder, TOY, steps=40, batch=2, length=64, held=1, told=lambda line: None)
    texts.write(folder, batches=1, batch=6, held=2, taps=TAPS)
    return folder


@pytest.fixture(scope="module", params=KINDS)
def trained(work, request):
    """Kind, drafter, and what was told of its training."""
    told = []
    kind = request.param
    drafter = draft.train(work, kind, config(kind), steps=STEPS, batch=2, told=told.append)
    return kind, drafter.requires_grad_(False), told


@pytest.mark.parametrize("num_rows", [6, 4, 2])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_block_is_what_the_format_says(kind, num_rows):
    torch.manual_seed(0)
    drafter = scattered(KINDS[kind][0](config(kind)))
    embedding = torch.randn(TOY.vocab_size, TOY.width) * 0.3
    ids = torch.randint(0, TOY.vocab_size, (2, 31))
    taps = torch.randn(2, 30, len(TAPS) * TOY.width)
    anchors = torch.tensor([[5, 20], [0, 12]])
    hidden = drafter(embedding, ids, taps, anchors, num_rows)
    drafts = drafter.draft(embedding, hidden, ids.gather(1, anchors))
    weights = {name: value.numpy() for name, value in drafter.state_dict().items()}
    plain = PlainDrafter(weights, drafter.config.keys(), embedding.numpy(), TOY.vocab_size - 1)
    for b, a in np.ndindex(2, 2):
        anchor = int(anchors[b, a])
        last = int(ids[b, anchor])
        rows = plain.block(last, taps[b, :anchor].numpy().astype(np.float64), num_rows)
        np.testing.assert_allclose(hidden[b, a], rows[drafter.first :], rtol=0, atol=2e-5)
        assert drafts[b, a].tolist() == getattr(plain, kind)(rows, last)


@torch.no_grad()
def test_confidences_and_scores_are_those_of_the_format():
    torch.manual_seed(0)
    embedding, hidden = torch.randn(TOY.vocab_size, TOY.width), torch.randn(5, TOY.width)
    previous = torch.randint(0, TOY.vocab_size, (5,))
    spark = scattered(KINDS["dspark"][0](config("dspark")))
    weights = {name: value.numpy() for name, value in spark.state_dict().items()}
    plain = PlainDrafter(weights, spark.config.keys(), embedding.numpy(), 0)
    for row, token, got, logits in zip(
        hidden.numpy(),
        previous.tolist(),
        spark.confidence(hidden, previous).sigmoid(),
        spark.choices(embedding, hidden, previous),
        strict=True,
    ):
        np.testing.assert_allclose(got, plain.confidence(row, token), rtol=0, atol=1e-6)
        np.testing.assert_allclose(logits, plain.moved(row, token), rtol=0, atol=1e-4)
    lattice = scattered(KINDS["dflash2"][0](config("dflash2")))
    scores = lattice.choices(embedding, hidden, previous)
    assert torch.isfinite(scores).sum(-1).tolist() == [5] * 5  # the candidates, and no other id


def test_training_lowers_the_loss_and_keeps_what_it_learned(work, trained):
    kind, drafter, told = trained
    trunk, _ = train.load(work)
    seen = texts.read(work / "texts.pt")
    anchors = torch.arange(96, 270, 7).expand(len(seen.ids), -1)
    torch.manual_seed(0)
    fresh = draft.new(kind, config(kind), trunk)
    before, after = (draft.loss_of(one, trunk, seen, anchors, 6) for one in (fresh, drafter))
    assert after < 0.95 * before
    loaded, about = draft.load(work, kind)
    assert type(loaded) is KINDS[kind][0] and loaded.config == config(kind)
    for name, value in drafter.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0)
    assert about["steps"] == STEPS and len(told) == STEPS // train.TOLD_EVERY + 1
    found = about["accepted"]
    assert len(found) == 6 - drafter.first and found == sorted(found, reverse=True)
    assert 0 < found[0] <= 1


def test_a_draft_is_compared_with_what_follows_its_anchor():
    ids = torch.arange(100, 120)[None]
    previous, targets = draft.drafted_targets(ids, torch.tensor([[3, 9]]), 3)
    assert previous.tolist() == [[[103, 104, 105], [109, 110, 111]]]
    assert targets.tolist() == [[[104, 105, 106], [110, 111, 112]]]


def test_blocks_lie_within_their_texts():
    seen = set()
    for _ in range(40):
        anchors, num_rows = draft.some_blocks(8, 3, 100)
        assert anchors.shape == (3, min(32 * 8 // num_rows, 100 - draft.FIRST - num_rows - 1))
        assert anchors.min() >= draft.FIRST and anchors.max() + num_rows < 100
        assert all(len(set(row)) == len(row) for row in anchors.tolist())
        seen.add(num_rows)
    assert seen == {8, 7, 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_holds_what_the_trained_ones_do(kind, work, tmp_path):
    module, shapes = KINDS[kind]
    drafter, trunk = module(shapes()), Trunk(TOY)
    path = tmp_path / "drafter.gguf"
    export.export_drafter(drafter, kind, trunk, work / "tokenizer.json", path, "F16")
    reader = gguf.GGUFReader(path)
    keys = {
        name: (" ".join(one.name for one in field.types[:2]), field.contents())
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    assert {n: keys.pop(n)[0] for n in OF_A_TRAINING} == OF_A_TRAINING
    assert keys == VALUES | OTHER_VALUES[kind]
    tensors = {one.name: (one.shape.tolist(), one.tensor_type.name) for one in reader.tensors}
    assert tensors == TENSORS[kind]
    for name, value in read_tensors(reader).items():
        rounding = 0 if tensors[name][1] == "F32" else 2**-11
        torch.testing.assert_close(value, drafter.state_dict()[name], rtol=rounding, atol=1e-7)
    target = reader.fields["specrt.target_id"].contents()
    assert target == export.model_id(trunk) != export.model_id(scattered(Trunk(TOY)))


def test_specrt_drafts_what_torch_drafts(work, trained, tmp_path):
    """Along a whole answer: as many drafts accepted, of as many."""
    kind, drafter, _ = trained
    trunk, _ = train.load(work)
    paths = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    export.export(trunk, work / "tokenizer.json", paths[0], "F32")
    export.export_drafter(drafter, kind, trunk, work / "tokenizer.json", paths[1], "F32")
    llm = specrt.load(paths[0], draft_model=paths[1], device="cpu", kv_type="f32", verbose=False)
    prompt = np.load(work / "held_lib.npy")[:40].tolist()
    params = specrt.SamplingParams(max_tokens=60, ignore_eos=True)
    options = {"num_draft": 6 - drafter.first, "pmin": 0.0, "governor": False}
    got = llm.generate(prompt, params, spec=specrt.SpecOptions(type="block", **options))
    assert got.token_ids == llm.generate(prompt, params, spec="none").token_ids
    counts = got.stats.num_drafted, got.stats.num_accepted
    assert counts == replayed(trunk, drafter, prompt, got.token_ids)


@torch.no_grad()
def replayed(trunk, drafter, prompt, answer):
    """Drafted and accepted tokens along an answer.

    The first anchor is the prompt's last token; a draft ends one token before the answer does.
    """
    ids = torch.tensor([prompt + answer])
    residuals, _ = trunk.residuals(ids)
    taps = torch.cat([residuals[i] for i in drafter.config.target_layers], -1)
    embedding, at, num_drafted, num_accepted = trunk.token_embd.weight, len(prompt) - 1, 0, 0
    while at < ids.shape[1] - 1:
        anchors = torch.tensor([[at]])
        hidden = drafter(embedding, ids, taps, anchors, drafter.config.block_size)
        drafts = drafter.draft(embedding, hidden, ids.gather(1, anchors))[0, 0]
        drafts = drafts[: ids.shape[1] - at - 2]
        right = drafts == ids[0, at + 1 : at + 1 + len(drafts)]
        accepted = int(right.int().cumprod(0).sum())
        num_drafted, num_accepted = num_drafted + len(drafts), num_accepted + accepted
        at += accepted + 1
    return num_drafted, num_accepted


def test_the_embedded_drafter_drafts_well_for_the_embedded_model():
    trunk = export.read(embedded_model()).requires_grad_(False)
    module, shapes = KINDS["dflash2"]
    drafter = module(shapes())
    drafter.load_state_dict(read_tensors(gguf.GGUFReader(embedded_drafter())))
    tokens = torch.from_numpy(golden_arrays("tiny", "torch.npz")["tokens"])[:96]
    written = texts.continued(trunk, tokens[None].long(), texts.NEW, torch.zeros(1))
    assert sum(draft.accepted(drafter, trunk, written)) > 2


def test_training_ends_after_steps_or_by_the_clock():
    assert list(shares_done(4, None)) == [0, 0.25, 0.5, 0.75]
    shares = list(shares_done(4, 0.02 / 60))
    assert len(shares) > 4 and shares[0] == 0 and shares == sorted(shares) and shares[-1] < 1


def test_the_commands():
    args = parser().parse_args(["draft", "--kind", "dflash2", "--minutes", "10"])
    assert (args.kind, args.minutes, args.run.__name__) == ("dflash2", 10, "run_draft")
    assert parser().parse_args(["export", "--kind", "dspark"]).kind == "dspark"
    assert parser().parse_args(["export"]).kind is None
