# Recording of sample.

cdef extern from "sample.h":
    ctypedef struct SampleArgs "struct sample_args":
        float *logits
        size_t stride
        const void *draws
        const void *edits
        const int *tokens
        const int *positions
        const int *row_seqs
        const int *row_offsets
        int *ids
        int *wrong
        int num_rows
        int size
    size_t draw_scratch(int size)

cdef extern from *:
    "static kernel_fn *sample_kernel(int level) { return SELECT_KERNEL(sample, level); }"
    kernel_fn *sample_kernel(int level)


def record_sample(Tape tape, logits, step, draws, edits, ids):
    """Append one phase, a part per row of logits [T, V] f32."""
    cdef SampleArgs args
    cdef int num_seqs = len(draws)
    wrong = bytearray(4 * num_seqs)
    args.logits = <float *>address(logits)
    args.draws = address(draws)
    args.edits = address(edits)
    args.tokens = <const int *>address(step.tokens)
    args.positions = <const int *>address(step.positions)
    args.row_seqs = <const int *>address(step.row_seqs)
    args.row_offsets = <const int *>address(step.row_offsets)
    args.ids = <int *>address(ids)
    args.wrong = <int *><char *>wrong
    args.num_rows, args.size = logits.shape
    args.stride = args.size
    if not args.num_rows or not args.size:
        return
    tape.append("sample", sample_kernel(tape.level), &args, sizeof(args), args.num_rows,
                draw_scratch(args.size), (logits, step, draws, edits, ids, wrong))
    tape.count(args.wrong, num_seqs)
