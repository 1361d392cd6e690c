# Recording of scale.

cdef extern from "scale.h":
    ctypedef struct ScaleArgs "struct scale_args":
        const float *x
        const float *add
        float *out
        size_t count
        float factor
    int SCALE_BLOCK

cdef extern from *:
    "static kernel_fn *scale_kernel(int level) { return SELECT_KERNEL(scale, level); }"
    kernel_fn *scale_kernel(int level)


def record_scale(Tape tape, x, float factor, out, add):
    """Append one phase over blocks of the values of x f32."""
    cdef ScaleArgs args
    args.x = <const float *>address(x)
    args.add = <const float *>address(add)
    args.out = <float *>address(out)
    args.count = x.size
    args.factor = factor
    tape.append("scale", scale_kernel(tape.level), &args, sizeof(args),
                (args.count + SCALE_BLOCK - 1) // SCALE_BLOCK, 0, (x, out, add))
