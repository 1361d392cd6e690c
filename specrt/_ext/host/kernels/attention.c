/* attention over paged keys and values; specrt/reference/attention.py says what it computes.
 *
 * A query's arithmetic is its own: which rows share a page, a tile or a group of chunks changes who
 * computes and when, and never an order of additions.
 */
#include "attention.h"
#include "kv_load.h"
#include "rows_times.h"

/* Dims of a dot that one chain of fmas adds; the chains are added ascending. A single chain over 256
 * dims has five times the error of a BLAS dot. */
#define CHAIN 64

static inline int least(int a, int b) { return a < b ? a : b; }
static inline int most(int a, int b) { return a > b ? a : b; }

/* The first position that a row at this position sees. */
static inline int first_visible(const struct attention_args *args, int position)
{
    return args->window ? most(0, position - args->window + 1) : 0;
}

/* Where row and head of the block's query i stand. */
struct queries {
    int row, num_rows, head, per_head, count; /* count = num_rows * per_head */
};

static void load_queries(const struct attention_args *args, const struct queries *queries,
                         struct attention_scratch *s)
{
    const size_t dims = (size_t)args->cache.dims, length = dims * (size_t)queries->per_head;
    const size_t row_length = dims * (size_t)args->num_heads;
    for (int i = 0; i < queries->num_rows; i++) {
        const int row = queries->row + i, position = args->step.positions[row];
        const float *q = args->q + (size_t)row * row_length + (size_t)queries->head * length;
        memcpy(s->q + (size_t)i * length, q, 4 * length);
        for (int g = 0; g < queries->per_head; g++) {
            s->first[i * queries->per_head + g] = first_visible(args, position);
            s->last[i * queries->per_head + g] = position + 1;
        }
    }
}

/* scores of keys begin .. end - 1 to exponentials, 0 where hidden; their largest and their sum to
 * tail. Lane j sums keys j, j + 16, ...; then the tree. */
static void softmax(float *scores, const struct attention_args *args, int begin, int end,
                    float *tail)
{
    v16f s[PAGE / LANES], top = v16f_set1(-INFINITY), sum = v16f_set1(0.0f);
    const v16f scale = v16f_set1(args->scale), cap = v16f_set1(args->softcap);
    const int first = begin / LANES, last = (end + LANES - 1) / LANES;
    for (int i = first; i < last; i++) {
        v16m visible = v16m_first(least(end - LANES * i, LANES));
        s[i] = v16f_mul(v16f_load(scores + LANES * i), scale);
        if (args->softcap > 0)
            s[i] = v16f_mul(cap, v16f_tanh(v16f_div(s[i], cap)));
        s[i] = v16f_select(visible, s[i], v16f_set1(-INFINITY));
        if (begin > LANES * i)
            s[i] = v16f_select(v16m_first(begin - LANES * i), v16f_set1(-INFINITY), s[i]);
        top = v16f_max(top, s[i]);
    }
    const float largest = v16f_reduce_max(top);
    for (int i = first; i < last; i++) {
        v16f p = v16f_exp(v16f_sub(s[i], v16f_set1(largest)));
        v16f_store(scores + LANES * i, p);
        sum = v16f_add(sum, p);
    }
    tail[0] = largest;
    tail[1] = v16f_reduce_add(sum);
}

/* total = total and chunk merged, each [row_dims], then largest score and sum of weights. */
static void merge(float *total, const float *chunk, int row_dims)
{
    float *tail = total + row_dims;
    const float *other = chunk + row_dims;
    const float largest = tail[0] > other[0] ? tail[0] : other[0];
    float factors[LANES] = {tail[0] - largest, other[0] - largest};
    v16f_store(factors, v16f_exp(v16f_load(factors)));
    tail[0] = largest;
    tail[1] = tail[1] * factors[0] + other[1] * factors[1];
    const v16f a = v16f_set1(factors[0]), b = v16f_set1(factors[1]);
    for (int d = 0; d < row_dims; d += LANES) {
        v16f scaled = v16f_mul(v16f_load(chunk + d), b);
        v16f_store(total + d, v16f_fma(v16f_load(total + d), a, scaled));
    }
}

/* Nothing merged yet. */
static void clear(float *total, int row_dims)
{
    memset(total, 0, 4 * (size_t)(row_dims + PARTIAL_TAIL));
    total[row_dims] = -INFINITY;
}

static void finish(const float *total, int row_dims, int dims, float *out)
{
    const v16f inverse = v16f_set1(1.0f / total[row_dims + 1]);
    for (int d = 0; d < dims; d += LANES)
        v16f_store_n(out + d, v16f_mul(v16f_load(total + d), inverse), least(dims - d, LANES));
}

/* Weights times values of n queries, each over its own visible keys: what all of them see in one
 * tile, the keys before and behind query by query. */
static void weigh_values(const struct rows_times *values, int query, int n, int columns,
                         const int *first, const int *last)
{
    int begin = 0, end = PAGE;
    for (int i = query; i < query + n; i++) {
        begin = most(begin, first[i]);
        end = least(end, last[i]);
    }
    end = most(begin, end);
    for (int i = query; i < query + n; i++)
        if (first[i] < least(begin, last[i]))
            rows_times(values, CONTINUE, i, 1, 0, columns, first[i], least(begin, last[i]));
    if (begin < end)
        rows_times(values, CONTINUE, query, n, 0, columns, begin, end);
    for (int i = query; i < query + n; i++)
        if (most(end, first[i]) < last[i])
            rows_times(values, CONTINUE, i, 1, 0, columns, most(end, first[i]), last[i]);
}

/* One chunk of keys for all queries: s->chunk, and what they see of it: s->begin, s->end. */
static void attend_chunk(const struct attention_args *args, struct attention_scratch *s, int queries,
                         size_t block, int chunk)
{
    const struct kv_cache *cache = &args->cache;
    const int dims = cache->dims, row_dims = cache->row_dims, stride = row_dims + PARTIAL_TAIL;
    int *first = s->begin, *last = s->end, begin = PAGE, end = 0;
    for (int i = 0; i < queries; i++) {
        first[i] = most(0, s->first[i] - chunk * PAGE);
        last[i] = least(PAGE, s->last[i] - chunk * PAGE);
        if (first[i] < last[i]) {
            begin = least(begin, first[i]);
            end = most(end, last[i]);
        } else
            first[i] = last[i] = 0;
    }
    const int from = begin / LANES * LANES, to = (end + LANES - 1) / LANES * LANES;
    const float *k = load_keys(cache, block, from, to, s->keys);
    const float *v = load_values(cache, block, begin, end, s->values);
    memset(s->weights, 0, 4 * PAGE * (size_t)queries);
    memset(s->chunk, 0, 4 * (size_t)stride * (size_t)queries);
    const struct rows_times scores = {s->q, k, s->weights, (size_t)dims, PAGE, PAGE};
    const struct rows_times values = {s->weights, v, s->chunk, PAGE, (size_t)row_dims,
                                      (size_t)stride};
    for (int i = 0; i < queries; i += V16F_TILE) {
        int n = least(V16F_TILE, queries - i);
        for (int d = 0; d < dims; d += CHAIN)
            rows_times(&scores, ADD, i, n, from, to, d, least(d + CHAIN, dims));
        for (int j = i; j < i + n; j++)
            if (first[j] < last[j])
                softmax(s->weights + PAGE * j, args, first[j], last[j],
                        s->chunk + stride * j + row_dims);
        weigh_values(&values, i, n, row_dims, first, last);
    }
}

static float *partial_of(const struct attention_args *args, int row, int head, int chunk)
{
    size_t stride = (size_t)args->cache.row_dims + PARTIAL_TAIL;
    size_t at = (size_t)row * (size_t)args->num_heads + (size_t)head;
    return (float *)*args->partials + (at * (size_t)args->max_chunks + (size_t)chunk) * stride;
}

/* Keep one chunk's results: merged into the totals, or alone where attention_merge finds them. */
static void keep_chunk(const struct attention_args *args, struct attention_scratch *s,
                       const struct queries *queries, int chunk)
{
    const int row_dims = args->cache.row_dims, stride = row_dims + PARTIAL_TAIL;
    for (int i = 0; i < queries->count; i++) {
        if (s->begin[i] == s->end[i])
            continue;
        if (args->num_groups == 1) {
            merge(s->total + stride * i, s->chunk + stride * i, row_dims);
            continue;
        }
        int row = queries->row + i / queries->per_head;
        int head = queries->head * queries->per_head + i % queries->per_head;
        float *partial = partial_of(args, row, head, chunk - s->first[i] / PAGE);
        memcpy(partial, s->chunk + stride * i, 4 * (size_t)stride);
    }
}

/* A group's chunks for rows of one sequence. */
static void attend(const struct attention_args *args, struct attention_scratch *s,
                   const struct queries *queries, int group)
{
    const struct kv_cache *cache = &args->cache;
    const int row_dims = cache->row_dims, stride = row_dims + PARTIAL_TAIL;
    load_queries(args, queries, s);
    int begin = s->first[0], end = s->last[0];
    for (int i = 0; i < queries->count; i++) {
        begin = least(begin, s->first[i]);
        end = most(end, s->last[i]);
        clear(s->total + stride * i, row_dims);
    }
    begin /= PAGE;
    end = (end + PAGE - 1) / PAGE;
    const int per_group = (end - begin + args->num_groups - 1) / args->num_groups;
    const int from = begin + group * per_group, to = least(end, from + per_group);
    for (int chunk = from; chunk < to; chunk++) {
        size_t page = kv_page(cache, &args->step, args->step.row_seqs[queries->row], chunk);
        size_t block = kv_block(cache, page, queries->head);
        attend_chunk(args, s, queries->count, block, chunk);
        keep_chunk(args, s, queries, chunk);
    }
    if (args->num_groups > 1)
        return;
    const size_t dims = (size_t)cache->dims;
    for (int i = 0; i < queries->count; i++) {
        size_t row = (size_t)(queries->row + i / queries->per_head);
        size_t head = (size_t)(queries->head * queries->per_head + i % queries->per_head);
        finish(s->total + stride * i, row_dims, cache->dims,
               args->out + (row * (size_t)args->num_heads + head) * dims);
    }
}

void KERNEL(attention)(const void *pointer, int part, void *memory)
{
    const struct attention_args *args = pointer;
    const struct kv_cache *cache = &args->cache;
    const int group = part % args->num_groups, rest = part / args->num_groups;
    const int head = rest % cache->num_heads;
    /* The last rows see the most keys: they go first. */
    const int block = args->num_blocks - 1 - rest / cache->num_heads;
    const int end = least(args->num_rows, (block + 1) * args->block_rows);
    const int per_head = args->num_heads / cache->num_heads;
    struct attention_scratch s;
    attention_scratch(&s, memory, cache->dims, cache->row_dims, args->block_rows * per_head);
    for (int row = block * args->block_rows, next; row < end; row = next) {
        for (next = row + 1; next < end; next++)
            if (args->step.row_seqs[next] != args->step.row_seqs[row])
                break;
        struct queries queries = {row, next - row, head, per_head, (next - row) * per_head};
        attend(args, &s, &queries, group);
    }
}

void KERNEL(attention_merge)(const void *pointer, int part, void *memory)
{
    const struct attention_args *args = pointer;
    const int dims = args->cache.dims, row_dims = args->cache.row_dims;
    const int row = part / args->num_heads, head = part % args->num_heads;
    const int position = args->step.positions[row];
    const int num_chunks = position / PAGE - first_visible(args, position) / PAGE + 1;
    float *total = memory;
    clear(total, row_dims);
    for (int chunk = 0; chunk < num_chunks; chunk++)
        merge(total, partial_of(args, row, head, chunk), row_dims);
    finish(total, row_dims, dims, args->out + (size_t)part * (size_t)dims);
}
