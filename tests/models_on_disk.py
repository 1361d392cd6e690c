"""Where the tests' model files are, and how to load them on an op set."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import specrt
from specrt.llm import LLM
from specrt.pull import cached

GOLDEN = Path(__file__).parent / "golden"
FLOAT_GOLDENS = ("llama", "qwen3", "gemma3", "qwen35", "qwen35moe", "muse-glimmer")
QUANT_GOLDENS = ("llama-quant", "qwen3-quant", "qwen35-quant")
GOLDENS = FLOAT_GOLDENS + QUANT_GOLDENS
HEAD_GOLDENS = ("qwen35", "qwen35-accept", "qwen35-quant", "qwen35moe")
DRAFTER_GOLDENS = {
    "dflash-qwen35": "qwen35",
    "dflash2-qwen35": "qwen35",
    "dflash2-qwen35-quant": "qwen35-quant",
    "dflash2-muse": "muse-glimmer",
    "dspark-qwen3": "qwen3",
    "dspark-qwen3-bonus": "qwen3",
    "dspark-accept": "qwen35-accept",
    "dflash-options-qwen3": "qwen3",
}
"""Drafters in files of their own, and their targets."""


def golden_path(name: str) -> Path:
    return GOLDEN / name / "model.gguf"


def golden_arrays(name: str, file_name: str = "golden.npz") -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name / file_name) as file:
        return {key: file[key] for key in file.files}


def load_golden(name: str, drafter: str | None = None, **options) -> LLM:
    if drafter is not None:
        options["draft_model"] = golden_path(drafter)
    options = {"kv_type": "f32", "spec": "none", "verbose": False} | options
    return specrt.load(golden_path(name), **options)


def real_model(name: str) -> Path:
    path = cached(name)
    if path is None:
        pytest.skip(f"{name} is not pulled: python -m specrt pull {name}")
    return path


def bench_prompts() -> list[dict]:
    return json.loads((files("specrt.bench") / "prompts.json").read_text(encoding="utf-8"))
