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


def golden_path(name: str) -> Path:
    return GOLDEN / name / "model.gguf"


def golden_arrays(name: str, file_name: str = "golden.npz") -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name / file_name) as file:
        return {key: file[key] for key in file.files}


def load_golden(name: str, **options) -> LLM:
    options = {"kv_type": "f32", "spec": "none", "verbose": False} | options
    return specrt.load(golden_path(name), **options)


def real_model(name: str) -> Path:
    path = cached(name)
    if path is None:
        pytest.skip(f"{name} is not pulled: python -m specrt pull {name}")
    return path


def bench_prompts() -> list[dict]:
    return json.loads((files("specrt.bench") / "prompts.json").read_text(encoding="utf-8"))
