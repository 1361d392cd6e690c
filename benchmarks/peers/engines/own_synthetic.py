"""specrt with the file's own draft head, whose drafts are right as often as the mode says."""

from __future__ import annotations

from benchmarks.peers.engine import PLAIN, Answer, Job, PeerError
from benchmarks.peers.engines.own import streamed
from benchmarks.peers.worker import Complete, Settings


def mode(num_draft: int, acceptance: float) -> str:
    """K tokens in each draft, of which each is right with that probability."""
    return f"{num_draft} {acceptance:g}"


def load(settings: Settings) -> Complete:
    """Load the model; the modes are ``plain`` and those of ``mode``.

    Raises:
        PeerError: the file has no draft head.
    """
    import specrt
    from specrt.bench.scripted import SyntheticHead
    from specrt.speculative.algorithms.draft_head import DraftHeadSpeculator
    from specrt.speculative.registry import SpeculatorFactory, default_registry

    plain = specrt.SpecOptions("none")
    number, acceptance = ("1", "0") if settings.mode == PLAIN else settings.mode.split()
    made: list[SyntheticHead] = []

    def create(_: object, head: object, __: object) -> SyntheticHead:
        made.append(SyntheticHead(DraftHeadSpeculator(head), float(acceptance)))  # type: ignore[arg-type]
        return made[-1]

    registry = default_registry()
    registry.register(SpeculatorFactory(SyntheticHead.name, True, create))
    spec = specrt.SpecOptions(SyntheticHead.name, num_draft=int(number), governor=False)
    llm = specrt.load(
        settings.model,
        device="cpu",
        context=settings.context,
        threads=settings.threads,
        spec=plain if settings.mode == PLAIN else spec,
        registry=registry,
        max_sequences=1,
        verbose=False,
    )
    if settings.mode == PLAIN:
        return lambda job: streamed(llm, job, plain)
    if not made:
        reasons = "; ".join(one.reason for one in llm.speculation.resolve(spec).declined)
        raise PeerError(f"{settings.model}: expected a draft head in the file: {reasons}")

    def complete(job: Job) -> Answer:
        params = specrt.SamplingParams(max_tokens=job.max_tokens, ignore_eos=job.ignore_eos)
        truth = llm.generate(job.ids, params, spec=plain)
        made[0].text = truth.prompt_token_ids + truth.token_ids
        return streamed(llm, job, spec)

    return complete
