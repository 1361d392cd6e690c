"""What tests of training share: a toy trunk's shapes, and a corpus for it."""

from pathlib import Path

import numpy as np
import torch

from tools.train_tiny import corpus
from tools.train_tiny.model import Config

TOY = Config(
    vocab_size=300,
    width=64,
    num_layers=3,
    heads=3,
    kv_heads=1,
    head_dim=32,
    num_rot=16,
    rope_sections=(3, 3, 2, 0),
    ffn=96,
    state_dim=32,
    key_heads=1,
    value_heads=2,
    context=512,
)
TAPS = (1, 0, 3)
"""In an order of their own, and what leaves the last layer among them."""


def small_corpus(folder: Path) -> dict:
    """300 small programs and a table of numbers; the parts that they came to."""
    random = np.random.default_rng(0)
    words = ["value", "name", "self", "items", "result", "index"]
    for number in range(300):
        a, b, c = random.choice(words, 3)
        text = f"def {a}_{b}({c}):\n    {b} = [{c} + {number % 9}]\n    return {b}\n\n" * 8
        (folder / f"module{number}.py").write_text(text)
    (folder / "table.py").write_text("x = [" + "1234567890, " * 100 + "]\n")
    return corpus.build(folder, corpus.standard_library(folder), TOY.vocab_size)


def scattered(module: torch.nn.Module) -> torch.nn.Module:
    """With no zero matrices left, so that every part does something."""
    with torch.no_grad():
        for value in module.parameters():
            value += 0.05 * torch.randn_like(value)
    return module
