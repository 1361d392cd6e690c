# Recording of causal_conv and gated_delta.

from specrt.state.recurrent import MOST_KEPT

cdef extern from "recurrent.h":
    ctypedef struct RecurrentStep "struct recurrent_step":
        const int *positions
        const int *row_offsets
        const int *slots
        const int *live
        const int *pending
        int num_seqs, most_kept
    ctypedef struct CausalConvArgs "struct causal_conv_args":
        const float *u
        const float *weight
        float *tails
        float *log
        float *out
        RecurrentStep step
        int channels, kernel, log_rows
    ctypedef struct GatedDeltaArgs "struct gated_delta_args":
        const float *qkv
        const float *alpha
        const float *beta
        const float *a
        const float *dt_bias
        float *states
        float *log_k
        float *log_delta
        float *log_decay
        float *out
        float *states_out
        RecurrentStep step
        int key_heads, value_heads, key_dim, value_dim, log_rows
        float eps

    int CONV_CHANNELS
    int delta_blocks(int value_dim)
    size_t delta_scratch(int key_dim)

cdef extern from *:
    """
    static kernel_fn *causal_conv_kernel(int level) { return SELECT_KERNEL(causal_conv, level); }
    static kernel_fn *gated_delta_kernel(int level) { return SELECT_KERNEL(gated_delta, level); }
    """
    kernel_fn *causal_conv_kernel(int level)
    kernel_fn *gated_delta_kernel(int level)


cdef RecurrentStep recurrent_step(step) except *:
    cdef RecurrentStep s
    s.positions = <const int *>address(step.positions)
    s.row_offsets = <const int *>address(step.row_offsets)
    s.slots = <const int *>address(step.slots)
    s.live = <const int *>address(step.live)
    s.pending = <const int *>address(step.pending)
    s.num_seqs = len(step.slots)
    s.most_kept = MOST_KEPT
    return s


def record_causal_conv(Tape tape, u, weight, layer, step, out):
    """Append one phase over blocks of the channels of u [T, C] f32."""
    cdef CausalConvArgs args
    args.u = <const float *>address(u)
    args.weight = <const float *>address(weight)
    args.tails = <float *>address(layer.tails)
    args.log = <float *>address(layer.log_u)
    args.out = <float *>address(out)
    args.step = recurrent_step(step)
    args.channels = u.shape[1]
    args.kernel = weight.shape[1]
    args.log_rows = layer.log_u.shape[1]
    tape.append("causal_conv", causal_conv_kernel(tape.level), &args, sizeof(args),
                (args.channels + CONV_CHANNELS - 1) // CONV_CHANNELS, 0,
                (u, weight, layer, step, out))


def record_gated_delta(Tape tape, qkv, alpha, beta, layer, step, a, dt_bias, float eps, out,
                       states_out):
    """Append one phase over blocks of columns of the heads of all sequences."""
    cdef GatedDeltaArgs args
    shape = layer.shape
    args.qkv = <const float *>address(qkv)
    args.alpha = <const float *>address(alpha)
    args.beta = <const float *>address(beta)
    args.a = <const float *>address(a)
    args.dt_bias = <const float *>address(dt_bias)
    args.states = <float *>address(layer.states)
    args.log_k = <float *>address(layer.log_k)
    args.log_delta = <float *>address(layer.log_delta)
    args.log_decay = <float *>address(layer.log_decay)
    args.out = <float *>address(out)
    args.states_out = <float *>address(states_out)
    args.step = recurrent_step(step)
    args.key_heads, args.value_heads = shape.key_heads, shape.value_heads
    args.key_dim, args.value_dim = shape.key_dim, shape.value_dim
    args.log_rows = layer.log_k.shape[1]
    args.eps = eps
    tape.append("gated_delta", gated_delta_kernel(tape.level), &args, sizeof(args),
                args.step.num_seqs * args.value_heads * delta_blocks(args.value_dim),
                delta_scratch(args.key_dim),
                (qkv, alpha, beta, layer, step, a, dt_bias, out, states_out))
