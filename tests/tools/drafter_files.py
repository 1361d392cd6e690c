"""What the trained drafters' F16 files hold: keys with their types, tensors with their shapes."""

VALUES = {
    "general.architecture": ("STRING", "dflash"),
    "general.file_type": ("UINT32", 1),
    "general.type": ("STRING", "model"),
    "general.version": ("STRING", "1"),
    "general.license": ("STRING", "PSF-2.0"),
    "general.base_model.count": ("UINT32", 1),
    "general.base_model.0.name": ("STRING", "specrt-tiny-py"),
    "general.base_model.0.version": ("STRING", "1"),
    "dflash.context_length": ("UINT32", 2048),
    "dflash.embedding_length": ("UINT32", 256),
    "dflash.block_count": ("UINT32", 2),
    "dflash.feed_forward_length": ("UINT32", 768),
    "dflash.attention.head_count": ("UINT32", 4),
    "dflash.attention.head_count_kv": ("UINT32", 2),
    "dflash.attention.key_length": ("UINT32", 64),
    "dflash.attention.value_length": ("UINT32", 64),
    "dflash.attention.layer_norm_rms_epsilon": ("FLOAT32", 9.999999974752427e-07),
    "dflash.attention.causal": ("BOOL", False),
    "dflash.rope.dimension_count": ("UINT32", 64),
    "dflash.rope.dimension_sections": ("ARRAY INT32", [32, 0, 0, 0]),
    "dflash.rope.freq_base": ("FLOAT32", 10000.0),
    "dflash.block_size": ("UINT32", 8),
    "dflash.target_layers": ("ARRAY INT32", [1, 3, 5]),
}
"""The same in the files of all kinds."""

OTHER_VALUES = {
    "dflash": {
        "general.name": ("STRING", "specrt-tiny-py-dflash"),
        "general.description": ("STRING", "dflash drafter for specrt-tiny-py"),
    },
    "dflash2": {
        "general.name": ("STRING", "specrt-tiny-py-dflash2"),
        "general.description": ("STRING", "dflash2 drafter for specrt-tiny-py"),
        "dflash.attention.sliding_window": ("UINT32", 128),
        "dflash.attention.sliding_window_pattern": ("ARRAY BOOL", [True, True]),
        "dflash.conv_kernel_size": ("UINT32", 4),
        "dflash.conv_group_size": ("UINT32", 16),
        "dflash.selector_rank": ("UINT32", 32),
        "dflash.selector_top_k": ("UINT32", 8),
    },
    "dspark": {
        "general.name": ("STRING", "specrt-tiny-py-dspark"),
        "general.description": ("STRING", "dspark drafter for specrt-tiny-py"),
        "dflash.sample_from_anchor": ("BOOL", True),
        "dflash.has_confidence_head": ("BOOL", True),
    },
}

OF_A_TRAINING = {
    "specrt.target_id": "STRING",
    "tokenizer.ggml.model": "STRING",
    "tokenizer.ggml.pre": "STRING",
    "tokenizer.ggml.tokens": "ARRAY STRING",
    "tokenizer.ggml.token_type": "ARRAY INT32",
    "tokenizer.ggml.merges": "ARRAY STRING",
    "tokenizer.ggml.eos_token_id": "UINT32",
    "tokenizer.ggml.padding_token_id": "UINT32",
    "tokenizer.ggml.mask_token_id": "UINT32",
    "tokenizer.ggml.add_bos_token": "BOOL",
}
"""Keys whose values the trunk and its tokenizer decide."""

LAYER = {
    "attn_norm.weight": ([256], "F32"),
    "ffn_norm.weight": ([256], "F32"),
    "attn_q.weight": ([256, 256], "F16"),
    "attn_k.weight": ([256, 128], "F16"),
    "attn_v.weight": ([256, 128], "F16"),
    "attn_output.weight": ([256, 256], "F16"),
    "attn_q_norm.weight": ([64], "F32"),
    "attn_k_norm.weight": ([64], "F32"),
    "ffn_gate.weight": ([256, 768], "F16"),
    "ffn_up.weight": ([256, 768], "F16"),
    "ffn_down.weight": ([768, 256], "F16"),
}
CONVOLUTIONS = {
    "attn_conv_base": ([256, 4, 2], "F32"),
    "attn_conv_proj.weight": ([256, 128], "F16"),
    "ffn_conv_base": ([256, 4, 2], "F32"),
    "ffn_conv_proj.weight": ([256, 128], "F16"),
}
AROUND = {
    "fc.weight": ([768, 256], "F16"),
    "enc.output_norm.weight": ([256], "F32"),
    "output_norm.weight": ([256], "F32"),
}
SELECTOR = {
    "selector_predecessor.weight": ([32, 4096], "F16"),
    "selector_successor.weight": ([32, 4096], "F16"),
    "selector_hidden.weight": ([256, 32], "F16"),
}
MARKOV = {
    "markov_w1.weight": ([32, 4096], "F16"),
    "markov_w2.weight": ([32, 4096], "F16"),
    "conf_proj.weight": ([288, 1], "F32"),
    "conf_proj.bias": ([1], "F32"),
}


def _layers(layer: dict) -> dict:
    return {f"blk.{i}.{name}": value for i in range(2) for name, value in layer.items()}


TENSORS = {
    "dflash": AROUND | _layers(LAYER),
    "dflash2": AROUND | _layers(LAYER | CONVOLUTIONS) | SELECTOR,
    "dspark": AROUND | _layers(LAYER) | MARKOV,
}
"""By kind and name: extents, the fastest first, and type."""
