"""A conversation over turns: what was consumed stays, and can be saved and loaded."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from specrt.completion import Completion
from specrt.errors import FormatError, MismatchError, OptionError
from specrt.generate import INHERIT, Message, Prompt, Spec, chat_ids
from specrt.gguf.reader import GGUFFile
from specrt.options import SamplingParams
from specrt.speculative.request import Request
from specrt.speculative.target import Target
from specrt.state.sequence import Sequence
from specrt.stream import Pieces, Stream

if TYPE_CHECKING:
    from specrt.llm import LLM

FORMAT = 1
SAMPLE_BYTES = 4096
HEAD_PREFIX = "head "
"""Of the names of what a draft head keeps."""


class Session:
    """One sequence that keeps its cached prefix from turn to turn.

    A turn whose prompt diverges from what was consumed keeps the longest common prefix, as far as
    the target can go back: a recurrent state only takes back what came last, else it starts anew.

    Attributes:
        messages: the chat so far, the model's answers included.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._target: Target = llm.target
        self._sequence: Sequence | None = self._target.open_sequence()
        self._running: Stream | None = None
        self._request: Request | None = None  # of the last turn
        self.messages: list[Message] = []

    @property
    def cached_tokens(self) -> int:
        """How many tokens the target has consumed."""
        return self._open().cursor.cache_len

    def generate(
        self, prompt: Prompt, params: SamplingParams | None = None, *, spec: Spec = INHERIT
    ) -> Completion:
        """Complete a whole prompt, of which the cached prefix is not prefilled again."""
        return _drain(self.stream(prompt, params, spec=spec))

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, spec: Spec = INHERIT
    ) -> Stream:
        """As ``generate``, in pieces. One stream at a time: a new one ends the old."""
        generator = self._llm.generator
        ids = generator.ids(prompt)
        self._end_running()
        request = generator.request(self._open(), ids, params or SamplingParams(), spec)
        return self._stream(generator.run(request), request)

    def send(
        self,
        content: str,
        params: SamplingParams | None = None,
        *,
        spec: Spec = INHERIT,
        **variables: Any,
    ) -> Completion:
        """Say something, and get the model's answer; both join ``messages``."""
        return _drain(self.stream_send(content, params, spec=spec, **variables))

    def stream_send(
        self,
        content: str,
        params: SamplingParams | None = None,
        *,
        spec: Spec = INHERIT,
        **variables: Any,
    ) -> Stream:
        """As ``send``, in pieces; ``messages`` grows when the answer is complete."""
        turn: list[Message] = [*self.messages, {"role": "user", "content": content}]
        llm = self._llm
        ids = chat_ids(llm.tokenizer, llm.chat_template, turn, **variables)
        self._end_running()
        request = llm.generator.request(self._open(), ids, params or SamplingParams(), spec)
        return self._stream(self._answered(request, turn), request)

    def _answered(self, request: Request, turn: list[Message]) -> Pieces:
        text = ""
        for piece in self._llm.generator.run(request):
            text += piece.text
            if request.sequence.cursor.finish_reason is not None:  # the caller may not come back
                self.messages = [*turn, {"role": "assistant", "content": text}]
            yield piece

    def _end_running(self) -> None:
        """End the stream before the next turn.

        Raises:
            OptionError: another thread runs a step of it.
        """
        if self._running is not None:
            self._running.close()
            if self._running.completion is None:
                raise OptionError(
                    "this session's last stream is still in a step: expected one thread at a time; "
                    "wait for it, or use a session for each"
                )
        self._settle()

    def _settle(self) -> None:
        """Who drafted hears of all rows of the last turn, however it ended."""
        if self._request is not None:
            self._llm.generator.runtime.settle(self._request)

    def _stream(self, pieces: Pieces, request: Request) -> Stream:
        self._request = request
        self._running = Stream(pieces, request, lambda: None)
        return self._running

    def _open(self) -> Sequence:
        if self._sequence is None:
            raise OptionError("this session is closed: open another one")
        return self._sequence

    def close(self) -> None:
        """Give the sequence back, behind the step that runs; a second call changes nothing."""
        sequence, self._sequence, self._request = self._sequence, None, None
        if sequence is None:
            return
        release = partial(self._target.close_sequence, sequence)
        if self._running is None:
            release()
        else:
            self._running.release = release
            self._running.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write messages, ids and the cached keys and values to a file.

        The file is complete or not there; a session loaded from it goes on bit for bit.
        """
        sequence = self._open()
        self._settle()
        header = {
            "format": FORMAT,
            "fingerprint": fingerprint(self._llm.gguf),
            "numerics": self._target.numerics,
            "messages": self.messages,
            "cache_len": sequence.cursor.cache_len,
            "head": fingerprint(self._llm.head_file),
        }
        with self._llm.generator.runtime.lock:  # a head may have to take rows in first
            states = self._target.export_state(sequence) | self._head_state(sequence)
        arrays = {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "tokens": sequence.history[: sequence.cursor.cache_len],
            **states,
        }
        target = Path(path)
        partial = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            os.replace(partial, target)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()

    def _head_state(self, sequence: Sequence) -> dict[str, np.ndarray]:
        head = self._llm.speculation.loaded_head
        state = {} if head is None else head.export_state(sequence)
        return {HEAD_PREFIX + name: values for name, values in state.items()}

    def _take_head_state(self, arrays: dict[str, np.ndarray]) -> None:
        """A head that finds nothing is brought up to date when it is asked, if it needs that."""
        head = self._llm.speculation.loaded_head
        state = {
            name.removeprefix(HEAD_PREFIX): values
            for name, values in arrays.items()
            if name.startswith(HEAD_PREFIX)
        }
        if head is not None and state:
            head.import_state(self._open(), state)

    @classmethod
    def load(cls, llm: LLM, path: str | os.PathLike[str]) -> Session:
        """Read a session that was saved with the same model, KV type and device.

        Raises:
            FormatError: the file is no saved session.
            MismatchError: it was saved with another model, device or KV type, or is too long, or
                holds what this model cannot have made.
        """
        saved = _read(Path(path))
        target: Target = llm.target
        expected = {"fingerprint": fingerprint(llm.gguf), "numerics": target.numerics}
        for key, value in expected.items():
            if saved.header.get(key) != value:
                raise MismatchError(
                    f"{path}: {key} {saved.header.get(key)!r}, expected {value!r} of "
                    f"{llm.path}: load the model, device and KV type that it was saved with"
                )
        if len(saved.tokens) >= llm.context:
            raise MismatchError(
                f"{path}: {len(saved.tokens)} tokens, and the context is {llm.context}: load the "
                "model with a larger context"
            )
        llm.generator.check_ids(saved.tokens.tolist())
        session = cls(llm)
        try:
            sequence = session._open()
            sequence.history[: len(saved.tokens)] = saved.tokens
            with llm.generator.runtime.lock:
                target.import_state(sequence, len(saved.tokens), saved.arrays)
                if saved.header.get("head") == fingerprint(llm.head_file):
                    session._take_head_state(saved.arrays)
            session.messages = saved.header["messages"]
        except BaseException:
            session.close()
            raise
        return session


@dataclass(frozen=True, slots=True)
class _Saved:
    header: dict[str, Any]
    tokens: np.ndarray
    arrays: dict[str, np.ndarray]


def _read(path: Path) -> _Saved:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        tokens = arrays.pop("tokens")
        if header["format"] != FORMAT or tokens.shape != (header["cache_len"],):
            raise ValueError(f"format {header['format']}, {tokens.shape} tokens")
        if tokens.dtype != np.int32:
            raise ValueError(f"tokens are {tokens.dtype}")
        messages = header["messages"]
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise ValueError("messages are no list of mappings")
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise FormatError(
            f"{path}: no session that this version can read ({error}): expected a file that "
            "Session.save wrote"
        ) from None
    return _Saved(header, tokens, arrays)


def fingerprint(gguf: GGUFFile) -> str:
    """A hash of the tensor directory and a sample of every tensor's bytes."""
    digest = hashlib.sha256()
    for name, tensor in gguf.tensors.items():
        digest.update(f"{name} {tensor.shape} {tensor.type.name}\n".encode())
        raw = tensor.raw.reshape(-1)
        digest.update(raw[:SAMPLE_BYTES].tobytes())
        digest.update(raw[-SAMPLE_BYTES:].tobytes())
    return digest.hexdigest()


def _drain(stream: Stream) -> Completion:
    for _ in stream:
        pass
    assert stream.completion is not None
    return stream.completion
