# Recording of rms_norm.

cdef extern from "rms_norm.h":
    ctypedef struct RmsNormArgs "struct rms_norm_args":
        const float *x
        const float *weight
        const float *add
        float *out
        Acts acts
        int width
        float eps

cdef extern from *:
    "static kernel_fn *rms_norm_kernel(int level) { return SELECT_KERNEL(rms_norm, level); }"
    kernel_fn *rms_norm_kernel(int level)


def record_rms_norm(Tape tape, x, weight, float eps, out, add, acts):
    """Append one phase, a part per row of x [T, D] f32."""
    cdef RmsNormArgs args
    args.x = <const float *>address(x)
    args.weight = <const float *>address(weight)
    args.add = <const float *>address(add)
    args.out = <float *>address(out)
    args.acts = acts_struct(acts, len(x))
    args.width = x.shape[1]
    args.eps = eps
    tape.append("rms_norm", rms_norm_kernel(tape.level), &args, sizeof(args), len(x),
                4 * args.width if out is None else 0, (x, weight, out, add, acts))
