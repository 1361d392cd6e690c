# Recording of rms_norm.

cdef extern from "rms_norm.h":
    ctypedef struct RmsNormArgs "struct rms_norm_args":
        const float *x
        const float *weight
        const float *add
        float *out
        Acts acts
        RowParts parts
        float eps

cdef extern from *:
    "static kernel_fn *rms_norm_kernel(int level) { return SELECT_KERNEL(rms_norm, level); }"
    kernel_fn *rms_norm_kernel(int level)


def record_rms_norm(Tape tape, x, weight, float eps, out, add, acts):
    """Append one phase over panels of rows of x [T, D] f32, and their columns."""
    cdef RmsNormArgs args
    args.x = <const float *>address(x)
    args.weight = <const float *>address(weight)
    args.add = <const float *>address(add)
    args.out = <float *>address(out)
    args.acts = acts_struct(acts, len(x))
    args.parts = row_parts(len(x), x.shape[1])
    if args.out == args.x:  # what one part writes another would sum
        args.parts.columns = args.parts.width
    args.eps = eps
    tape.append("rms_norm", rms_norm_kernel(tape.level), &args, sizeof(args),
                num_row_parts(&args.parts), 4 * args.parts.columns if out is None else 0,
                (x, weight, out, add, acts))
