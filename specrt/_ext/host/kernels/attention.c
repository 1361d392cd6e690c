/* attention over paged keys and values; specrt/reference/attention.py says what it computes.
 *
 * A query's arithmetic is its own: which rows share a page, a tile or a group of chunks changes who
 * computes and when, and never an order of additions.
 */
#include "attention_merge.h"
#include "attention_softmax.h"
#include "rows_times.h"

/* Dims of a dot that one chain of fmas adds; the chains are added ascending. A single chain over 256
 * dims has five times the error of a BLAS dot. */
#define CHAIN 64

/* The first position that a row sees. */
static inline int first_visible(const struct attention_args *args, int row)
{
    const int lowest = args->lowest[args->step.row_seqs[row]];
    return args->window ? most(lowest, args->step.positions[row] - args->window + 1) : lowest;
}

/* The last one. */
static inline int last_visible(const struct attention_args *args, int row)
{
    if (args->row_offsets)
        row = args->row_offsets[args->step.row_seqs[row] + 1] - 1;
    return args->step.positions[row];
}

/* Rows of one sequence and the heads of one KV head: query i is row i / per_head, head i % per_head
 * of them. They see chunks begin .. end - 1. */
struct queries {
    int row, num_rows, head, per_head, count; /* count = num_rows * per_head */
    int begin, end;
};

/* Those of the rows from row on, up to last - 1, that stand in one sequence. */
static struct queries next_queries(const struct attention_args *args, int row, int last, int head)
{
    const int per_head = args->num_heads / args->cache.num_heads;
    int next = row, first = INT32_MAX, end = 0;
    for (; next < last && args->step.row_seqs[next] == args->step.row_seqs[row]; next++) {
        first = least(first, first_visible(args, next));
        end = most(end, last_visible(args, next) + 1);
    }
    const int count = (next - row) * per_head;
    return (struct queries){row, next - row, head, per_head, count, first / PAGE,
                            (end + PAGE - 1) / PAGE};
}

static int head_of(const struct queries *queries, int i)
{
    return queries->head * queries->per_head + i % queries->per_head;
}

/* Where query i's row and head stand in q and out, [T, num_heads * dims]. */
static size_t place_of(const struct attention_args *args, const struct queries *queries, int i)
{
    size_t row = (size_t)(queries->row + i / queries->per_head);
    return (row * (size_t)args->num_heads + (size_t)head_of(queries, i)) * (size_t)args->cache.dims;
}

static void load_queries(const struct attention_args *args, const struct queries *queries,
                         struct attention_scratch *s)
{
    const size_t dims = (size_t)args->cache.dims;
    for (int i = 0; i < queries->count; i++) {
        const int row = queries->row + i / queries->per_head;
        memcpy(s->q + (size_t)i * dims, args->q + place_of(args, queries, i), 4 * dims);
        s->first[i] = first_visible(args, row);
        s->last[i] = last_visible(args, row) + 1;
    }
}

/* Where the results of a chunk go, query by query. */
struct results {
    float *values, *tops, *sums; /* of query 0 */
    size_t values_stride, tops_stride;
};

/* Dots of queries i .. i + n - 1 to weights; all of one step, then all of the next, so that a
 * processor need not wait for the largest of one query. */
static void softmax(const struct attention_args *args, struct attention_scratch *s, int i, int n,
                    const struct results *results)
{
    for (int j = i; j < i + n; j++)
        if (s->begin[j] < s->end[j])
            results->tops[(size_t)j * results->tops_stride] =
                scale_scores(s->weights + PAGE * j, args, s->begin[j], s->end[j]);
    for (int j = i; j < i + n; j++)
        if (s->begin[j] < s->end[j]) {
            const size_t at = (size_t)j * results->tops_stride;
            results->sums[at] = exponentiate(s->weights + PAGE * j, results->tops[at], s->begin[j],
                                             s->end[j]);
        }
}

/* rows_times by the cache's type, once for dots with keys and once for sums of values. */
static void times_keys(const struct rows_times *a, int type, int r, int rows, int first, int last,
                       int begin, int end)
{
    if (type == KV_F32)
        rows_times(a, FLOATS, ADD, r, rows, first, last, begin, end);
    else if (type == KV_F16)
        rows_times(a, HALVES, ADD, r, rows, first, last, begin, end);
    else
        rows_times(a, KEY_CODES, ADD, r, rows, first, last, begin, end);
}

static void times_values(const struct rows_times *a, int type, int r, int rows, int last, int begin,
                         int end)
{
    if (type == KV_F32)
        rows_times(a, FLOATS, CONTINUE, r, rows, 0, last, begin, end);
    else if (type == KV_F16)
        rows_times(a, HALVES, CONTINUE, r, rows, 0, last, begin, end);
    else
        rows_times(a, VALUE_CODES, CONTINUE, r, rows, 0, last, begin, end);
}

/* Weights times values of n queries, each over its own visible keys: what all of them see in one
 * tile, the keys before and behind query by query. */
static void weigh_values(const struct rows_times *values, const struct kv_cache *cache, int query,
                         int n, const int *first, const int *last)
{
    const int type = cache->type, columns = cache->row_dims;
    int begin = 0, end = PAGE;
    for (int i = query; i < query + n; i++) {
        begin = most(begin, first[i]);
        end = least(end, last[i]);
    }
    end = most(begin, end);
    for (int i = query; i < query + n; i++)
        if (first[i] < least(begin, last[i]))
            times_values(values, type, i, 1, columns, first[i], least(begin, last[i]));
    if (begin < end)
        times_values(values, type, query, n, columns, begin, end);
    for (int i = query; i < query + n; i++)
        if (most(end, first[i]) < last[i])
            times_values(values, type, i, 1, columns, most(end, first[i]), last[i]);
}

/* What each query sees of a chunk: s->begin, s->end, both 0 for nothing. Returns the keys that any
 * of them sees, rounded to vectors. */
static void look_at_chunk(struct attention_scratch *s, int queries, int chunk, int *from, int *to)
{
    int begin = PAGE, end = 0;
    for (int i = 0; i < queries; i++) {
        s->begin[i] = most(0, s->first[i] - chunk * PAGE);
        s->end[i] = least(PAGE, s->last[i] - chunk * PAGE);
        if (s->begin[i] < s->end[i]) {
            begin = least(begin, s->begin[i]);
            end = most(end, s->end[i]);
        } else
            s->begin[i] = s->end[i] = 0;
    }
    *from = begin / LANES * LANES;
    *to = (end + LANES - 1) / LANES * LANES;
}

/* One chunk of keys for all queries. Its values are prefetched with its keys, and next_keys (or
 * NULL) with its values: pages lie anywhere, and what a processor prefetches by itself ends with
 * each. */
static void attend_chunk(const struct attention_args *args, struct attention_scratch *s, int queries,
                         size_t block, int chunk, const char *next_keys, struct results results)
{
    const struct kv_cache *cache = &args->cache;
    const int dims = cache->dims;
    int from, to;
    look_at_chunk(s, queries, chunk, &from, &to);
    struct rows_times scores = {s->q, load_keys(cache, block, s->key_scales), s->weights,
                                (size_t)dims, PAGE, 0};
    struct rows_times values = {s->weights, load_values(cache, block, s->value_scales),
                                results.values, PAGE, results.values_stride, 0};
    scores.ahead = values.m.at - scores.m.at;
    values.ahead = next_keys ? next_keys - values.m.at : 0;
    for (int i = 0, n; i < queries; i += n) {
        const int tiles = (queries - i + V16F_ROWS - 1) / V16F_ROWS;
        n = (queries - i + tiles - 1) / tiles;
        clear(s->weights + PAGE * i, PAGE * n);
        for (int d = 0; d < dims; d += CHAIN)
            times_keys(&scores, cache->type, i, n, from, to, d, least(d + CHAIN, dims));
        for (int j = i; j < i + n; j++)
            if (s->begin[j] < s->end[j])
                clear(results.values + (size_t)j * results.values_stride, cache->row_dims);
        softmax(args, s, i, n, &results);
        weigh_values(&values, cache, i, n, s->begin, s->end);
        scores.ahead = values.ahead = 0;
    }
}

/* Chunks from .. to - 1: merged at once, or each to its place among the partials, which begin with
 * those of query 0. */
static void attend(const struct attention_args *args, struct attention_scratch *s,
                   const struct queries *queries, int from, int to, float *partials)
{
    const struct kv_cache *cache = &args->cache;
    const size_t row_dims = (size_t)cache->row_dims;
    const size_t stride = partial_floats(cache->row_dims, args->max_chunks);
    const int seq = args->step.row_seqs[queries->row];
    load_queries(args, queries, s);
    clear_totals(s, queries->count, cache->row_dims);
    for (int chunk = from; chunk < to; chunk++) {
        size_t block = kv_block(cache, kv_page(cache, &args->step, seq, chunk), queries->head);
        const char *next = NULL;
        if (chunk + 1 < to)
            next = keys_of(cache, kv_block(cache, kv_page(cache, &args->step, seq, chunk + 1),
                                           queries->head));
        struct results results = {s->chunk, s->chunk_top, s->chunk_sum, row_dims, 1};
        if (partials) {
            const size_t slot = (size_t)(chunk % args->max_chunks);
            float *sums = partials + padded(args->max_chunks) + slot;
            float *values = partials + 2 * padded(args->max_chunks) + slot * row_dims;
            results = (struct results){values, partials + slot, sums, stride, stride};
        }
        attend_chunk(args, s, queries->count, block, chunk, next, results);
        if (!partials)
            merge_chunk(s, queries->count, cache->row_dims);
    }
}

/* Chunks of a group of a block of rows, and how many groups there are: as many as the step's lengths
 * fill. */
struct cut {
    int per_group, num_groups;
};

static struct cut cut_chunks(const struct attention_args *args, int row, int end)
{
    int num_chunks = 1;
    while (row < end) {
        struct queries queries = next_queries(args, row, end, 0);
        num_chunks = most(num_chunks, queries.end - queries.begin);
        row += queries.num_rows;
    }
    const int per_group = (num_chunks + args->num_groups - 1) / args->num_groups;
    return (struct cut){per_group, (num_chunks + per_group - 1) / per_group};
}

/* Rows begin .. end - 1, heads of one KV head. */
struct task {
    int begin, end, head;
};

/* A group's chunks: to the partials, or with those NULL to out. */
static void attend_group(const struct attention_args *args, struct attention_scratch *s,
                         struct task task, int group, int per_group, float *partials)
{
    const struct kv_cache *cache = &args->cache;
    const size_t stride = partial_floats(cache->row_dims, args->max_chunks);
    for (int row = task.begin; row < task.end;) {
        const struct queries queries = next_queries(args, row, task.end, task.head);
        const int from = queries.begin + group * per_group;
        attend(args, s, &queries, from, least(queries.end, from + per_group), partials);
        if (partials)
            partials += (size_t)queries.count * stride;
        else
            for (int i = 0; i < queries.count; i++)
                finish(args, head_of(&queries, i), s->total + i * cache->row_dims, s->total_top[i],
                       s->total_sum[i], args->out + place_of(args, &queries, i));
        row += queries.num_rows;
    }
}

/* All groups' chunks to out. */
static void merge_groups(const struct attention_args *args, struct attention_scratch *s,
                         struct task task, const float *partials)
{
    const size_t stride = partial_floats(args->cache.row_dims, args->max_chunks);
    for (int row = task.begin; row < task.end;) {
        const struct queries queries = next_queries(args, row, task.end, task.head);
        for (int i = 0; i < queries.count; i++, partials += stride) {
            const int at = row + i / queries.per_head;
            merge_partials(args, s, partials, first_visible(args, at) / PAGE,
                           last_visible(args, at) / PAGE, head_of(&queries, i),
                           args->out + place_of(args, &queries, i));
        }
        row += queries.num_rows;
    }
}

void KERNEL(attention)(const void *pointer, int part, void *memory)
{
    const struct attention_args *args = pointer;
    const struct kv_cache *cache = &args->cache;
    /* Groups go outside: the last ones, for which there may be no chunks, come last. */
    const int num_tasks = args->num_blocks * cache->num_heads;
    const int number = part % num_tasks, group = part / num_tasks;
    /* The last rows see the most keys: they go first. */
    const int begin = (args->num_blocks - 1 - number / cache->num_heads) * args->block_rows;
    const int end = least(args->num_rows, begin + args->block_rows);
    const struct task task = {begin, end, number % cache->num_heads};
    const struct cut cut = cut_chunks(args, begin, end);
    if (group >= cut.num_groups)
        return;
    const int queries = args->block_rows * (args->num_heads / cache->num_heads);
    struct attention_scratch s;
    attention_scratch(&s, memory, cache->dims, cache->row_dims, queries, args->max_chunks);
    if (cut.num_groups == 1) {
        attend_group(args, &s, task, 0, cut.per_group, NULL);
        return;
    }
    float *partials = *args->partials;
    partials += (size_t)number * (size_t)queries * partial_floats(cache->row_dims, args->max_chunks);
    attend_group(args, &s, task, group, cut.per_group, partials);
    if (__atomic_add_fetch(&args->num_finished[number], 1, __ATOMIC_ACQ_REL) == cut.num_groups)
        merge_groups(args, &s, task, partials);
}
