# Recording of store_rows.

cdef extern from "store_rows.h":
    ctypedef struct StoreRowsArgs "struct store_rows_args":
        const float *x
        const int *positions
        const int *row_seqs
        const int *slots
        float *out
        int ring, width

cdef extern from *:
    "static kernel_fn *store_rows_kernel(int level) { return SELECT_KERNEL(store_rows, level); }"
    kernel_fn *store_rows_kernel(int level)


def record_store_rows(Tape tape, x, step, out):
    """Append one phase, a part per row of x [T, D]."""
    cdef StoreRowsArgs args
    args.x = <const float *>address(x)
    args.positions = <const int *>address(step.positions)
    args.row_seqs = <const int *>address(step.row_seqs)
    args.slots = <const int *>address(step.slots)
    args.out = <float *>address(out)
    args.ring, args.width = out.shape[1:]
    tape.append("store_rows", store_rows_kernel(tape.level), &args, sizeof(args), len(x), 0,
                (x, step, out))
