/* gated_delta: specrt/reference/gated_delta.py says what it computes.
 *
 * Columns of a state do not meet, so a part takes a block of them through all rows of a sequence. One
 * pass over the block reads the state, applies the pending rows, writes the result, and is as far as
 * the first row's product with k; one pass per row then learns, reads by q, and is as far as the next
 * row's product with k. So a step passes over a state T + 1 times, whatever is pending.
 */
#include <math.h>

#include "gate.h"
#include "recurrent.h"

#define VECTORS (DELTA_COLUMNS / LANES)
#define REPLAYED 16 /* rows of a pass */

/* The columns of a head's state from first on: key_dim rows of VECTORS vectors, zeros behind. */
struct block {
    float *m; /* [key_dim, DELTA_COLUMNS] */
    int key_dim, columns, first, head, slot;
};

/* log(1 + exp x) = max(x, 0) + 2 atanh(e / (2 + e)) with e = exp(-|x|). */
static v16f softplus(v16f x)
{
    v16f e = v16f_exp_negative(v16f_sub(v16f_set1(0.0f), v16f_abs(x)));
    v16f s = v16f_div(e, v16f_add(v16f_set1(2.0f), e));
    v16f z = v16f_mul(s, s), p = v16f_set1(1.0f / 15), twice = v16f_add(s, s);
    for (int odd = 13; odd > 1; odd -= 2)
        p = v16f_fma(p, z, v16f_set1(1.0f / (float)odd));
    return v16f_add(v16f_max(x, v16f_set1(0.0f)), v16f_fma(v16f_mul(twice, z), p, twice));
}

static float first_of(v16f x)
{
    float lanes[LANES];
    v16f_store(lanes, x);
    return lanes[0];
}

static float decay_of(const struct gated_delta_args *args, int row, int head)
{
    const float x = args->alpha[row * args->value_heads + head] + args->dt_bias[head];
    return first_of(v16f_exp(v16f_mul(v16f_set1(args->a[head]), softplus(v16f_set1(x)))));
}

static float rate_of(const struct gated_delta_args *args, int row, int head)
{
    return first_of(sigmoid(v16f_set1(args->beta[row * args->value_heads + head])));
}

/* out = x / sqrt(sum x^2 + eps) * scale. */
static void normalise(const float *x, int n, float eps, float scale, float *out)
{
    v16f sum = v16f_set1(0.0f);
    for (int i = 0; i < n; i += LANES) {
        v16f v = v16f_load_n(x + i, n - i < LANES ? n - i : LANES);
        sum = v16f_fma(v, v, sum);
    }
    const v16f factor = v16f_set1(1.0f / sqrtf(v16f_reduce_add(sum) + eps));
    for (int i = 0; i < n; i += LANES) {
        const int left = n - i < LANES ? n - i : LANES;
        v16f v = v16f_mul(v16f_load_n(x + i, left), factor);
        v16f_store_n(out + i, v16f_mul(v, v16f_set1(scale)), left);
    }
}

static void load_row(const float *from, int columns, v16f row[VECTORS])
{
    for (int j = 0; j < VECTORS; j++) {
        const int left = columns - j * LANES;
        row[j] = left > 0 ? v16f_load_n(from + j * LANES, left < LANES ? left : LANES)
                          : v16f_set1(0.0f);
    }
}

static void store_row(float *to, int columns, const v16f row[VECTORS])
{
    for (int j = 0; j < VECTORS && j * LANES < columns; j++) {
        const int left = columns - j * LANES;
        v16f_store_n(to + j * LANES, row[j], left < LANES ? left : LANES);
    }
}

/* Rows that a pass applies one behind the other, their k, delta and decay. */
struct replayed {
    const float *k[REPLAYED];
    float delta[REPLAYED][DELTA_COLUMNS], g[REPLAYED];
    int count;
};

/* The row that a pass multiplies with what it leaves: m = g m, read = sums of k m, ascending. */
struct next_row {
    const float *k;
    float g;
    v16f *read;
};

static void clear(v16f row[VECTORS])
{
    for (int j = 0; j < VECTORS; j++)
        row[j] = v16f_set1(0.0f);
}

ALWAYS_INLINE void leave(float *m, int i, v16f row[VECTORS], const struct next_row *next)
{
    const v16f g = v16f_set1(next->g), k = v16f_set1(next->k[i]);
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
        const v16f value = v16f_mul(row[j], g);
        v16f_store(m + j * LANES, value);
        next->read[j] = v16f_fma(k, value, next->read[j]);
    }
}

/* Where a pass reads a block: NULL for zeros. */
struct source {
    const float *m;
    size_t stride;
    int columns;
};

/* m = g m + k delta for each replayed row, to a state of that stride and to the block; to may be
 * NULL, next too. */
static void open_block(struct block b, struct source from, const struct replayed *rows, float *to,
                       size_t stride, const struct next_row *next)
{
    v16f row[VECTORS];
    for (int i = 0; i < b.key_dim; i++) {
        float *m = b.m + (size_t)i * DELTA_COLUMNS;
        clear(row);
        if (from.m)
            load_row(from.m + (size_t)i * from.stride, from.columns, row);
        for (int p = 0; p < rows->count; p++) {
            const v16f g = v16f_set1(rows->g[p]), k = v16f_set1(rows->k[p][i]);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++)
                row[j] = v16f_fma(k, v16f_load(rows->delta[p] + j * LANES), v16f_mul(row[j], g));
        }
        if (to)
            store_row(to + (size_t)i * stride, b.columns, row);
        if (next)
            leave(m, i, row, next);
        else
            store_row(m, DELTA_COLUMNS, row);
    }
}

/* m = m + k delta, and the sums of q m, ascending; to a state too where there is one. */
static void learn(struct block b, const float *k, const v16f delta[VECTORS], const float *q,
                  v16f read[VECTORS], float *const to[2], size_t stride,
                  const struct next_row *next)
{
    v16f row[VECTORS];
    clear(read);
    for (int i = 0; i < b.key_dim; i++) {
        float *m = b.m + (size_t)i * DELTA_COLUMNS;
        const v16f key = v16f_set1(k[i]), query = v16f_set1(q[i]);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            row[j] = v16f_fma(key, delta[j], v16f_load(m + j * LANES));
            read[j] = v16f_fma(query, row[j], read[j]);
        }
        for (int n = 0; n < 2; n++)
            if (to[n])
                store_row(to[n] + (size_t)i * stride, b.columns, row);
        if (next)
            leave(m, i, row, next);
    }
}

/* Where a row of a slot is in a log of so many values a row. */
static float *logged(const struct gated_delta_args *args, float *log, int slot, int position,
                     int values)
{
    const size_t row = (size_t)slot * (size_t)args->log_rows + (size_t)(position % args->log_rows);
    return log + row * (size_t)values;
}

/* Logged rows from position start on, at most REPLAYED; returns the first that is not among them. */
static int replay_from(const struct gated_delta_args *args, struct block b, int start, int end,
                       struct replayed *rows)
{
    const int dk = b.key_dim, dv = args->value_dim, hv = args->value_heads, hk = args->key_heads;
    v16f delta[VECTORS];
    int p = start;
    for (rows->count = 0; p < end && rows->count < REPLAYED; p++, rows->count++) {
        const float *row = logged(args, args->log_delta, b.slot, p, hv * dv);
        load_row(row + b.head * dv + b.first, b.columns, delta);
        store_row(rows->delta[rows->count], DELTA_COLUMNS, delta);
        rows->k[rows->count] = logged(args, args->log_k, b.slot, p, hk * dk) + b.head % hk * dk;
        rows->g[rows->count] = logged(args, args->log_decay, b.slot, p, hv)[b.head];
    }
    return p;
}

/* The block behind the logged rows from position start to end, up to the product with the next row;
 * before position 0 it is zero. */
static void begin_block(const struct gated_delta_args *args, struct block b, const float *state,
                        int start, int end, float *to, const struct next_row *next)
{
    const size_t stride = (size_t)args->value_dim;
    struct source from = {start == 0 ? NULL : state, stride, b.columns};
    struct replayed rows;
    while ((start = replay_from(args, b, start, end, &rows)) < end) {
        open_block(b, from, &rows, NULL, 0, NULL);
        from = (struct source){b.m, DELTA_COLUMNS, DELTA_COLUMNS};
    }
    open_block(b, from, &rows, to, stride, next);
}

/* Once each: the heads of a group share k, the blocks of a head its decay. */
static void log_row(const struct gated_delta_args *args, struct block b, int position, float g,
                    const float *k, const v16f delta[VECTORS])
{
    const int dk = b.key_dim, dv = args->value_dim, hv = args->value_heads, hk = args->key_heads;
    float *row = logged(args, args->log_delta, b.slot, position, hv * dv);
    store_row(row + b.head * dv + b.first, b.columns, delta);
    if (b.first == 0)
        logged(args, args->log_decay, b.slot, position, hv)[b.head] = g;
    if (b.first == 0 && b.head < hk)
        memcpy(logged(args, args->log_k, b.slot, position, hk * dk) + b.head * dk, k,
               (size_t)dk * sizeof(float));
}

static void run_sequence(const struct gated_delta_args *args, int seq, int head, int first,
                         void *scratch)
{
    const struct recurrent_step *step = &args->step;
    const int begin = step->row_offsets[seq], end = step->row_offsets[seq + 1];
    const int start = step->positions[begin], few = end - begin <= step->most_kept;
    const int dk = args->key_dim, dv = args->value_dim, hv = args->value_heads;
    const int key = head % args->key_heads * dk, value = head * dv + first;
    const int keys = args->key_heads * dk, values = hv * dv, left = dv - first;
    const struct block b = {scratch, dk, left < DELTA_COLUMNS ? left : DELTA_COLUMNS, first, head,
                            step->slots[seq]};
    const size_t size = (size_t)dk * (size_t)dv, buffer = (size_t)hv * size;
    float *both = args->states + (size_t)(2 * b.slot) * buffer + (size_t)head * size + first;
    const float *from = both + (size_t)step->live[seq] * buffer;
    float *to = both + (size_t)(1 - step->live[seq]) * buffer;
    float *q = b.m + (size_t)dk * DELTA_COLUMNS, *k = q + dk, *next_k = k + dk;
    v16f delta[VECTORS], read[VECTORS], out[VECTORS];
    const float *x = args->qkv + (size_t)begin * (size_t)(2 * keys + values);
    struct next_row next = {k, decay_of(args, begin, head), read};
    normalise(x + keys + key, dk, args->eps, 1.0f, k);
    clear(read);
    begin_block(args, b, from, start - step->pending[seq], start, few ? to : NULL, &next);
    for (int row = begin; row < end; row++) {
        const float g = next.g;
        const v16f rate = v16f_set1(rate_of(args, row, head));
        const int last = row + 1 == end;
        float *const states[2] = {
            args->states_out ? args->states_out + (size_t)(row * hv + head) * size + first : NULL,
            last && !few ? to : NULL};
        normalise(x + key, dk, args->eps, 1.0f / sqrtf((float)dk), q);
        load_row(x + 2 * keys + value, b.columns, delta);
        for (int j = 0; j < VECTORS; j++)
            delta[j] = v16f_mul(rate, v16f_sub(delta[j], read[j]));
        x += 2 * keys + values;
        if (!last) {
            next = (struct next_row){next_k, decay_of(args, row + 1, head), read};
            normalise(x + keys + key, dk, args->eps, 1.0f, next_k);
            clear(read);
        }
        learn(b, k, delta, q, out, states, (size_t)dv, last ? NULL : &next);
        store_row(args->out + (size_t)row * (size_t)values + value, b.columns, out);
        if (few)
            log_row(args, b, start + row - begin, g, k, delta);
        float *const used = k;
        k = next_k;
        next_k = used;
    }
}

/* A part is a block of columns of one head of one sequence. */
void KERNEL(gated_delta)(const void *pointer, int part, void *scratch)
{
    const struct gated_delta_args *args = pointer;
    const int blocks = delta_blocks(args->value_dim), seq = part / blocks / args->value_heads;
    if (args->step.row_offsets[seq] < args->step.row_offsets[seq + 1])
        run_sequence(args, seq, part / blocks % args->value_heads, part % blocks * DELTA_COLUMNS,
                     scratch);
}
