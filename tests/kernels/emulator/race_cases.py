"""Small cases of every op with kernels: few threads, since each costs the sanitiser 0.5 ms."""

from specrt.bench.cases import (
    AcceptCase,
    AttentionCase,
    DraftCase,
    EmbedCase,
    GluCase,
    LinearCase,
    MoeCase,
    MtpCase,
    NormCase,
    QuantizeCase,
    RecurrentCase,
    RopeCase,
    RouteCase,
    RowsCase,
    TopKCase,
)

CASES = {
    "accept": (AcceptCase(2, 5),),
    "attention": (
        AttentionCase("f16", 3, 1, 48, 70, 1),
        AttentionCase("f32", 3, 1, 64, 70, 3),
        AttentionCase("q8_0", 3, 1, 64, 70, 9),
    ),
    "causal_conv": (RecurrentCase(1, 2, 16, 3, 2),),
    "copy": (RowsCase(336, 2), RowsCase(333, 2)),
    "draft_token": (DraftCase(9, 5),),
    "embed": (EmbedCase("Q4_K", 5, 256, 2),),
    "gated_delta": (RecurrentCase(1, 2, 33, 3, 2),),
    "glu": (GluCase("silu", 300, 4), GluCase("gelu_tanh", 333, 4), GluCase("silu", 96, 3, True)),
    "head": (LinearCase("Q8_0", 20, 96, 2),),
    "linear": (
        *(LinearCase("Q8_0", 20, 288, rows) for rows in (1, 9, 17)),
        LinearCase("Q8_0", 20, 288, 3, "int8x2"),
        LinearCase("Q4_K", 20, 768, 5),
        LinearCase("F16", 20, 100, 3),
    ),
    "moe": (
        *(MoeCase("Q8_0", 9, 2, 32, 64, rows, mixed=True) for rows in (1, 3, 20)),
        MoeCase("F16", 3, 2, 24, 40, 3),
    ),
    "mtp_project": (MtpCase("Q8_0", 5, 20, 96, 2), MtpCase("F16", 5, 20, 43, 2)),
    "quantize": (QuantizeCase(608, 2), QuantizeCase(96, 3, "int8x2")),
    "rms_norm": (NormCase(1300, 2), NormCase(333, 2, True), NormCase(1312, 2, prepares=True)),
    "rope_kv": (RopeCase("f16", 3, 1, 48, 70, 2), RopeCase("q8_0", 3, 1, 64, 70, 2, True)),
    "route": (RouteCase(40, 3, 5),),
    "sample": ((36, 2), (35, 2)),
    "select": (RowsCase(336, 2), RowsCase(333, 2)),
    "store_rows": (RowsCase(336, 2), RowsCase(333, 2)),
    "top_k": (TopKCase(300, 2, 9), TopKCase(77, 2, 3)),
}
