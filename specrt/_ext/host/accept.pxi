# Recording of accept.

cdef extern from "accept.h":
    ctypedef struct AcceptArgs "struct accept_args":
        const int *ids
        const int *tokens
        const int *positions
        const int *row_offsets
        int *out
        int num_seqs

cdef extern from *:
    "static kernel_fn *accept_kernel(int level) { return SELECT_KERNEL(accept, level); }"
    kernel_fn *accept_kernel(int level)


def record_accept(Tape tape, ids, step, out):
    """Append one phase of one part: a step has few windows."""
    cdef AcceptArgs args
    args.ids = <const int *>address(ids)
    args.tokens = <const int *>address(step.tokens)
    args.positions = <const int *>address(step.positions)
    args.row_offsets = <const int *>address(step.row_offsets)
    args.out = <int *>address(out)
    args.num_seqs = len(out)
    tape.append("accept", accept_kernel(tape.level), &args, sizeof(args), 1, 0, (ids, step, out))
