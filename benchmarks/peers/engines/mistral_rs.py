"""mistral.rs, which takes text alone and tells no ids."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.engine import Answer, Job
from benchmarks.peers.worker import Complete, Settings


def load(settings: Settings) -> Complete:
    """Load the model; its threads are Rayon's, by the environment."""
    import mistralrs

    model = Path(settings.model)
    which = mistralrs.Which.GGUF(
        quantized_model_id=str(model.parent), quantized_filename=model.name
    )
    runner = mistralrs.Runner(which=which, max_seqs=1, prefix_cache_n=0)

    def complete(job: Job) -> Answer:
        request = mistralrs.CompletionRequest(
            prompt=job.text,
            model="default",
            max_tokens=job.max_tokens,
            ignore_eos=job.ignore_eos,
            temperature=0.0,
        )
        response = runner.send_completion_request(request)
        usage = response.usage
        return Answer(
            token_ids=None,
            text=response.choices[0].text,
            num_tokens=usage.completion_tokens,
            first_tokens=1,
            prompt_tokens=usage.prompt_tokens,
            prefill_ms=1e3 * usage.total_prompt_time_sec,
            decode_ms=1e3 * usage.total_completion_time_sec,
            steps=usage.completion_tokens - 1,
            num_drafted=0,
        )

    return complete
