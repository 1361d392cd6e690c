# Recording of block_conv.

cdef extern from "block_conv.h":
    ctypedef struct BlockConvArgs "struct block_conv_args":
        const float *x
        const float *add
        const float *dynamic
        const float *base
        const int *row_seqs
        const int *row_offsets
        float *out
        Acts acts
        RowParts parts
        size_t dynamic_width
        int taps, groups, group
    size_t block_conv_scratch(const RowParts *parts)

cdef extern from *:
    "static kernel_fn *block_conv_kernel(int level) { return SELECT_KERNEL(block_conv, level); }"
    kernel_fn *block_conv_kernel(int level)


def record_block_conv(Tape tape, x, dynamic, base, step, int side, out, add, acts):
    """Append one phase over panels of rows of x [T, D] f32, and their columns."""
    cdef BlockConvArgs args
    args.x = <const float *>address(x)
    args.add = <const float *>address(add)
    args.dynamic = <const float *>address(dynamic[:, side * (dynamic.shape[1] // 2) :])
    args.base = <const float *>address(base[side])
    args.row_seqs = <const int *>address(step.row_seqs)
    args.row_offsets = <const int *>address(step.row_offsets)
    args.out = <float *>address(out)
    args.acts = acts_struct(acts, len(x))
    args.parts = row_parts(len(x), x.shape[1])
    args.dynamic_width = dynamic.shape[1]
    args.taps = base.shape[1]
    args.groups = dynamic.shape[1] // (2 * args.taps)
    args.group = x.shape[1] // args.groups
    tape.append("block_conv", block_conv_kernel(tape.level), &args, sizeof(args),
                num_row_parts(&args.parts), block_conv_scratch(&args.parts),
                (x, dynamic, base, step, out, add, acts))
