# Recording of attention.

cdef extern from "attention.h":
    ctypedef struct AttentionArgs "struct attention_args":
        const float *q
        float *out
        KVCache cache
        KVStep step
        int num_rows, num_heads, window
        float scale, softcap
        int block_rows, num_blocks, num_groups
        void *const *partials
        int max_chunks
    ctypedef struct AttentionScratch "struct attention_scratch":
        pass
    int QUERIES, PARTIAL_TAIL
    size_t attention_scratch(AttentionScratch *s, char *base, int dims, int row_dims, int queries)

cdef extern from *:
    """
    static kernel_fn *attention_kernel(int level) { return SELECT_KERNEL(attention, level); }
    static kernel_fn *attention_merge_kernel(int level)
    { return SELECT_KERNEL(attention_merge, level); }
    """
    kernel_fn *attention_kernel(int level)
    kernel_fn *attention_merge_kernel(int level)

# Verify windows are cut along the keys too, until there are about so many parts. A prefill has rows
# enough, and the results of all its single chunks would not fit anywhere.
cdef int SPLIT_ROWS = 16, SPLIT_PARTS = 16


def record_attention(Tape tape, q, layer, step, float scale, int window, float softcap, out):
    """Append one phase over blocks of rows, KV heads and groups of chunks; for few rows a second
    one that merges the chunks, a part per row and head of q [T, H * Dh] f32."""
    cdef AttentionArgs args
    cdef AttentionScratch scratch
    cdef int per_head, parts
    cdef size_t partial_bytes
    args.q = <const float *>address(q)
    args.out = <float *>address(out)
    args.cache = cache_struct(layer)
    args.step = step_struct(step, layer)
    args.num_rows = len(q)
    args.num_heads = q.shape[1] // layer.head_dim
    args.window = window
    args.scale = scale
    args.softcap = softcap
    per_head = args.num_heads // layer.num_heads
    args.block_rows = max(1, QUERIES // per_head)
    args.num_blocks = (args.num_rows + args.block_rows - 1) // args.block_rows
    args.max_chunks = step.page_table.shape[1]
    if window:
        args.max_chunks = min(args.max_chunks, (window - 2) // _PAGE + 2)
    parts = args.num_blocks * layer.num_heads
    args.num_groups = 1
    if args.num_rows <= SPLIT_ROWS:
        args.num_groups = max(1, min(SPLIT_PARTS // max(1, parts), args.max_chunks))
    args.partials = team_shared(tape.team.team)
    if args.num_groups > 1:
        partial_bytes = 4 * <size_t>(args.cache.row_dims + PARTIAL_TAIL) * args.max_chunks
        tape.team.reserve(0, partial_bytes * args.num_heads * args.num_rows)
    tape.append("attention", attention_kernel(tape.level), &args, sizeof(args), parts * args.num_groups,
                attention_scratch(&scratch, NULL, layer.head_dim, args.cache.row_dims,
                                  args.block_rows * per_head), (q, layer, step, out))
    if args.num_groups > 1:
        tape.append("attention_merge", attention_merge_kernel(tape.level), &args, sizeof(args),
                    args.num_rows * args.num_heads, 4 * (args.cache.row_dims + PARTIAL_TAIL), ())
