"""Text as it comes: the pieces that steps give, and who may end them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator as Steps
from dataclasses import dataclass

from specrt.completion import Completion, completion
from specrt.errors import OptionError
from specrt.gguf.detokenizer import held_back, take_text
from specrt.speculative.request import Request
from specrt.stats import Origin, Stats


@dataclass(frozen=True, slots=True)
class Piece:
    """What a step added to a stream: whole characters, and the ids that came with them.

    Args:
        text: may be empty while a character or a stop string is unfinished.
        token_ids: ids emitted since the last piece.
        origins: where each of them came from.
    """

    text: str
    token_ids: list[int]
    origins: list[Origin]

    def __str__(self) -> str:
        return self.text


Pieces = Steps[Piece, None, None]


class Stream:
    """An iterator over pieces, one per step.

    Closing it, leaving its ``with`` block, its end or an error in it gives the sequence back. A
    close while a step runs, in another thread or around a signal handler, waits for nothing: the
    step ends, its piece is given out, and then the stream is closed.

    Args:
        pieces: the steps; Python lets one thread at a time into them.
        request: what they step.
        release: called when no step can follow, perhaps more than once.

    Attributes:
        completion: what was generated, once the stream has ended or was closed; None before.
    """

    def __init__(self, pieces: Pieces, request: Request, release: Callable[[], None]) -> None:
        self._pieces = pieces
        self._request = request
        self._closing = False
        self.completion: Completion | None = None
        self.release = release

    @property
    def stats(self) -> Stats:
        """Statistics so far."""
        return self._request.stats

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        try:
            piece = next(self._pieces)
        except BaseException as error:
            if _never_entered(error):
                raise OptionError(
                    "another step of this stream is running: expected one thread at a time; use a "
                    "stream for each"
                ) from None
            self.close()
            raise
        if self._closing:
            self.close()
        return piece

    def close(self) -> None:
        """End the generation here, or behind the step that runs; a second call changes nothing."""
        self._closing = True
        try:
            self._pieces.close()
        except ValueError:  # it is running: who runs it comes here next
            return
        if self.completion is None:
            done = completion(self._request)
            # Another thread that was here first may have let a next turn have the sequence.
            self.completion = self.completion or done
        self.release()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(slots=True)
class Shown:
    """How much of a request a stream has shown."""

    bytes: int = 0
    ids: int = 0

    def piece(self, request: Request) -> Piece:
        """What came since, in whole characters, without what may become a stop string."""
        sequence, cursor = request.sequence, request.sequence.cursor
        final = cursor.finish_reason is not None
        data = bytes(sequence.text[self.bytes : cursor.text_len])
        end = len(data) - (0 if final else held_back(data, request.boundary.stops))
        text, taken = take_text(data, 0, end, final=final)
        self.bytes += taken
        first = sequence.prompt_len + self.ids
        token_ids = sequence.history[first : cursor.num_tokens].tolist()
        origins = request.stats.origins[self.ids : self.ids + len(token_ids)]
        self.ids += len(token_ids)
        return Piece(text, token_ids, origins)


def _never_entered(error: BaseException) -> bool:
    """True if ``next`` refused a generator that is running: no frame of it was reached."""
    traceback = error.__traceback__
    return isinstance(error, ValueError) and traceback is not None and traceback.tb_next is None
