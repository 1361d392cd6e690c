"""What inspect says of a file."""

import io
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from rich.console import Console

from specrt.errors import MismatchError
from specrt.gguf.reader import open_gguf
from specrt.inspect import TypeShare, describe, inspect
from tests.models_on_disk import golden_path
from tests.rewriting import write_all

GOLDEN = Path(__file__).parent / "golden/llama-quant/model.gguf"


@pytest.fixture
def write(tmp_path):
    """Write a file of F32 tensors ``{name: shape}`` with more keys."""

    def write(name, architecture, tensors=(), add=lambda writer: None):
        writer = gguf.GGUFWriter(tmp_path / name, architecture)
        add(writer)
        for tensor in tensors:
            writer.add_tensor(tensor, np.zeros((2, 3), np.float32))
        write_all(writer)
        return tmp_path / name

    return write


def rows(path) -> dict[str, str]:
    return dict(describe(open_gguf(path)).rows)


def printed(*args, **kwargs) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    inspect(*args, console=console, **kwargs)
    return console.file.getvalue()


def test_golden_file():
    found = rows(GOLDEN)
    expected = {
        "architecture": "llama",
        "context": "512",
        "layers": "2",
        "query heads": "4",
        "KV heads": "2",
        "tokenizer": "test",
        "splitter": "none",
        "vocabulary": "512",
        "chat template": "no",
        "draft head": "none",
    }
    assert {label: found[label] for label in expected} == expected


def test_types_sum_to_what_the_gguf_package_reads():
    tensors = gguf.GGUFReader(GOLDEN).tensors
    shares = describe(open_gguf(GOLDEN)).types
    assert [share.nbytes for share in shares] == sorted((s.nbytes for s in shares), reverse=True)
    for share in shares:
        of_type = [t for t in tensors if t.tensor_type.name == share.type]
        counts = [int(sum(getattr(t, n) for t in of_type)) for n in ("n_elements", "n_bytes")]
        assert share == TypeShare(share.type, len(of_type), *counts)
    assert sum(share.tensors for share in shares) == len(tensors)
    assert rows(GOLDEN)["parameters"] == f"{sum(share.parameters for share in shares):,}"


def test_tokenizer_rows(write):
    def add(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(["<s>", "a", "</s>"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(9)
        writer.add_array("tokenizer.ggml.eot_token_ids", [1, 2])
        writer.add_add_bos_token(True)
        writer.add_chat_template("{{ messages }}")

    found = rows(write("t.gguf", "llama", add=add))
    assert found["tokenizer"] == "gpt2" and found["splitter"] == "smollm"
    assert found["bos id"] == "0 <s>" and found["eos id"] == "9 (outside the vocabulary)"
    assert found["eot id"] == "1 a, 2 </s>"
    assert found["adds bos"] == "yes" and found["chat template"] == "yes, 14 characters"


def test_per_layer_values_are_shown_in_short(write):
    def add(writer):
        writer.add_head_count_kv([2, 2, 1])
        writer.add_feed_forward_length([7, 7, 7])

    found = rows(write("l.gguf", "llama", add=add))
    assert found["KV heads"] == "2, 2, 1" and found["feed-forward width"] == "7 (3 times)"


@pytest.mark.parametrize(
    ("architecture", "tensors", "keys", "expected"),
    [
        ("llama", ["blk.0.attn_norm.weight"], {}, "none"),
        (
            "qwen35",
            ["blk.0.attn_norm.weight", "blk.3.nextn.enorm.weight", "blk.3.nextn.hnorm.weight"],
            {"nextn_predict_layers": 1},
            "NextN, 1 of the layers",
        ),
        (
            "glm-dsa",
            ["blk.5.nextn.enorm.weight"],
            {"nextn_predict_layers": 1},
            "this file is a NextN drafter (1 of its layers), without a trunk",
        ),
        (
            "deepseek4",
            ["blk.0.attn_norm.weight"],
            {"nextn_predict_layers": 1},
            "none: nextn_predict_layers is 1, but the tensors are missing",
        ),
        ("dflash", ["fc.weight"], {"block_size": 8}, "this file is a drafter, block size 8"),
        ("gemma4-assistant", ["nextn.pre_projection.weight"], {}, "this file is a drafter"),
    ],
)
def test_draft_head(write, architecture, tensors, keys, expected):
    def add(writer):
        for key, value in keys.items():
            writer.add_uint32(f"{architecture}.{key}", value)

    assert rows(write("d.gguf", architecture, tensors, add))["draft head"] == expected


def test_printed_report_with_drafter_and_plan(write):
    drafter = write("drafter.gguf", "eagle3", ["fc.weight"])
    text = printed(GOLDEN, drafter, plan=[("weights", "0.6 MB")])
    for part in ("target", "drafter.gguf", "eagle3", "Q4_K", "memory plan", "0.6 MB"):
        assert part in text
    assert "memory plan" not in printed(GOLDEN)


def test_file_without_tensors(write):
    path = write("v.gguf", "llama")
    assert rows(path)["parameters"] == "0"
    assert "llama" in printed(path)


def test_text_of_a_file_cannot_drive_the_terminal(write):
    path = write("e.gguf", "llama", add=lambda w: w.add_name("\x1b]0;title\x07[red]x" + "y" * 500))
    text = printed(path)
    assert "\x1b]" not in text and r"\x1b]0;title\x07[red]xyyy" in text and "y" * 200 not in text


def test_values_of_the_wrong_kind_are_shown(write):
    def add(writer):
        writer.add_string("llama.block_count", "many")
        writer.add_uint32("tokenizer.chat_template", 3)
        writer.add_string("tokenizer.ggml.bos_token_id", "one")
        writer.add_uint32("tokenizer.ggml.tokens", 5)

    found = rows(write("w.gguf", "llama", add=add))
    assert (found["layers"], found["bos id"], found["chat template"]) == ("many", "one", "no")


def test_file_without_architecture(tmp_path):
    path = tmp_path / "n.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    with pytest.raises(MismatchError, match=r"'general\.architecture' is missing"):
        inspect(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dflash-qwen35", {"generation": "DFlash", "embedding": "the target's",
                           "LM head": "the target's"}),
        ("dflash2-muse", {"generation": "DFlash2", "sliding window": "16", "sliding layers": "0, 2",
                          "draft head": "this file is a drafter, block size 8, target layers "
                                        "1, 3, 4"}),
        ("dspark-qwen3-bonus", {"generation": "DSpark", "embedding": "the target's",
                                "LM head": "its own, of 300 ids"}),
        ("dflash-options-qwen3", {"embedding": "its own", "LM head": "its own, of 512 ids"}),
    ],
)  # fmt: skip
def test_a_block_drafter(name, expected):
    with open_gguf(golden_path(name)) as file:
        rows = dict(describe(file).rows)
    assert {label: rows[label] for label in expected} == expected


def test_a_block_drafter_that_is_none(write):
    with open_gguf(write("m.gguf", "dflash", ["selector_hidden.weight"])) as file:
        assert "selector_rank is missing" in dict(describe(file).rows)["generation"]
