# Recording of moe.

cdef extern from "moe.h":
    ctypedef struct ExpertWeights "struct expert_weights":
        Weight first
        size_t bytes
    ctypedef struct MoeGroups "struct moe_groups":
        int *sources
        int *places
        int *group_of
        int *starts
        int *experts
        int *num_groups
    ctypedef struct MoeArgs "struct moe_args":
        ExpertWeights sides[2]
        ExpertWeights down
        Acts from_ "from"
        Acts rows, gated
        MoeGroups groups
        const int *ids
        const float *weights
        const float *add
        const float *shared
        const float *shared_gate
        float *results
        float *out
        int num_pairs, num_used, num_experts, activation
        int take_rows, up_blocks, up_parts, down_tiles, down_parts
        RowParts parts
    int MOE_PARTS, PART_VALUES

cdef extern from *:
    """
    static kernel_fn *moe_kernel(int level) { return SELECT_KERNEL(moe, level); }
    static kernel_fn *moe_group_kernel(int level) { return SELECT_KERNEL(moe_group, level); }
    static kernel_fn *moe_take_kernel(int level) { return SELECT_KERNEL(moe_take, level); }
    static kernel_fn *moe_up_kernel(int level) { return SELECT_KERNEL(moe_up, level); }
    static kernel_fn *moe_down_kernel(int level) { return SELECT_KERNEL(moe_down, level); }
    """
    kernel_fn *moe_kernel(int level)
    kernel_fn *moe_group_kernel(int level)
    kernel_fn *moe_take_kernel(int level)
    kernel_fn *moe_up_kernel(int level)
    kernel_fn *moe_down_kernel(int level)


cdef ExpertWeights experts_struct(weight) except *:
    cdef ExpertWeights w
    w.first = weight_struct(weight)
    w.bytes = weight.expert_bytes
    return w


cdef MoeGroups groups_struct(room) except *:
    cdef MoeGroups g
    g.sources = <int *>address(room.sources)
    g.places = <int *>address(room.places)
    g.group_of = <int *>address(room.group_of)
    g.starts = <int *>address(room.starts)
    g.experts = <int *>address(room.experts)
    g.num_groups = <int *>address(room.num_groups)
    return g


cdef int units_of_part(size_t unit_bytes, int num_units, int groups, int num_pairs) noexcept:
    """Units, each of so many weight bytes, of a part of a group of a middling number of rows."""
    cdef int rows = (num_pairs + groups - 1) // groups, panels = (rows + _PANEL - 1) // _PANEL
    cdef int by_size = max(1, <int>(PART_BYTES // (unit_bytes * panels)))
    return max(by_size, (num_units * groups + MOE_PARTS - 1) // MOE_PARTS)


cdef MoeArgs moe_struct(acts, experts, routed, activation, out, add, shared, shared_gate) except *:
    """What phases read and write."""
    cdef MoeArgs args
    room = routed.room
    for side, weight in enumerate((experts.gate, experts.up)):
        args.sides[side] = experts_struct(weight)
    args.down = experts_struct(experts.down)
    args.num_pairs, args.num_used = routed.ids.size, routed.ids.shape[1]
    args.num_experts = experts.gate.num_experts
    args.activation = ACTIVATIONS[activation]
    args.from_ = acts_struct(acts, len(out))
    args.rows = acts_struct(room.rows, args.num_pairs)
    args.gated = acts_struct(room.gated, args.num_pairs)
    args.groups = groups_struct(room)
    args.ids = <const int *>address(routed.ids)
    args.weights = <const float *>address(routed.weights)
    args.add = <const float *>address(add)
    args.shared = <const float *>address(shared)
    args.shared_gate = <const float *>address(shared_gate)
    args.results = <float *>address(room.results)
    args.out = <float *>address(out)
    return args


cdef void cut_moe(MoeArgs *args, int groups) noexcept:
    """Fill in how the phases are cut into parts, for as many groups as there may be."""
    cdef int tiles = num_tiles(args.sides[0].first.num_rows), blocks, most
    cdef size_t block_bytes = args.sides[0].first.tile_bytes + args.sides[1].first.tile_bytes
    most = (args.num_pairs + MOE_PARTS - 1) // MOE_PARTS
    args.take_rows = max(1, PART_VALUES // args.from_.width, most)
    blocks = (tiles + GATED_TILES - 1) // GATED_TILES
    args.up_blocks = units_of_part(GATED_TILES * block_bytes, blocks, groups, args.num_pairs)
    args.up_parts = (blocks + args.up_blocks - 1) // args.up_blocks
    tiles = num_tiles(args.down.first.num_rows)
    args.down_tiles = units_of_part(args.down.first.tile_bytes, tiles, groups, args.num_pairs)
    args.down_parts = (tiles + args.down_tiles - 1) // args.down_tiles


def record_moe(Tape tape, acts, experts, routed, activation, out, add, shared, shared_gate):
    """Append five phases: of one part, over pairs of row and rank, twice of parts of the groups that
    there may be, and over out [T, D] f32."""
    cdef MoeArgs args
    cdef int groups
    if not len(out):
        return
    args = moe_struct(acts, experts, routed, activation, out, add, shared, shared_gate)
    args.parts = row_parts(len(out), out.shape[1])
    groups = min(args.num_experts, args.num_pairs)
    cut_moe(&args, groups)
    tape.append("moe_group", moe_group_kernel(tape.level), &args, sizeof(args), 1,
                4 * args.num_experts, (acts, experts, routed, out, add, shared, shared_gate))
    tape.append("moe_take", moe_take_kernel(tape.level), &args, sizeof(args),
                (args.num_pairs + args.take_rows - 1) // args.take_rows, 0, ())
    tape.append("moe_up", moe_up_kernel(tape.level), &args, sizeof(args),
                groups * args.up_parts, 0, ())
    tape.append("moe_down", moe_down_kernel(tape.level), &args, sizeof(args),
                groups * args.down_parts, 0, ())
    tape.append("moe", moe_kernel(tape.level), &args, sizeof(args),
                num_row_parts(&args.parts), 0, ())
