"""The API: load a model, generate, chat, look at its logits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast, overload

import numpy as np

from specrt.assets import FILES, TINY
from specrt.completion import Completion
from specrt.devices import available_memory, make_ops
from specrt.drafters import check_drafter
from specrt.drafters.draft_ids import read_draft_ids
from specrt.drafters.loading import load_head
from specrt.errors import OptionError
from specrt.generate import INHERIT, Generator, Inherit, Message, Prompt, Spec, chat_ids
from specrt.gguf.chat_template import ChatTemplate
from specrt.gguf.reader import GGUFFile, open_gguf
from specrt.gguf.tokenizer import load_tokenizer
from specrt.memory import DEFAULT_SEQUENCES, MemoryPlan, memory_plan, usable_context
from specrt.models import check_architecture, load_trunk
from specrt.models.decoder import MAX_ROWS, Decoder
from specrt.ops import KVType, Ops
from specrt.options import MAX_DRAFT, SamplingParams, SpecOptions
from specrt.perplexity import logits_rows, perplexity
from specrt.progress import loading_bar
from specrt.pull import MODELS, cached
from specrt.session import Session
from specrt.settings import DRAFT_IDS, DRAFT_MODEL, GRAPH_BUDGET, spec_options
from specrt.speculative.draft_head import DraftHead
from specrt.speculative.registry import FindHead, Registry, default_registry
from specrt.speculative.speculation import Speculation
from specrt.state.messages import Declined
from specrt.stream import Stream

MAX_SEQUENCES = MAX_ROWS // (MAX_DRAFT + 1)


class LLM:
    """A loaded model; made by ``specrt.load``, which says what most of the arguments are.

    Args:
        spec: the speculation where a call sets none.
        drafter: the file of a draft head, in place of the model's own.
        draft_ids: a file of the only ids that the head guesses.
        find_head: makes another draft head for the loaded model; the registry knows who drafts
            with it.
        verbose: show how far loading is, where stderr is a terminal.

    Attributes:
        path: the file.
        tokenizer: ``encode(text, add_bos=None, parse_special=False)`` and ``decode(ids)``.
        chat_template: the file's.
        context: positions of a sequence.
        head_file: where a draft head would come from: the model's file, or an attached one.
    """

    def __init__(
        self,
        gguf: GGUFFile,
        ops: Ops,
        *,
        context: int,
        kv_type: KVType,
        spec: SpecOptions,
        max_sequences: int,
        registry: Registry | None = None,
        drafter: GGUFFile | None = None,
        draft_ids: str | os.PathLike[str] | None = None,
        find_head: FindHead | None = None,
        verbose: bool = False,
    ) -> None:
        self._available = available_memory(ops.device)
        self.gguf = gguf
        self.path = gguf.path
        self.context = context
        self.tokenizer = load_tokenizer(gguf)
        names = (self._piece(self.tokenizer.bos_id), self._piece(self.tokenizer.eos_id))
        self.chat_template = ChatTemplate(self.tokenizer.chat_template, *names)
        size = sum(tensor.nbytes for tensor in gguf.tensors.values())
        with loading_bar(size, verbose) as report:
            trunk = load_trunk(gguf, ops, context, report)
        self.target = Decoder(
            trunk, ops, context=context, kv_type=kv_type, max_sequences=max_sequences
        )
        registry = registry or default_registry()
        self.head_file = drafter or gguf
        vocab_size = self.target.vocab_size
        self._head_ids = None if draft_ids is None else read_draft_ids(draft_ids, vocab_size)
        own_head = partial(load_head, self.head_file, trunk, self.target, self._head_ids)
        find_head = find_head or own_head

        def found() -> DraftHead | Declined | None:
            with self.generator.runtime.lock:  # another thread's step records and runs ops too
                return find_head()

        self.speculation = Speculation(self.target, registry, found)
        self.generator = Generator(self.target, self.tokenizer, self.speculation, spec)
        self.speculation.resolve(spec)  # so that a bad name is told now

    def warm_up(self) -> None:
        """Take two steps, and measure rows between them, which else the first request would do."""
        resolved = self.speculation.resolve(self.generator.spec)
        measures = resolved.policy().rows is not None
        if self.context > 2 and resolved.speculators and measures:
            self.generate([0], SamplingParams(max_tokens=2, ignore_eos=True))

    @overload
    def generate(  # type: ignore[overload-overlap]  # a str is a sequence of str: this comes first
        self,
        prompt: Prompt,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        spec: Spec = INHERIT,
    ) -> Completion: ...

    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        spec: Spec = INHERIT,
    ) -> list[Completion]: ...

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        spec: Spec = INHERIT,
    ) -> Completion | list[Completion]:
        """Complete a prompt, or each prompt of a list.

        Args:
            prompt: text, ids, or a list of either.
            params: one for all, or one per prompt; None is greedy to an end token.
            spec: the speculation of this call; omitted: as loaded; a name: as loaded but for who
                drafts; None: off.

        Returns:
            A completion, or a list of them if ``prompt`` is one.

        Raises:
            OptionError: the prompt is empty, or has ids outside the vocabulary.
            ContextError: it does not fit.
        """
        if not isinstance(prompt, str | Sequence | np.ndarray):
            raise OptionError(
                f"prompt is {type(prompt).__name__}: expected text, ids, or a list of either"
            )
        single = isinstance(prompt, str) or (
            len(prompt) > 0 and isinstance(prompt[0], int | np.integer)
        )
        prompts = cast("list[Prompt]", [prompt] if single else list(prompt))
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        if not isinstance(params, Sequence):
            raise OptionError(
                f"params is {type(params).__name__}: expected SamplingParams, or a list of them"
            )
        if len(params) != len(prompts):
            raise OptionError(
                f"{len(params)} sampling params for {len(prompts)} prompts: expected one for all, "
                "or one for each"
            )
        ids = [self.generator.ids(one) for one in prompts]
        completions = self.generator.complete(ids, list(params), spec)
        return completions[0] if single else completions

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, spec: Spec = INHERIT
    ) -> Stream:
        """Pieces of the completion as they come; see ``generate``."""
        ids = self.generator.ids(prompt)
        return self.generator.stream(ids, params or SamplingParams(), spec)

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        spec: Spec = INHERIT,
        **variables: Any,
    ) -> Completion:
        """Complete a chat, rendered by the file's own template.

        Args:
            messages: each with ``role`` and ``content``.
            variables: what else the template reads, as ``enable_thinking=False``.

        Raises:
            OptionError: these are no messages, or the template refuses them.
            ContextError: they do not fit.
        """
        ids = chat_ids(self.tokenizer, self.chat_template, messages, **variables)
        return self.generator.complete([ids], [params or SamplingParams()], spec)[0]

    @property
    def plan(self) -> MemoryPlan:
        """What the model needs in memory, beside what the machine had before it was loaded."""
        target = self.target
        plan = memory_plan(
            self.gguf,
            self.context,
            target.kv_type,
            target.max_sequences,
            target.ops.device,
            self.head_file if self.speculation.loaded_head else None,
            self._head_ids,
        )
        return replace(plan, available=self._available)

    def session(self) -> Session:
        """A conversation that keeps what it has consumed between turns."""
        return Session(self)

    def logits(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The logits after each id, computed in a free sequence.

        Args:
            ids: token ids, at most ``context``.

        Returns:
            [T, V] float32.
        """
        with self.generator.runtime.lock:
            return logits_rows(self.target, self.generator.ids(ids))

    def perplexity(self, text: str, n_ctx: int = 512) -> float:
        """exp of the mean negative log likelihood over the second half of each chunk of a text.

        Args:
            text: at least ``n_ctx`` tokens; a last, shorter chunk is dropped.
            n_ctx: tokens of a chunk.

        Source: llama.cpp's perplexity tool, whose figures it is comparable with.
        """
        with self.generator.runtime.lock:
            return perplexity(self.target, self.tokenizer, text, n_ctx)

    def declined(self, spec: Spec = INHERIT) -> list[Declined]:
        """Who cannot draft for this model under these options, and why."""
        return self.speculation.resolve(self.generator.options(spec)).declined

    def _piece(self, token: int | None) -> str:
        if token is None:
            return ""
        return self.tokenizer.token_bytes(token, skip_special=False).decode(errors="replace")


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    draft_model: str | os.PathLike[str] | None = None,
    draft_ids: str | os.PathLike[str] | None = None,
    device: str = "auto",
    context: int | None = None,
    kv_type: KVType = "f16",
    spec: Spec = INHERIT,
    threads: int | None = None,
    graph_budget: int | None = None,
    max_sequences: int = DEFAULT_SEQUENCES,
    registry: Registry | None = None,
    verbose: bool = True,
) -> LLM:
    """Load a GGUF model.

    Args:
        path: the file, any part of a split one, a name that was pulled, or "tiny" or None:
            the model that comes with specrt.
        draft_model: a drafter's file, or "tiny-dflash2": the one that comes with specrt for "tiny".
        draft_ids: a file of ids, one a line: the draft head guesses only those, which is faster
            where the LM head is most of a draft. ``python -m specrt count-ids`` makes one.
        device: "cpu", "cuda", "auto" (cuda where it is usable, else cpu), or for checking, slow:
            "emulator" (the CUDA kernels on the CPU) and "reference".
        context: positions of a sequence; None: the model's, at most 8192.
        kv_type: "f16", "f32" or "q8_0".
        spec: speculation where a call sets none: a name, several joined by commas, "auto", "none",
            ``SpecOptions``; omitted: the environment, else "auto".
        threads: of the CPU; None: as many as the process may use.
        graph_budget: device memory of CUDA graphs, MiB, 0 for none; None: the environment, else
            256.
        max_sequences: how many can be open at a time.
        registry: the speculators to choose from; None: specrt's own.
        verbose: print the memory plan to stderr, and show there how far loading is if it takes
            long and stderr is a terminal.

    Raises:
        FormatError, UnsupportedError, MismatchError: the file cannot be run, and why.
        OptionError: an option is out of its range.
    """
    if isinstance(spec, SpecOptions) or spec is None:
        options = SpecOptions.of(spec)
    else:  # a name leaves the rest to the environment
        options = spec_options({} if isinstance(spec, Inherit) else {"type": spec})
    if not 1 <= max_sequences <= MAX_SEQUENCES:
        raise OptionError(f"max_sequences = {max_sequences}: expected 1 to {MAX_SEQUENCES}")
    if kv_type not in ("f16", "f32", "q8_0"):
        raise OptionError(f"kv_type = {kv_type!r}: expected 'f16', 'f32' or 'q8_0'")
    budget = GRAPH_BUDGET.from_environment() if graph_budget is None else graph_budget
    ops = make_ops(device, threads, budget, verbose)
    gguf = open_gguf(find_model(path))
    check_architecture(gguf)
    draft_model = DRAFT_MODEL.from_environment() if draft_model is None else draft_model
    drafter = None if draft_model is None else open_gguf(find_model(draft_model))
    if drafter is not None:
        check_drafter(gguf, drafter)
    llm = LLM(
        gguf,
        ops,
        context=usable_context(gguf, context),
        kv_type=kv_type,
        spec=options,
        max_sequences=max_sequences,
        registry=registry,
        drafter=drafter,
        draft_ids=DRAFT_IDS.from_environment() if draft_ids is None else draft_ids,
        verbose=verbose,
    )
    llm.warm_up()
    if verbose:
        print(llm.plan, file=sys.stderr)
    return llm


def find_model(path: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """The file of a model or a drafter: a path as it is, what comes with specrt or was pulled by
    name, and for None the embedded model.

    Raises:
        OptionError: no such file, and no model of that name was pulled.
    """
    name = TINY if path is None else os.fspath(path)
    if path is not None and (os.path.exists(name) or name.endswith(".gguf")):
        return path
    if name in FILES:
        return FILES[name]
    if name not in MODELS:
        raise OptionError(
            f"no file {name!r}, and no model of that name: expected a path, or one of "
            f"{', '.join((*FILES, *MODELS))}"
        )
    found = cached(name)
    if found is None:
        raise OptionError(
            f"{name} is not there yet: run `python -m specrt pull {name}`, or pass a GGUF file"
        )
    return found
