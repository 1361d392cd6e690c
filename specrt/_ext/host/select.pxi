# Recording of select.

cdef extern from "select.h":
    ctypedef struct SelectArgs "struct select_args":
        const char *x
        const int *index
        char *out
        ptrdiff_t x_stride
        ptrdiff_t out_stride
        size_t row_bytes
        int num_rows

cdef extern from *:
    "static kernel_fn *select_kernel(int level) { return SELECT_KERNEL(select, level); }"
    kernel_fn *select_kernel(int level)


def record_select(Tape tape, x, index, out):
    """Append one phase, a part per row of out [n, N]."""
    cdef SelectArgs args
    args.x = <const char *>address(x)
    args.index = <const int *>address(index)
    args.out = <char *>address(out)
    args.x_stride = x.strides[0]
    args.out_stride = out.strides[0]
    args.row_bytes = x.shape[1] * x.itemsize
    args.num_rows = len(x)
    tape.append("select", select_kernel(tape.level), &args, sizeof(args), len(out), 0, (x, index, out))
