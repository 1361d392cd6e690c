# Recording of route.

cdef extern from "route.h":
    ctypedef struct RouteArgs "struct route_args":
        const float *logits
        int *ids
        float *weights
        int num_experts, num_used

cdef extern from *:
    "static kernel_fn *route_kernel(int level) { return SELECT_KERNEL(route, level); }"
    kernel_fn *route_kernel(int level)


def record_route(Tape tape, logits, ids, weights):
    """Append one phase, a part per row of logits [T, E] f32."""
    cdef RouteArgs args
    args.logits = <const float *>address(logits)
    args.ids = <int *>address(ids)
    args.weights = <float *>address(weights)
    args.num_experts, args.num_used = logits.shape[1], ids.shape[1]
    tape.append("route", route_kernel(tape.level), &args, sizeof(args), len(logits),
                4 * (args.num_experts + args.num_used), (logits, ids, weights))
