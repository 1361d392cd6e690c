# Recording of lattice.

cdef extern from "lattice.h":
    ctypedef struct LatticeArgs "struct lattice_args":
        Matrix predecessor, successor
        const int *ids
        const float *logits
        const float *gates
        const int *names
        const int *tokens
        const int *row_offsets
        float *scores
        int num_rows, k
    size_t lattice_scratch(int width)

cdef extern from *:
    "static kernel_fn *lattice_kernel(int level) { return SELECT_KERNEL(lattice, level); }"
    kernel_fn *lattice_kernel(int level)


def record_lattice(Tape tape, ids, logits, gates, step, predecessor, successor, names, scores):
    """Append one phase, a part per row of ids [B * n, k] int32."""
    cdef LatticeArgs args
    args.predecessor = matrix_struct(predecessor)
    args.successor = matrix_struct(successor)
    args.ids = <const int *>address(ids)
    args.logits = <const float *>address(logits)
    args.gates = <const float *>address(gates)
    args.names = <const int *>address(names)
    args.tokens = <const int *>address(step.tokens)
    args.row_offsets = <const int *>address(step.row_offsets)
    args.scores = <float *>address(scores)
    args.num_rows, args.k = len(ids) // len(scores), ids.shape[1]
    tape.append("lattice", lattice_kernel(tape.level), &args, sizeof(args), len(ids),
                lattice_scratch(args.successor.num_cols),
                (ids, logits, gates, step, predecessor, successor, names, scores))
