"""What an engine is asked and what it answers: the seam between the bench and its contestants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from specrt.errors import SpecrtError

PLAIN: Final = "plain"
PREFILL: Final = "prefill"
"""The mode in which the time to a first token is taken; an engine may set other options for it."""


class PeerError(SpecrtError):
    """An engine is missing, did not come up, died, or answered something else than was asked."""


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt to go on with, greedily.

    Args:
        ids: of the prompt, by specrt's tokenizer and the file's template.
        text: the same, for engines that take text alone.
        max_tokens: most ids of the answer.
        ignore_eos: go on past end tokens.
    """

    ids: list[int]
    text: str
    max_tokens: int
    ignore_eos: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What came, and how long it took by the engine's own clock.

    Args:
        token_ids: of the answer; None if the engine tells text alone.
        text: of the answer, empty where there are ids.
        num_tokens: ids of the answer.
        first_tokens: of them, those that came with the first forward; decoding counts from there.
        prompt_tokens: ids of the prompt, by the engine's own count.
        prefill_ms: from the request to the first ids.
        decode_ms: from the first ids to the last.
        steps: forwards after the first ids.
        num_accepted: draft tokens that were emitted.
        num_drafted: draft tokens that were verified; None if the engine does not tell.
    """

    token_ids: list[int] | None
    text: str
    num_tokens: int
    first_tokens: int
    prompt_tokens: int
    prefill_ms: float
    decode_ms: float
    steps: int
    num_accepted: int = 0
    num_drafted: int | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Ids per second after the first ones; None if none followed."""
        later = self.num_tokens - self.first_tokens
        return 1e3 * later / self.decode_ms if later > 0 and self.decode_ms > 0 else None

    @property
    def ms_per_step(self) -> float | None:
        """Milliseconds per forward after the first; None without any."""
        return self.decode_ms / self.steps if self.steps > 0 else None

    @property
    def prefill_tokens_per_second(self) -> float:
        """Ids of the prompt per second up to the first ids of the answer."""
        return 1e3 * self.prompt_tokens / self.prefill_ms


class Server(Protocol):
    """An engine that has come up in one mode; it is busy only within ``complete``."""

    def complete(self, job: Job) -> Answer:
        """Answer a prompt.

        Raises:
            PeerError: the engine died, or did not do what was asked.
        """
        ...

    def stop(self) -> None:
        """End its process; a second call changes nothing."""
        ...


class Engine(Protocol):
    """An engine that can be started, afresh each time."""

    @property
    def name(self) -> str:
        """As in tables and flags."""
        ...

    @property
    def speculations(self) -> Sequence[str]:
        """The modes beside ``plain`` and ``prefill``: each drafts in its own way."""
        ...

    def start(self, mode: str) -> Server:
        """Come up.

        Raises:
            PeerError: it did not, with the last lines of its log.
        """
        ...

    def about(self) -> dict[str, Any]:
        """Version, settings and commands, for JSON."""
        ...
