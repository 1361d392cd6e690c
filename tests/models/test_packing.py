"""Loading makes one copy: what is packed leaves the file's memory; Ctrl-C leaves nothing half."""

import _thread
import signal
import threading
import time

import numpy as np
import pytest

from specrt import SamplingParams
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.host.weights import HostWeight
from specrt.llm import LLM
from specrt.models import load_trunk
from specrt.models.loader import Loader
from specrt.options import SpecOptions
from specrt.reference import ReferenceOps
from tests.mappings import SMAPS, resident_bytes
from tests.tiny_model import WIDTH, write_tiny_model

CONTEXT, PROMPT = 32, [40, 41, 42, 43]
AROUND = 2**16
"""Bytes that the kernel maps with a page that is read."""


@pytest.fixture(scope="module", params=["tied", "untied"])
def path(request, tmp_path_factory):
    """A model of 12 MiB."""
    drop = ("output.weight",) if request.param == "tied" else ()
    folder = tmp_path_factory.mktemp(request.param)
    return write_tiny_model(folder / "m.gguf", head_dim=4096, drop=drop)


def loaded(path, ops):
    options = {"context": CONTEXT, "kv_type": "f16", "max_sequences": 1}
    return LLM(open_gguf(path), ops, spec=SpecOptions.of(None), **options)


@pytest.fixture(scope="module")
def expected(path):
    return loaded(path, HostOps(threads=1)).logits(PROMPT)


def read_all(gguf):
    for tensor in gguf.tensors.values():
        tensor.raw.sum()


@pytest.mark.skipif(not SMAPS.exists(), reason="looks at resident pages in /proc")
def test_what_is_packed_is_not_in_memory_twice(path):
    gguf, ops, most = open_gguf(path), HostOps(threads=2), []
    read_all(gguf)
    size, tensors = gguf.size, len(gguf.tensors)
    assert resident_bytes(path) >= size > 12 * 2**20
    trunk = load_trunk(gguf, ops, CONTEXT, lambda _: most.append(resident_bytes(path)))
    assert most == sorted(most, reverse=True)
    assert most[-1] < min(tensors * AROUND, size / 6)
    assert sum(weight.tiles.nbytes for weight in trunk.weights) >= size - 2**19


@pytest.mark.skipif(not SMAPS.exists(), reason="looks at resident pages in /proc")
def test_what_is_read_first_when_it_is_packed_goes_too(path):
    gguf = open_gguf(path)
    largest, grown = max(t.nbytes for t in gguf.tensors.values()), []
    load_trunk(gguf, HostOps(threads=2), CONTEXT, lambda _: grown.append(resident_bytes(path)))
    assert 0 < max(grown) < largest + len(gguf.tensors) * AROUND < gguf.size / 3


def test_rows_of_the_embedding_are_read_from_the_file_after_all(path, expected):
    llm = loaded(path, HostOps(threads=2))
    assert np.array_equal(llm.logits(PROMPT), expected)
    with open_gguf(path) as gguf:
        stored = gguf.tensors["token_embd.weight"].numpy()
        assert np.array_equal(llm.target.trunk.token_embd.raw.view(np.float16), stored)


def test_op_sets_that_read_the_file_go_on_reading_it(path):
    gguf = open_gguf(path)
    loader = Loader(gguf, ReferenceOps())
    weight = loader.weight("blk.1.ffn_up.weight", 96, WIDTH)
    weight.raw.sum()
    gguf.forget("blk.1.ffn_up.weight")
    assert np.array_equal(weight.values, gguf.tensors["blk.1.ffn_up.weight"].numpy())


@pytest.fixture
def interruptible():
    """Ctrl-C raises also where the tests run as a background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("at", [0, 3, 11])
def test_ctrl_c_between_tensors(path, expected, at, interruptible, monkeypatch):
    ops, packed, real = HostOps(threads=2), [], HostWeight.pack

    def pack(weight, tape):
        real(weight, tape)
        packed.append(weight)
        if len(packed) == at + 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(HostWeight, "pack", pack)
    with pytest.raises(KeyboardInterrupt):
        loaded(path, ops)
    assert len(packed) == at + 1
    assert np.array_equal(loaded(path, ops).logits(PROMPT), expected)  # the team goes on


def test_ctrl_c_at_any_time(path, expected, interruptible):
    """It comes while threads pack: what runs ends, and the team is there for the next load."""
    ops, interrupted, start = HostOps(threads=2), 0, time.monotonic()
    for milliseconds in range(30):
        timer = threading.Timer(milliseconds / 1000, _thread.interrupt_main)
        try:
            timer.start()
            with open_gguf(path) as gguf:
                for _ in range(10):
                    load_trunk(gguf, ops, CONTEXT)
            timer.join()
            time.sleep(0)  # where it comes if it was late
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
    assert interrupted > 20 and time.monotonic() - start < 60
    llm = loaded(path, ops)
    assert np.array_equal(llm.logits(PROMPT), expected)
    assert llm.generate(PROMPT, SamplingParams(max_tokens=3)).token_ids
