"""Training at toy size, up to a file that specrt loads; only where torch is installed."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specrt  # noqa: E402 (what stands above skips all of it)
from specrt.assets import embedded_model  # noqa: E402
from tests.accuracy import GOLDEN_NMSE, GOLDEN_STD_SHARE  # noqa: E402
from tests.models_on_disk import golden_arrays  # noqa: E402
from tests.tools.toy_training import TAPS, TOY, scattered, small_corpus  # noqa: E402
from tools.train_tiny import corpus, export, golden, texts, train, tune  # noqa: E402
from tools.train_tiny.compare import compare  # noqa: E402
from tools.train_tiny.delta import CHUNK, delta_chunks, delta_rows  # noqa: E402
from tools.train_tiny.gguf_file import QTYPES  # noqa: E402
from tools.train_tiny.model import Trunk  # noqa: E402

torch.set_num_threads(1)  # more of them wait for each other on a busy machine


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A corpus of small programs, some of them held out."""
    folder = tmp_path_factory.mktemp("work")
    parts = small_corpus(folder)
    assert parts["held_lib"]["files"] > 0
    assert parts["held_lib"]["files"] + parts["train_lib"]["files"] == 300  # no table of numbers
    return folder


@pytest.fixture(scope="module")
def trained(work):
    told = []
    train.train(work, TOY, steps=40, batch=2, length=64, told=told.append)
    texts.write(work, batches=1, batch=6, held=2, taps=TAPS)
    trunk = tune.tune(work, steps=20, batch=1, told=told.append)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in told if "NextN" in line]
    assert len(losses) == 2 and losses[1] < losses[0]
    return trunk


def test_chunks_are_the_rule_row_by_row():
    random = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 3, CHUNK + 9, 8, generator=random).double() / 3 for _ in range(2))
    v = torch.randn(2, 3, CHUNK + 9, 5, generator=random).double()
    g, beta = (torch.rand(2, 3, CHUNK + 9, generator=random).double() for _ in range(2))
    state = torch.randn(2, 3, 8, 5, generator=random).double()
    rows, chunks = (rule(q, k, v, -g, beta, state) for rule in (delta_rows, delta_chunks))
    for one, other in zip(rows, chunks, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_trunk_goes_on_behind_a_state():
    torch.manual_seed(0)
    trunk = scattered(Trunk(TOY))
    ids = torch.randint(0, TOY.vocab_size, (2, 70))
    with torch.no_grad():
        whole, _ = trunk(ids)
        first, states = trunk(ids[:, :40])
        one, states = trunk(ids[:, 40:41], states, 40)
        rest, _ = trunk(ids[:, 41:], states, 41)
    torch.testing.assert_close(torch.cat([first, one, rest], 1), whole, rtol=0, atol=1e-4)


def test_a_chain_is_what_a_runtime_drafts():
    """Pass s at row t: catch-up with the trunk's rows up to t - s, then the block on its own."""
    torch.manual_seed(0)
    trunk = scattered(Trunk(TOY))
    block, ids = trunk.nextn, torch.randint(0, TOY.vocab_size, (1, 12))
    with torch.no_grad():
        hidden, _ = trunk(ids)
        embedded = trunk.token_embd(ids)
        passes = tune.chain(block, embedded, hidden, 3)
        start = 7
        x, state = block(block.enter(embedded[:, : start + 1], hidden[:, : start + 1]), 0, None)
        row = block.leave(x)[:, -1:]
        torch.testing.assert_close(row[:, 0], passes[0][:, start], rtol=0, atol=1e-5)
        for s in (1, 2):
            shifted = torch.cat([row, torch.zeros_like(row)], 1)  # enter reads the row before
            pair = embedded[:, start + s - 1 : start + s + 1]
            x, state = block(block.enter(pair, shifted)[:, 1:], start + s, state)
            row = block.leave(x)
            torch.testing.assert_close(row[:, 0], passes[s][:, start + s], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", QTYPES)
def test_specrt_loads_what_was_trained(work, trained, kind):
    path = work / f"{kind}.gguf"
    export.export(trained, work / "tokenizer.json", path, kind)
    ids = np.load(work / "train_lib.npy")[:90].tolist()
    found = compare(path, ids)
    if kind == "Q8_0":
        assert found.nmse <= GOLDEN_NMSE
    else:
        assert found.largest <= GOLDEN_STD_SHARE * found.spread and found.agree == 1
    llm = specrt.load(path, verbose=False)
    assert llm.generate("def value", specrt.SamplingParams(max_tokens=8)).token_ids
    assert llm.tokenizer.encode("def value_name(self):\n") == tokens(work)


def tokens(work) -> list[int]:
    saved = corpus.Tokenizer.from_file(str(work / "tokenizer.json"))
    return saved.encode("def value_name(self):\n").ids


def test_a_file_is_read_back_as_it_was_written(work, trained):
    path = work / "back.gguf"
    export.export(trained, work / "tokenizer.json", path, "F32")
    back = export.read(path)
    assert replace(back.config, eps=TOY.eps) == TOY
    assert export.model_id(back) != export.model_id(scattered(Trunk(TOY)))
    for name, value in export.tensors_of(trained).items():
        torch.testing.assert_close(export.tensors_of(back)[name], value)


def test_golden_data_is_what_torch_makes_of_the_embedded_file(tmp_path):
    stored = golden_arrays("tiny", "torch.npz")
    golden.write(embedded_model(), stored["tokens"].tolist()[:24], tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as new:
        assert new["positions"].tolist() == list(range(12, 24)) and new["drafts"].shape == (12, 3)
        np.testing.assert_allclose(new["logits"], stored["logits"][:3], atol=0.02)
    trunk, ids = export.read(embedded_model()), stored["tokens"].tolist()
    for i in (0, 40, 99):
        count = stored["positions"][i] + 1
        assert golden.drafted(trunk, ids[:count], 3) == stored["drafts"][i].tolist()
