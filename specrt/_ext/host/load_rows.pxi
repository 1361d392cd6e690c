# Recording of load_rows.

cdef extern from "load_rows.h":
    ctypedef struct Ring "struct ring":
        const float *rows
        int length, width
    ctypedef struct LoadRowsArgs "struct load_rows_args":
        const int *positions
        const int *row_seqs
        const int *slots
        Ring rings[16]
        Acts acts
        RowParts parts
        int num_rings
    int _MAX_RINGS "MAX_RINGS"

cdef extern from *:
    "static kernel_fn *load_rows_kernel(int level) { return SELECT_KERNEL(load_rows, level); }"
    kernel_fn *load_rows_kernel(int level)

MAX_RINGS = _MAX_RINGS


def record_load_rows(Tape tape, tuple rings, step, acts):
    """Append one phase over panels of rows of the acts, and their columns."""
    cdef LoadRowsArgs args
    cdef int i
    args.positions = <const int *>address(step.positions)
    args.row_seqs = <const int *>address(step.row_seqs)
    args.slots = <const int *>address(step.slots)
    args.num_rings = len(rings)
    for i, ring in enumerate(rings):
        args.rings[i].rows = <const float *>address(ring)
        args.rings[i].length, args.rings[i].width = ring.shape[1:]
    args.acts = acts_struct(acts, acts.num_rows)
    args.parts = row_parts(acts.num_rows, acts.width)
    tape.append("load_rows", load_rows_kernel(tape.level), &args, sizeof(args),
                num_row_parts(&args.parts), 4 * args.parts.columns, (rings, step, acts))
