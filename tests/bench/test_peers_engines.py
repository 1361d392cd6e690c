"""Engines that are Python packages: their processes, and what is asked of each package.

Stand-ins have the packages' names for what is used of them, and nothing else.
"""

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from benchmarks.peers.engine import Answer, Job, PeerError
from benchmarks.peers.engines import mistral_rs, openvino
from benchmarks.peers.worker import PythonEngine, Settings

JOB = Job([5, 6, 7], "abc", 4, True)


# A process that does not do its part


ENGINE = """
import os, time

def load(settings):
    if settings.mode == "closes early":
        closes()
    return {"hangs": hangs, "closes": closes, "cuts": cuts}[settings.mode]

def hangs(job):
    time.sleep(15)

def closes(job=None):
    os.closerange(3, 64)
    time.sleep(15)

def cuts(job):
    for file in range(3, 64):
        try:
            os.write(file, b'{"token_ids": [1')
        except OSError:
            pass
    os._exit(3)
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "failing_engine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("benchmarks.peers.worker.ANSWER_SECONDS", 0.3, raising=False)
    monkeypatch.setattr("benchmarks.peers.processes.STOP_SECONDS", 0.3)
    return PythonEngine("fake", "failing_engine", "1", Path("m.gguf"), 64, 1)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("hangs", "no answer in 0.3 seconds"),
        ("closes", "no answer; its last lines"),
        ("cuts", r"no answer \(exit status 3\)"),
    ],
)
def test_an_engine_that_does_not_answer(engine, mode, told):
    server = engine.start(mode)
    start = time.monotonic()
    try:
        with pytest.raises(PeerError, match=told):
            server.complete(JOB)
    finally:
        server.stop()
    assert time.monotonic() - start < 10


def test_an_engine_that_closes_its_stdout_before_it_came_up(engine):
    start = time.monotonic()
    with pytest.raises(PeerError, match="ended before it came up"):
        engine.start("closes early")
    assert time.monotonic() - start < 10


# OpenVINO


class Scheduler:
    __slots__ = ("cache_size", "enable_prefix_caching", "max_num_batched_tokens")


class Generation:
    __slots__ = (
        "apply_chat_template",
        "do_sample",
        "eos",
        "ignore_eos",
        "max_new_tokens",
        "max_ngram_size",
        "num_assistant_tokens",
    )

    def set_eos_token_id(self, token):
        self.eos = token


class Metrics:
    """Of four ids in three forwards; milliseconds."""

    raw_metrics = SimpleNamespace(m_new_token_times=[100.0, 104.0, 110.0], m_batch_sizes=[1, 1, 2])

    def get_num_input_tokens(self):
        return 3

    def get_ttft(self):
        return SimpleNamespace(mean=12.5, std=0.0)


class Pipeline:
    def __init__(self, model, device, **settings):
        if model == "unknown.gguf":
            raise RuntimeError("no such architecture")
        self.device, self.settings = device, settings
        self.made.append(self)

    def get_tokenizer(self):
        return SimpleNamespace(get_eos_token_id=lambda: 2)

    def generate(self, ids, config):
        self.ids, self.config = ids, config
        return SimpleNamespace(tokens=[[8, 9, 10, 11]], perf_metrics=Metrics())


def stand_in(monkeypatch, name, **content):
    module = ModuleType(name)
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def pipelines(monkeypatch):
    monkeypatch.setattr(Pipeline, "made", [], raising=False)
    stand_in(monkeypatch, "openvino", Tensor=lambda array: array)
    stand_in(
        monkeypatch,
        "openvino_genai",
        LLMPipeline=Pipeline,
        SchedulerConfig=Scheduler,
        GenerationConfig=Generation,
    )
    return Pipeline.made


@pytest.mark.parametrize(("mode", "drafted"), [("plain", 0), ("prompt-lookup", None)])
def test_openvino(pipelines, mode, drafted):
    found = openvino.load(Settings("m.gguf", mode, 400, 2))(JOB)
    assert found == Answer([8, 9, 10, 11], "", 4, 1, 3, 12.5, 10.0, 2, 1, drafted)
    (made,) = pipelines
    settings, config = made.settings, made.config
    assert made.device == "CPU" and made.ids.tolist() == [[5, 6, 7]]
    assert settings["INFERENCE_NUM_THREADS"] == 2 and settings["KV_CACHE_PRECISION"] == "f16"
    assert settings["prompt_lookup"] is (mode != "plain")
    assert settings["scheduler_config"].enable_prefix_caching is False
    assert settings["scheduler_config"].max_num_batched_tokens == 400
    assert (config.max_new_tokens, config.ignore_eos, config.eos) == (4, True, 2)
    assert config.do_sample is False and config.apply_chat_template is False
    assert hasattr(config, "num_assistant_tokens") is (mode != "plain")


def test_openvino_tells_what_it_cannot_read(pipelines):
    with pytest.raises(PeerError, match=r"cannot read unknown\.gguf: no such architecture"):
        openvino.load(Settings("unknown.gguf", "plain", 400, 2))


# mistral.rs


class Runner:
    def __init__(self, which, max_seqs, prefix_cache_n):
        assert which == {"quantized_model_id": "/models", "quantized_filename": "m.gguf"}
        assert (max_seqs, prefix_cache_n) == (1, 0)

    def send_completion_request(self, request):
        assert request == {
            "prompt": "abc",
            "model": "default",
            "max_tokens": 4,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        usage = SimpleNamespace(
            completion_tokens=4,
            prompt_tokens=3,
            total_prompt_time_sec=0.5,
            total_completion_time_sec=0.25,
        )
        return SimpleNamespace(choices=[SimpleNamespace(text="four")], usage=usage)


def test_mistral_rs(monkeypatch):
    stand_in(
        monkeypatch,
        "mistralrs",
        Runner=Runner,
        Which=SimpleNamespace(GGUF=dict),
        CompletionRequest=dict,
    )
    found = mistral_rs.load(Settings("/models/m.gguf", "plain", 400, 2))(JOB)
    assert found == Answer(None, "four", 4, 1, 3, 500.0, 250.0, 3, 0, 0)
