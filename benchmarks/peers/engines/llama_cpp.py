"""llama.cpp's llama-server: a process per mode, spoken to by HTTP."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from benchmarks.peers.engine import PLAIN, PREFILL, Answer, Job, PeerError, Server
from benchmarks.peers.processes import ANSWER_SECONDS, Child, free_port

Flash = Literal["on", "off"]

KEPT: Final = ("--no-cache-prompt", "--cache-ram", "0", "--ctx-checkpoints", "0")
FLAGS: Final = ("--parallel", "1", "--offline", "--no-ui", *KEPT)
"""One slot, nothing kept between prompts, and no prompt cut in two for the sake of keeping it."""

POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """How to start llama-server.

    Args:
        binary: the program.
        model: the file.
        context: positions of its one slot.
        threads: of decoding and of prefill.
        speculations: each the value of ``--spec-type``, perhaps with flags of its own behind it.
        start_seconds: in which it has to come up.
        flash: flash attention by mode; "on" where there is none.
    """

    binary: Path
    model: Path
    context: int
    threads: int
    speculations: Sequence[str] = ()
    start_seconds: float = 120.0
    flash: tuple[tuple[str, Flash], ...] = ()

    @property
    def name(self) -> str:
        """As in tables and flags."""
        return "llama.cpp"

    def command(self, mode: str, port: int) -> list[str]:
        """The command line of a mode."""
        chosen = dict(self.flash)
        flash = chosen.get(mode, chosen.get(PLAIN, "on"))
        drafting = [] if mode in (PLAIN, PREFILL) else ["--spec-type", *shlex.split(mode)]
        threads = str(self.threads)
        own = ["--model", str(self.model), "--ctx-size", str(self.context), "--flash-attn", flash]
        own += ["--threads", threads, "--threads-batch", threads, *FLAGS]
        return [str(self.binary), *own, *drafting, "--host", "127.0.0.1", "--port", str(port)]

    def start(self, mode: str) -> Server:
        """Start a server and wait until it answers.

        Raises:
            PeerError: it ended, or did not come up in time.
        """
        port = free_port()
        child = Child(f"{self.name} ({mode})", self.command(mode, port))
        try:
            _wait(child, port, self.start_seconds)
        except BaseException:
            child.stop()
            raise
        return LlamaServer(child, port)

    def about(self) -> dict[str, Any]:
        """Version, flash attention as chosen, and the command of each mode."""
        modes = (PLAIN, PREFILL, *self.speculations)
        return {
            "version": version(self.binary),
            "flash_attention": dict(self.flash),
            "commands": {mode: shlex.join(self.command(mode, 0)) for mode in modes},
        }


class LlamaServer:
    """A server that is up."""

    def __init__(self, child: Child, port: int) -> None:
        self._child, self._port = child, port

    def complete(self, job: Job) -> Answer:
        """Ask by ``/completion``, which takes ids.

        Raises:
            PeerError: it died, refused, kept a part of an earlier prompt, or cut this one.
        """
        body = json.dumps(request(job))
        try:
            status, content = _ask(self._port, "POST", "/completion", body, ANSWER_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            raise self._child.failure(f"no answer ({error!r})") from error
        if status != 200:
            raise self._child.failure(f"HTTP {status}: {content.decode(errors='replace')[:300]}")
        try:
            return answer(job, json.loads(content))
        except (ValueError, KeyError, TypeError) as error:
            raise self._child.failure(f"an answer of another form ({error!r})") from error

    def stop(self) -> None:
        """End it."""
        self._child.stop()


def request(job: Job) -> dict[str, Any]:
    """What ``/completion`` is sent: greedy by the sampler that costs least."""
    return {
        "prompt": job.ids,
        "n_predict": job.max_tokens,
        "ignore_eos": job.ignore_eos,
        "temperature": 0.0,
        "samplers": ["top_k"],
        "top_k": 1,
        "repeat_penalty": 1.0,
        "cache_prompt": False,
        "return_tokens": True,
    }


def answer(job: Job, content: dict[str, Any]) -> Answer:
    """What its answer says; the times are its own, and a first id comes with the prompt.

    Raises:
        PeerError: a part of the prompt was taken from a cache, or cut off.
        KeyError: something is missing.
    """
    timings = content["timings"]
    took = (timings["cache_n"], timings["prompt_n"])
    if took != (0, len(job.ids)):
        raise PeerError(
            f"llama.cpp: took {took[0]} prompt ids from its cache and computed {took[1]}: expected "
            f"0 and {len(job.ids)}; it was started with flags that another release reads otherwise"
        )
    num_tokens, accepted = timings["predicted_n"], timings.get("draft_n_accepted", 0)
    return Answer(
        token_ids=list(content["tokens"]),
        text="",
        num_tokens=num_tokens,
        first_tokens=1,
        prompt_tokens=timings["prompt_n"],
        prefill_ms=timings["prompt_ms"],
        decode_ms=timings["predicted_ms"],
        # What it accepted behind an end token counts as accepted there, and was never emitted.
        steps=max(num_tokens - 1 - accepted, min(1, num_tokens - 1)),
        num_accepted=accepted,
        num_drafted=timings.get("draft_n", 0),
    )


def version(binary: Path) -> str:
    """What ``--version`` prints.

    Raises:
        PeerError: it cannot be run.
    """
    return " ".join(_output(binary, "--version").split())


def ngram_types(binary: Path) -> list[str]:
    """The values of ``--spec-type`` that need no draft model, as its help lists them.

    Raises:
        PeerError: it cannot be run, or lists none.
    """
    listed = re.search(r"^--spec-type\s+\[?([\w,|-]+)", _output(binary, "--help"), re.MULTILINE)
    names = re.split(r"[,|]", listed[1]) if listed else []
    found = [name for name in names if name.startswith("ngram")]
    if not found:
        raise PeerError(
            f"{binary.name} --help lists no --spec-type that begins with ngram: expected a release "
            "of 2026; build one with `python -m benchmarks.peers build`"
        )
    return found


def synthetic_type(num_draft: int, acceptance: float) -> str:
    """Drafts of K tokens by the file's own head, each accepted with that probability.

    The server takes what is accepted up to each position: a, a^2 .. a^K. Its answers mean nothing.
    """
    rates = ",".join(f"{acceptance**place:.9g}" for place in range(1, num_draft + 1))
    return f"draft-mtp --spec-draft-n-max {num_draft} --spec-synth-rates {rates}"


def fastest_flash(
    engine: LlamaCpp, probes: Iterable[Job]
) -> tuple[tuple[tuple[str, Flash], ...], dict[str, dict[Flash, float]]]:
    """Measure flash attention on and off on the same prompts, in turns.

    Args:
        engine: its own choice is not looked at.
        probes: a prompt each; the first warms up.

    Returns:
        The faster setting of ``plain`` and of ``prefill``, and the median milliseconds behind it:
        of a step by setting, and of a prompt.
    """
    settings: tuple[Flash, Flash] = ("on", "off")
    servers: dict[Flash, Server] = {}
    answers: dict[Flash, list[Answer]] = {setting: [] for setting in settings}
    try:
        for setting in settings:
            servers[setting] = _with_flash(engine, setting).start(PLAIN)
        for number, probe in enumerate(probes):
            for setting in settings[:: -1 if number % 2 else 1]:
                answers[setting].append(servers[setting].complete(probe))
    finally:
        for server in servers.values():
            server.stop()
    times: dict[str, dict[Flash, float]] = {
        PLAIN: {s: median(a.decode_ms / a.steps for a in answers[s][1:]) for s in settings},
        PREFILL: {s: median(a.prefill_ms for a in answers[s][1:]) for s in settings},
    }
    chosen = tuple((mode, min(settings, key=times[mode].__getitem__)) for mode in times)
    return chosen, times


def _with_flash(engine: LlamaCpp, setting: Flash) -> LlamaCpp:
    return replace(engine, flash=((PLAIN, setting),))


def _output(binary: Path, flag: str) -> str:
    try:
        done = subprocess.run(
            [binary, flag], capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"cannot run {binary} {flag}: {error}") from error
    return done.stdout + done.stderr


def _wait(child: Child, port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if child.has_ended:
            raise child.failure("it ended before it came up")
        if _is_up(port):
            return
        time.sleep(POLL_SECONDS)
    raise child.failure(f"it did not come up in {seconds:g} seconds (--start-seconds)")


def _is_up(port: int) -> bool:
    try:
        return _ask(port, "GET", "/health", None, 5.0)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _ask(port: int, method: str, path: str, body: str | None, timeout: float) -> tuple[int, bytes]:
    """Status and content, over a connection of its own: the server closes those that wait."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
