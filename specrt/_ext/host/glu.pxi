# Recording of glu.

cdef extern from "glu.h":
    ctypedef struct GluArgs "struct glu_args":
        const float *gate
        const float *up
        float *out
        Acts acts
        int width, activation
    ctypedef struct GatedLinearArgs "struct gated_linear_args":
        Weight sides[2]
        Acts acts, out
        int activation
    int GLU_BLOCK, GATED_TILES, ACT_SILU, ACT_GELU_TANH, ACT_SIGMOID

cdef extern from *:
    """
    static kernel_fn *glu_kernel(int level) { return SELECT_KERNEL(glu, level); }
    static kernel_fn *gated_linear_kernel(int level) { return SELECT_KERNEL(gated_linear, level); }
    """
    kernel_fn *glu_kernel(int level)
    kernel_fn *gated_linear_kernel(int level)

ACTIVATIONS = {"silu": ACT_SILU, "gelu_tanh": ACT_GELU_TANH, "sigmoid": ACT_SIGMOID}


def record_glu(Tape tape, gate, up, activation, out, acts):
    """Append one phase over blocks of rows of gate [T, F] f32."""
    cdef GluArgs args
    cdef int parts
    if out is None and gates_last(tape, gate, up, acts):
        record_gated_linear(tape, activation, acts)
        return
    args.gate = <const float *>address(gate)
    args.up = <const float *>address(up)
    args.out = <float *>address(out)
    args.acts = acts_struct(acts, len(gate))
    args.width = gate.shape[1]
    args.activation = ACTIVATIONS[activation]
    parts = len(gate) * ((args.width + GLU_BLOCK - 1) // GLU_BLOCK)
    tape.append("glu", glu_kernel(tape.level), &args, sizeof(args), parts,
                4 * GLU_BLOCK if out is None else 0, (gate, up, out, acts))


cdef bint gates_last(Tape tape, gate, up, acts) except -1:
    """Whether the last phase makes just all of gate and up, in whole blocks, from other acts."""
    cdef const LinearArgs *args
    cdef Acts out = acts_struct(acts, len(gate))
    if tape.last_kernel() != linear_kernel(tape.level):
        return False
    args = <const LinearArgs *>tape.last_args()
    return (args.num_pairs == 2 and args.acts.num_rows == len(gate)
            and args.pairs[0].out == <float *>address(gate)
            and args.pairs[1].out == <float *>address(up)
            and (out.x != args.acts.x or out.x == NULL)
            and (out.first.q != args.acts.first.q or out.first.q == NULL)
            and gate.shape[1] % (GATED_TILES * _TILE_ROWS) == 0)


cdef record_gated_linear(Tape tape, activation, acts):
    """Put one phase in the place of the linear that makes gate and up, which are not written."""
    cdef const LinearArgs *linear = <const LinearArgs *>tape.last_args()
    cdef GatedLinearArgs args
    cdef int side
    for side in range(2):
        args.sides[side] = linear.pairs[side].weight
    args.acts = linear.acts
    args.out = acts_struct(acts, linear.acts.num_rows)
    args.activation = ACTIVATIONS[activation]
    owned = tape.drop_last()
    tape.append("gated_linear", gated_linear_kernel(tape.level), &args, sizeof(args),
                num_tiles(args.sides[0].num_rows) // GATED_TILES, 0, (owned, acts))
