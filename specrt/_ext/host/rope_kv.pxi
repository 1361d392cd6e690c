# Recording of rope_kv.

cdef extern from "rope_kv.h":
    ctypedef struct RopeKVArgs "struct rope_kv_args":
        float *q
        float *k
        float *v
        const float *q_norm
        const float *k_norm
        const float *table
        KVCache cache
        KVStep step
        int num_rows, num_heads, num_pairs, pairing
        float eps
    int ROPE_ROWS, PAIR_NEOX, PAIR_INTERLEAVED
    size_t rope_kv_scratch(int dims)

cdef extern from *:
    "static kernel_fn *rope_kv_kernel(int level) { return SELECT_KERNEL(rope_kv, level); }"
    kernel_fn *rope_kv_kernel(int level)

PAIRINGS = {"neox": PAIR_NEOX, "interleaved": PAIR_INTERLEAVED}


def record_rope_kv(Tape tape, q, k, v, layer, step, rope, q_norm, k_norm, float eps):
    """Append one phase, a part per 32 rows of q [T, H * Dh] f32 and KV head."""
    cdef RopeKVArgs args
    cdef int num_blocks
    args.q = <float *>address(q)
    args.k = <float *>address(k)
    args.v = <float *>address(v)
    args.q_norm = <const float *>address(q_norm)
    args.k_norm = <const float *>address(k_norm)
    args.table = <const float *>address(rope.table)
    args.cache = cache_struct(layer)
    args.step = step_struct(step, layer)
    args.num_rows = len(q)
    args.num_heads = q.shape[1] // layer.head_dim
    args.num_pairs = rope.table.shape[1]
    args.pairing = PAIRINGS[rope.pairing]
    args.eps = eps
    num_blocks = (args.num_rows + ROPE_ROWS - 1) // ROPE_ROWS
    tape.append("rope_kv", rope_kv_kernel(tape.level), &args, sizeof(args),
                num_blocks * layer.num_heads, rope_kv_scratch(layer.head_dim),
                (q, k, v, layer, step, rope, q_norm, k_norm))
