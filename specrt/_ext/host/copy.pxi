# Recording of copy.

cdef extern from "copy.h":
    ctypedef struct CopyArgs "struct copy_args":
        const char *x
        char *out
        ptrdiff_t x_stride
        ptrdiff_t out_stride
        size_t row_bytes

cdef extern from *:
    "static kernel_fn *copy_kernel(int level) { return SELECT_KERNEL(copy, level); }"
    kernel_fn *copy_kernel(int level)


def record_copy(Tape tape, x, out):
    """Append one phase, a part per row of x [T, N]."""
    cdef CopyArgs args
    args.x = <const char *>address(x)
    args.out = <char *>address(out)
    args.x_stride = x.strides[0]
    args.out_stride = out.strides[0]
    args.row_bytes = x.shape[1] * x.itemsize
    tape.append("copy", copy_kernel(tape.level), &args, sizeof(args), len(x), 0, (x, out))
