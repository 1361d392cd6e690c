# Recording of pack, quantize, linear, head and embed; launchers in specrt/host have checked everything.

from libc.string cimport memset

cdef extern from "linear.h":
    ctypedef struct Weight "struct weight":
        const unsigned char *tiles
        const float *bias
        size_t tile_bytes
        int num_rows, num_cols, type, form, block
    ctypedef struct Matrix "struct matrix":
        const unsigned char *raw
        size_t row_bytes
        int num_rows, num_cols, type
    ctypedef struct Int8Rows "struct int8_rows":
        signed char *q
        float *d
        float *s
        int *sums
    ctypedef struct Acts "struct acts":
        float *x
        Int8Rows first, second
        int num_rows, width
    ctypedef struct PackArgs "struct pack_args":
        Matrix source "from"
        Weight to
        unsigned char *tiles
    ctypedef struct RowParts "struct row_parts":
        int num_rows, width, columns
    ctypedef struct QuantizeArgs "struct quantize_args":
        const float *x
        Acts out
        RowParts parts
    ctypedef struct LinearPair "struct linear_pair":
        Weight weight
        float *out
        int part_tiles, num_parts
    ctypedef struct LinearArgs "struct linear_args":
        Acts acts
        const float *add
        int num_pairs
        LinearPair pairs[8]
    ctypedef struct HeadArgs "struct head_args":
        Weight weight
        Acts acts
        float *logits
        float *best
        int *best_ids
        int *ids
        float scale, softcap
        int num_parts
    ctypedef struct TopKArgs "struct top_k_args":
        const float *logits
        float *values
        int *ids
        int width, k
    ctypedef struct EmbedArgs "struct embed_args":
        Matrix weight
        const int *tokens
        float *out
        float scale
    int TYPE_F32, TYPE_F16, TYPE_BF16
    int TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0
    int TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K
    int TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_IQ2_XXS, TYPE_IQ2_XS, TYPE_IQ2_S, TYPE_IQ3_XXS, TYPE_IQ3_S
    int TYPE_MXFP4
    int FORM_F32, FORM_INT8, FORM_INT8X2
    int _TILE_ROWS "TILE_ROWS", _HEAD_TILES "HEAD_TILES", _MAX_PAIRS "MAX_PAIRS", _PANEL "PANEL"
    int PACK_TILES
    RowParts row_parts(int num_rows, int width)
    int num_row_parts(const RowParts *parts)
    void weight_layout(Weight *weight)

cdef extern from *:
    """
    static kernel_fn *pack_kernel(int level) { return SELECT_KERNEL(pack, level); }
    static kernel_fn *quantize_kernel(int level) { return SELECT_KERNEL(quantize, level); }
    static kernel_fn *linear_kernel(int level) { return SELECT_KERNEL(linear, level); }
    static kernel_fn *head_kernel(int level) { return SELECT_KERNEL(head, level); }
    static kernel_fn *head_reduce_kernel(int level) { return SELECT_KERNEL(head_reduce, level); }
    static kernel_fn *top_k_kernel(int level) { return SELECT_KERNEL(top_k, level); }
    static kernel_fn *embed_kernel(int level) { return SELECT_KERNEL(embed, level); }
    """
    kernel_fn *pack_kernel(int level)
    kernel_fn *quantize_kernel(int level)
    kernel_fn *linear_kernel(int level)
    kernel_fn *head_kernel(int level)
    kernel_fn *head_reduce_kernel(int level)
    kernel_fn *top_k_kernel(int level)
    kernel_fn *embed_kernel(int level)

MAX_PAIRS, PANEL = _MAX_PAIRS, _PANEL

WEIGHT_TYPES = {
    "F32": TYPE_F32, "F16": TYPE_F16, "BF16": TYPE_BF16,
    "Q4_0": TYPE_Q4_0, "Q4_1": TYPE_Q4_1, "Q5_0": TYPE_Q5_0, "Q5_1": TYPE_Q5_1, "Q8_0": TYPE_Q8_0,
    "Q2_K": TYPE_Q2_K, "Q3_K": TYPE_Q3_K, "Q4_K": TYPE_Q4_K, "Q5_K": TYPE_Q5_K, "Q6_K": TYPE_Q6_K,
    "IQ4_NL": TYPE_IQ4_NL, "IQ4_XS": TYPE_IQ4_XS, "IQ2_XXS": TYPE_IQ2_XXS, "IQ2_XS": TYPE_IQ2_XS,
    "IQ2_S": TYPE_IQ2_S, "IQ3_XXS": TYPE_IQ3_XXS, "IQ3_S": TYPE_IQ3_S, "MXFP4": TYPE_MXFP4,
}

cdef dict FORMS = {"f32": FORM_F32, "int8": FORM_INT8, "int8x2": FORM_INT8X2}


cdef Weight layout_struct(type_name, form, shape) except *:
    """How a weight lies in tiles, which may not be there yet."""
    cdef Weight w
    memset(&w, 0, sizeof(w))
    w.num_rows, w.num_cols = shape
    w.type = WEIGHT_TYPES[type_name]
    w.form = FORMS[form]
    weight_layout(&w)
    return w


cdef Weight weight_struct(weight) except *:
    cdef Weight w = layout_struct(weight.type_name, weight.form, weight.shape)
    w.tiles = <const unsigned char *>address(weight.tiles)
    w.bias = <const float *>address(weight.bias)
    return w


cdef Matrix matrix_struct(matrix) except *:
    cdef Matrix m
    m.raw = <const unsigned char *>address(matrix.raw)
    m.num_rows, m.num_cols = matrix.shape
    m.row_bytes = matrix.raw.shape[1]
    m.type = WEIGHT_TYPES[matrix.type_name]
    return m


def packed_bytes(type_name, form, shape):
    """Bytes of the tiles of a weight [N, K]."""
    cdef Weight w = layout_struct(type_name, form, shape)
    return num_tiles(w.num_rows) * w.tile_bytes


cdef Int8Rows int8_struct(rows) except *:
    cdef Int8Rows r
    r.q = NULL if rows is None else <signed char *>address(rows.q)
    r.d = NULL if rows is None else <float *>address(rows.d)
    r.s = NULL if rows is None else <float *>address(rows.s)
    r.sums = NULL if rows is None else <int *>address(rows.sums)
    return r


cdef Acts acts_struct(acts, int num_rows) except *:
    cdef Acts a
    if acts is None:
        memset(&a, 0, sizeof(a))
        return a
    a.x = <float *>address(acts.x)
    a.first = int8_struct(acts.first)
    a.second = int8_struct(acts.second)
    a.num_rows = num_rows
    a.width = acts.width
    return a


cdef int num_tiles(int num_rows) noexcept:
    return (num_rows + _TILE_ROWS - 1) // _TILE_ROWS


def record_pack(Tape tape, weight):
    """Append one phase over the tiles: weight.raw [N, row bytes] to weight.tiles."""
    cdef PackArgs args
    cdef int parts
    args.source = matrix_struct(weight)
    args.to = weight_struct(weight)
    args.tiles = <unsigned char *>args.to.tiles
    parts = (num_tiles(args.to.num_rows) + PACK_TILES - 1) // PACK_TILES
    tape.append("pack", pack_kernel(tape.level), &args, sizeof(args), parts, 0, (weight,))


def record_quantize(Tape tape, x, out):
    """Append one phase over panels of rows of x [T, K] f32, and their columns."""
    cdef QuantizeArgs args
    args.parts = row_parts(len(x), x.shape[1])
    args.x = <const float *>address(x)
    args.out = acts_struct(out, len(x))
    tape.append("quantize", quantize_kernel(tape.level), &args, sizeof(args),
                num_row_parts(&args.parts), 0, (x, out))


# Weight bytes that one claim of a part reads, about: a claim costs 0.1 us, and less than one part of
# a phase is left to wait for at its end.
cdef size_t PART_BYTES = 12288


cdef int tiles_of_part(const Weight *weight, int num_rows):
    cdef size_t panels = (num_rows + _PANEL - 1) // _PANEL
    return max(1, <int>(PART_BYTES // (weight.tile_bytes * panels)))


def record_linear(Tape tape, list pairs, acts, add):
    """Append one phase over the tiles of each (weight, out [T, N] f32)."""
    cdef LinearArgs args
    cdef LinearPair *pair
    cdef int num_rows = len(pairs[0][1]), parts = 0, i
    args.acts = acts_struct(acts, num_rows)
    args.add = <const float *>address(add)
    args.num_pairs = len(pairs)
    for i, (weight, out) in enumerate(pairs):
        pair = &args.pairs[i]
        pair.weight = weight_struct(weight)
        pair.out = <float *>address(out)
        pair.part_tiles = tiles_of_part(&pair.weight, num_rows)
        pair.num_parts = (num_tiles(pair.weight.num_rows) + pair.part_tiles - 1) // pair.part_tiles
        parts += pair.num_parts
    tape.append("linear", linear_kernel(tape.level), &args, sizeof(args), parts, 0, (pairs, acts, add))


def record_head(Tape tape, weight, acts, ids, logits, float softcap, float scale):
    """Append two phases: tiles of the vocabulary, then a part per row of ids [T] int32."""
    cdef HeadArgs args
    cdef int num_rows = len(ids)
    args.weight = weight_struct(weight)
    args.acts = acts_struct(acts, num_rows)
    args.num_parts = (num_tiles(args.weight.num_rows) + _HEAD_TILES - 1) // _HEAD_TILES
    best = bytearray(4 * num_rows * args.num_parts)
    best_ids = bytearray(4 * num_rows * args.num_parts)
    args.best = <float *><char *>best
    args.best_ids = <int *><char *>best_ids
    args.ids = <int *>address(ids)
    args.logits = <float *>address(logits)
    args.scale = scale
    args.softcap = softcap
    tape.append("head", head_kernel(tape.level), &args, sizeof(args), args.num_parts, 0,
                (weight, acts, ids, logits, best, best_ids))
    tape.append("head_reduce", head_reduce_kernel(tape.level), &args, sizeof(args), num_rows, 0, ())


def record_top_k(Tape tape, logits, ids, values):
    """Append one phase, a part per row of logits [T, V] f32."""
    cdef TopKArgs args
    args.logits = <const float *>address(logits)
    args.values = <float *>address(values)
    args.ids = <int *>address(ids)
    args.width, args.k = logits.shape[1], ids.shape[1]
    tape.append("top_k", top_k_kernel(tape.level), &args, sizeof(args), len(logits), 0,
                (logits, ids, values))


def record_embed(Tape tape, weight, tokens, float scale, out):
    """Append one phase, a part per row of out [T, D] f32."""
    cdef EmbedArgs args
    args.weight = matrix_struct(weight)
    args.tokens = <const int *>address(tokens)
    args.out = <float *>address(out)
    args.scale = scale
    tape.append("embed", embed_kernel(tape.level), &args, sizeof(args), len(out), 0, (weight, tokens, out))
