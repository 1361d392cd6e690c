# Recording of glu.

cdef extern from "glu.h":
    ctypedef struct GluArgs "struct glu_args":
        const float *gate
        const float *up
        float *out
        Acts acts
        size_t count
        int activation
    int GLU_BLOCK, ACT_SILU, ACT_GELU_TANH

cdef extern from *:
    "static kernel_fn *glu_kernel(int level) { return SELECT_KERNEL(glu, level); }"
    kernel_fn *glu_kernel(int level)

ACTIVATIONS = {"silu": ACT_SILU, "gelu_tanh": ACT_GELU_TANH}


def record_glu(Tape tape, gate, up, activation, out, acts):
    """Append one phase, a part per 4096 values of gate."""
    cdef GluArgs args
    args.gate = <const float *>address(gate)
    args.up = <const float *>address(up)
    args.out = <float *>address(out)
    args.acts = acts_struct(acts, len(gate))
    args.count = gate.size
    args.activation = ACTIVATIONS[activation]
    tape.append(glu_kernel(tape.level), &args, sizeof(args),
                (gate.size + GLU_BLOCK - 1) // GLU_BLOCK, 4 * GLU_BLOCK if out is None else 0,
                (gate, up, out, acts))
