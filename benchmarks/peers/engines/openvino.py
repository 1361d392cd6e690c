"""OpenVINO GenAI, which turns a GGUF file's weights into its own."""

from __future__ import annotations

from typing import Final

from benchmarks.peers.engine import PLAIN, PREFILL, Answer, Job, PeerError
from benchmarks.peers.worker import Complete, Settings

LOOKUP: Final = "prompt-lookup"
DRAFT_TOKENS, NGRAM = 5, 3


def load(settings: Settings) -> Complete:
    """Load the model.

    Raises:
        PeerError: it cannot read the file.
    """
    import numpy as np
    import openvino
    import openvino_genai as genai

    looks_up = settings.mode not in (PLAIN, PREFILL)
    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = 1
    scheduler.max_num_batched_tokens = settings.context  # else a prompt is cut in parts of 256
    try:
        pipeline = genai.LLMPipeline(
            settings.model,
            "CPU",
            scheduler_config=scheduler,
            prompt_lookup=looks_up,
            INFERENCE_NUM_THREADS=settings.threads,
            KV_CACHE_PRECISION="f16",  # u8 by default
        )
    except RuntimeError as error:
        raise PeerError(f"openvino-genai cannot read {settings.model}: {error}") from error

    def complete(job: Job) -> Answer:
        config = genai.GenerationConfig()
        config.max_new_tokens = job.max_tokens
        config.ignore_eos = job.ignore_eos
        config.do_sample = False
        config.apply_chat_template = False
        config.set_eos_token_id(pipeline.get_tokenizer().get_eos_token_id())
        if looks_up:
            config.num_assistant_tokens = DRAFT_TOKENS
            config.max_ngram_size = NGRAM
        result = pipeline.generate(openvino.Tensor(np.array([job.ids], np.int64)), config)
        metrics = result.perf_metrics
        times, counts = metrics.raw_metrics.m_new_token_times, metrics.raw_metrics.m_batch_sizes
        token_ids = [int(token) for token in result.tokens[0]]
        return Answer(
            token_ids=token_ids,
            text="",
            num_tokens=sum(counts),
            first_tokens=counts[0],
            prompt_tokens=metrics.get_num_input_tokens(),
            prefill_ms=metrics.get_ttft().mean,
            decode_ms=times[-1] - times[0],
            steps=len(counts) - 1,
            num_accepted=sum(counts) - len(counts),
            num_drafted=None if looks_up else 0,
        )

    return complete
