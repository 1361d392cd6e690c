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
FLOAT_GOLDENS = ("llama", "qwen3", "gemma3")
QUANT_GOLDENS = ("llama-quant", "qwen3-quant")
GOLDENS = FLOAT_GOLDENS + QUANT_GOLDENS


def golden_path(name: str) -> Path:
    return GOLDEN / name / "model.gguf"


def golden_arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name / "golden.npz") as file:
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
