/* gated_delta: specrt/reference/gated_delta.py says what it computes.
 *
 * Columns of a state do not meet, so a part takes a block of them through all rows of a sequence:
 * it reads the block once and writes it once, whatever rows are pending and however many are new.
 */
#include <math.h>

#include "gate.h"
#include "recurrent.h"

#define VECTORS (DELTA_COLUMNS / LANES)

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

static void load_block(struct block b, const float *state, size_t stride)
{
    v16f row[VECTORS];
    for (int i = 0; i < b.key_dim; i++) {
        load_row(state + (size_t)i * stride, b.columns, row);
        store_row(b.m + (size_t)i * DELTA_COLUMNS, DELTA_COLUMNS, row);
    }
}

static void store_block(struct block b, float *state, size_t stride)
{
    v16f row[VECTORS];
    for (int i = 0; i < b.key_dim; i++) {
        load_row(b.m + (size_t)i * DELTA_COLUMNS, DELTA_COLUMNS, row);
        store_row(state + (size_t)i * stride, b.columns, row);
    }
}

/* m = g m, and the sums of k m, ascending. */
ALWAYS_INLINE void decay_and_read(struct block b, float g, const float *k, v16f read[VECTORS])
{
    const v16f factor = v16f_set1(g);
    for (int j = 0; j < VECTORS; j++)
        read[j] = v16f_set1(0.0f);
    for (int i = 0; i < b.key_dim; i++) {
        float *m = b.m + (size_t)i * DELTA_COLUMNS;
        const v16f key = v16f_set1(k[i]);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            const v16f value = v16f_mul(v16f_load(m + j * LANES), factor);
            v16f_store(m + j * LANES, value);
            read[j] = v16f_fma(key, value, read[j]);
        }
    }
}

/* m = m + k delta, and the sums of q m, ascending. */
ALWAYS_INLINE void learn_and_read(struct block b, const float *k, const v16f delta[VECTORS],
                                  const float *q, v16f read[VECTORS])
{
    for (int j = 0; j < VECTORS; j++)
        read[j] = v16f_set1(0.0f);
    for (int i = 0; i < b.key_dim; i++) {
        float *m = b.m + (size_t)i * DELTA_COLUMNS;
        const v16f key = v16f_set1(k[i]), query = v16f_set1(q[i]);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            const v16f value = v16f_fma(key, delta[j], v16f_load(m + j * LANES));
            v16f_store(m + j * LANES, value);
            read[j] = v16f_fma(query, value, read[j]);
        }
    }
}

/* m = g m + k delta, rounded as above. */
static void replay(struct block b, float g, const float *k, const v16f delta[VECTORS])
{
    const v16f factor = v16f_set1(g);
    for (int i = 0; i < b.key_dim; i++) {
        float *m = b.m + (size_t)i * DELTA_COLUMNS;
        const v16f key = v16f_set1(k[i]);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            v16f_store(m + j * LANES,
                       v16f_fma(key, delta[j], v16f_mul(v16f_load(m + j * LANES), factor)));
    }
}

/* Where a row of a slot is in a log of so many values a row. */
static float *logged(const struct gated_delta_args *args, float *log, int slot, int position,
                     int values)
{
    const size_t row = (size_t)slot * (size_t)args->log_rows + (size_t)(position % args->log_rows);
    return log + row * (size_t)values;
}

/* The block behind the logged rows from position start to end; before position 0 it is zero. */
static void begin_block(const struct gated_delta_args *args, struct block b, const float *from,
                        int start, int end)
{
    const int dk = b.key_dim, dv = args->value_dim, hv = args->value_heads, hk = args->key_heads;
    v16f delta[VECTORS];
    if (start == 0)
        memset(b.m, 0, (size_t)dk * DELTA_COLUMNS * sizeof(float));
    else
        load_block(b, from, (size_t)dv);
    for (int p = start; p < end; p++) {
        const float *row = logged(args, args->log_delta, b.slot, p, hv * dv);
        load_row(row + b.head * dv + b.first, b.columns, delta);
        replay(b, logged(args, args->log_decay, b.slot, p, hv)[b.head],
               logged(args, args->log_k, b.slot, p, hk * dk) + b.head % hk * dk, delta);
    }
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
    float *from = both + (size_t)step->live[seq] * buffer;
    float *to = both + (size_t)(1 - step->live[seq]) * buffer;
    float *k = b.m + (size_t)dk * DELTA_COLUMNS, *q = k + dk;
    v16f delta[VECTORS], read[VECTORS], v[VECTORS];
    begin_block(args, b, from, start - step->pending[seq], start);
    if (few)
        store_block(b, to, (size_t)dv);
    for (int row = begin; row < end; row++) {
        const float *x = args->qkv + (size_t)row * (size_t)(2 * keys + values);
        const float g = decay_of(args, row, head);
        const v16f rate = v16f_set1(rate_of(args, row, head));
        normalise(x + key, dk, args->eps, 1.0f / sqrtf((float)dk), q);
        normalise(x + keys + key, dk, args->eps, 1.0f, k);
        decay_and_read(b, g, k, read);
        load_row(x + 2 * keys + value, b.columns, v);
        for (int j = 0; j < VECTORS; j++)
            delta[j] = v16f_mul(rate, v16f_sub(v[j], read[j]));
        learn_and_read(b, k, delta, q, read);
        store_row(args->out + (size_t)row * (size_t)values + value, b.columns, read);
        if (few)
            log_row(args, b, start + row - begin, g, k, delta);
        if (args->states_out)
            store_block(b, args->states_out + (size_t)(row * hv + head) * size + first, (size_t)dv);
    }
    if (!few)
        store_block(b, to, (size_t)dv);
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
