"""``chat``: turns over one session."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from specrt.cli import flags
from specrt.cli.answer import summary, tell, write
from specrt.errors import SpecrtError
from specrt.options import SamplingParams

if TYPE_CHECKING:
    from specrt.llm import LLM
    from specrt.session import Session

HELP = "talk with a model"
COMMANDS = "/reset  /save FILE  /load FILE  /help; Ctrl-C stops an answer, Ctrl-D ends"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    flags.add_model(parser)
    flags.add_sampling(parser)
    flags.add_chat(parser)
    flags.add_speculation(parser)


def run(args: argparse.Namespace) -> int:
    """Read turns from stdin until it ends."""
    params = flags.sampling_params(args)
    llm = flags.load_model(args, max_sequences=2)  # one more while a session is replaced
    chat = Chat(llm, params, flags.system_messages(args), flags.template_variables(args))
    if llm.chat_template.is_raw:
        flags.check_template(args, f"{llm.path} has none")
        tell("this file has no chat template: the model gets the bare text of the turns")
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 (gives input() a history)
        tell(COMMANDS)
    try:
        while (line := chat.read()) is not None:
            chat.hear(line)
    finally:
        chat.session.close()
    return 0


class Chat:
    """The session, and what is typed at it.

    Args:
        params: of every answer.
        opening: messages before the first turn.
        variables: for the chat template.
    """

    def __init__(
        self,
        llm: LLM,
        params: SamplingParams,
        opening: list[dict[str, str]],
        variables: dict[str, Any],
    ) -> None:
        self._llm, self._params = llm, params
        self._opening, self._variables = opening, variables
        self.session = self._new_session()

    def read(self) -> str | None:
        """The next line, None at the end of stdin."""
        while True:
            try:
                return input("> " if sys.stdin.isatty() else "").strip()
            except EOFError:
                if sys.stdin.isatty():
                    print()
                return None
            except KeyboardInterrupt:
                print()
                tell("Ctrl-D ends")

    def hear(self, line: str) -> None:
        """Answer a line, or do what it commands; what cannot be done is told."""
        command, _, argument = line.partition(" ")
        try:
            if command == "/reset":
                self._replace(self._new_session())
            elif command == "/save" and argument:
                self.session.save(argument.strip())
            elif command == "/load" and argument:
                self._load(argument.strip())
            elif command.startswith("/"):
                tell(COMMANDS)
            elif line:
                self._answer(line)
        except BrokenPipeError:
            raise  # nobody reads the answers any more
        except (SpecrtError, OSError) as error:
            tell(f"error: {error}")
        except KeyboardInterrupt:
            print(flush=True)
            tell("stopped before there was an answer: this turn is not kept")

    def _answer(self, content: str) -> None:
        """Stream an answer; a stopped one stays in the conversation as far as it came.

        Raises:
            KeyboardInterrupt: it was stopped before it said anything.
        """
        session, shown = self.session, ""
        stream = session.stream_send(content, self._params, **self._variables)
        before = session.messages
        try:
            for piece in stream:
                shown += piece.text
                write(piece.text)
        except KeyboardInterrupt:
            if not shown:
                raise
            turn = ({"role": "user", "content": content}, {"role": "assistant", "content": shown})
            session.messages = [*before, *turn]
        print(flush=True)
        tell(summary(stream.stats))

    def _new_session(self) -> Session:
        session = self._llm.session()
        session.messages = list(self._opening)
        return session

    def _load(self, path: str) -> None:
        from specrt.session import Session

        self._replace(Session.load(self._llm, path))
        tell(f"{len(self.session.messages)} messages, {self.session.cached_tokens} tokens")

    def _replace(self, session: Session) -> None:
        self.session.close()
        self.session = session
