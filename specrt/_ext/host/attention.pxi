# Recording of attention.

cdef extern from "attention.h":
    ctypedef struct AttentionArgs "struct attention_args":
        const float *q
        float *out
        KVCache cache
        KVStep step
        const int *lowest
        const int *row_offsets
        const float *sinks
        int num_rows, num_heads, window
        float scale, softcap
        int block_rows, num_blocks, num_groups, max_chunks
        void *const *partials
        int *num_finished
    ctypedef struct AttentionScratch "struct attention_scratch":
        pass
    int QUERIES
    size_t partial_floats(int row_dims, int max_chunks)
    size_t attention_scratch(AttentionScratch *s, char *base, int dims, int row_dims, int queries,
                             int max_chunks)

cdef extern from *:
    "static kernel_fn *attention_kernel(int level) { return SELECT_KERNEL(attention, level); }"
    kernel_fn *attention_kernel(int level)

# Verify windows are cut along the keys too, into at least so many parts. A prefill has rows enough,
# and the results of all its single chunks would not fit anywhere.
cdef int SPLIT_ROWS = 16, SPLIT_PARTS = 16


cdef int most_chunks(int num_pages, int window, int num_rows_ahead):
    """Chunks of which a row may see something."""
    cdef long long num_seen = <long long>window + num_rows_ahead
    return <int>min(num_pages, (num_seen - 2) // _PAGE + 2 if window else num_pages)


def record_attention(Tape tape, q, layer, step, float scale, int window, float softcap, bint ahead,
                     sinks, out):
    """Append one phase over blocks of rows, KV heads and, for few rows, groups of chunks: who
    finishes the last group merges them all. q is [T, H * Dh] f32, of the step's first rows."""
    cdef AttentionArgs args
    cdef AttentionScratch scratch
    cdef int per_head, tasks, most_rows
    args.q = <const float *>address(q)
    args.out = <float *>address(out)
    args.cache = cache_struct(layer)
    args.step = step_struct(step, layer)
    args.lowest = <const int *>address(step.lowest)
    args.row_offsets = <const int *>address(step.row_offsets) if ahead else NULL
    args.sinks = <const float *>address(sinks) if sinks is not None else NULL
    args.num_rows = len(q)
    args.num_heads = q.shape[1] // layer.head_dim
    args.window = window
    args.scale = scale
    args.softcap = softcap
    per_head = args.num_heads // layer.num_heads
    most_rows = max(1, QUERIES // per_head)
    args.num_blocks = (args.num_rows + most_rows - 1) // most_rows
    args.block_rows = (args.num_rows + args.num_blocks - 1) // max(1, args.num_blocks)
    args.max_chunks = most_chunks(step.page_table.shape[1], window,
                                  len(step.positions) - 1 if ahead else 0)
    tasks = max(1, args.num_blocks * layer.num_heads)
    args.num_groups = 1
    if args.num_rows <= SPLIT_ROWS:
        args.num_groups = max(1, min((SPLIT_PARTS + tasks - 1) // tasks, args.max_chunks))
    args.partials = team_shared(tape.team.team)
    num_finished = bytearray(4 * tasks)
    args.num_finished = <int *>address(num_finished)
    if args.num_groups > 1:
        tape.team.reserve(0, 4 * partial_floats(args.cache.row_dims, args.max_chunks)
                          * <size_t>(args.block_rows * per_head) * <size_t>tasks)
    tape.append("attention", attention_kernel(tape.level), &args, sizeof(args),
                args.num_blocks * layer.num_heads * args.num_groups,
                attention_scratch(&scratch, NULL, layer.head_dim, args.cache.row_dims,
                                  args.block_rows * per_head, args.max_chunks),
                (q, layer, step, sinks, out, num_finished))
    if args.num_rows:
        tape.count(args.num_finished, tasks)
