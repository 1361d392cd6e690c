"""specrt itself, as the user of a stream sees it."""

from __future__ import annotations

import time

from benchmarks.peers.engine import PLAIN, PREFILL, Answer, Job
from benchmarks.peers.worker import Complete, Settings
from specrt.llm import LLM
from specrt.options import SamplingParams, SpecOptions


def load(settings: Settings) -> Complete:
    """Load the model, record all programs of prefill and of every number of rows.

    ``settings.options`` are those of ``SpecOptions``.
    """
    import specrt
    from specrt.bench.costs import WARM_TOKENS, row_seconds

    llm = specrt.load(
        settings.model,
        device="cpu",
        context=settings.context,
        threads=settings.threads,
        spec=specrt.SpecOptions(**settings.options),
        max_sequences=1,
        verbose=False,
    )
    spec = (
        llm.generator.spec if settings.mode not in (PLAIN, PREFILL) else specrt.SpecOptions("none")
    )
    most = llm.speculation.resolve(spec).num_draft + 1
    row_seconds(llm, most, WARM_TOKENS, rounds=1)

    return lambda job: streamed(llm, job, spec)


def streamed(llm: LLM, job: Job, spec: SpecOptions) -> Answer:
    """Answer a job, and note when each piece came."""
    params = SamplingParams(max_tokens=job.max_tokens, ignore_eos=job.ignore_eos)
    counts, times = [], [time.perf_counter()]
    with llm.stream(job.ids, params, spec=spec) as stream:
        for piece in stream:
            times.append(time.perf_counter())
            counts.append(len(piece.token_ids))
    assert stream.completion is not None
    stats = stream.completion.stats
    return Answer(
        token_ids=stream.completion.token_ids,
        text="",
        num_tokens=sum(counts),
        first_tokens=counts[0],
        prompt_tokens=stats.prompt_tokens,
        prefill_ms=1e3 * (times[1] - times[0]),
        decode_ms=1e3 * (times[-1] - times[1]),
        steps=len(counts) - 1,
        num_accepted=stats.num_accepted,
        num_drafted=stats.num_drafted,
    )
