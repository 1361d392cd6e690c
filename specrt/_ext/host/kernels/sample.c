/* sample: a part is one row; specrt/reference/sampling.py says what a draw is. */
#include "draw_row.h"

/* How often the draft has a token before a row. */
static int count_in(const int32_t *draft, int num_draft, int32_t id)
{
    int count = 0;
    for (int i = 0; i < num_draft; i++)
        count += draft[i] == id;
    return count;
}

/* A logit after suppression, bias and penalties; seen and count are of the history and of the
 * output before the token that is drawn. */
static float edited(float x, const struct draw *draw, int suppressed, float bias, int seen, int count)
{
    if (suppressed)
        x = -INFINITY;
    if (bias != 0)
        x += bias;
    if (seen)
        x = x > 0 ? x / draw->repetition : x * draw->repetition;
    if (count > 0)
        x -= draw->presence + draw->frequency * (float)count;
    return x;
}

/* Change the logits that edits name: the draft tokens up to this row, of which the edits name each,
 * count as output. */
static void edit_row(float *x, const struct draw *draw, const struct edit *edits,
                     const int32_t *draft, int num_draft, int suppress)
{
    uint64_t drafted = 0; /* id % 64 as a bit: most edits are of no draft token */
    for (int i = 0; i < num_draft; i++)
        drafted |= 1ull << (draft[i] & 63);
    for (int i = 0; i < draw->num_edits; i++) {
        const struct edit *edit = &edits[draw->first_edit + i];
        const int may = drafted >> (edit->id & 63) & 1;
        const int count = may ? count_in(draft, num_draft, edit->id) : 0;
        const int seen = edit->flags & EDIT_SEEN || count > 0;
        x[edit->id] = edited(x[edit->id], draw, suppress && edit->flags & EDIT_ENDS, edit->bias,
                             seen, edit->count + count);
    }
}

static int draw_token(struct row *row, const struct draw *draw, uint64_t position)
{
    find_maxima(row);
    if (row->scale == 0 || row->max == -INFINITY)
        return find_argmax(row);
    if (draw->top_k > 0 && draw->top_k < row->size)
        set_cut(row, find_top(row, draw->top_k));
    if (draw->top_p < 1)
        cut_nucleus(row, draw->top_p);
    return pick(row, philox_uniform(draw->seed, position));
}

/* Tell the rows behind that this one's token is not the draft's. */
static void tell_wrong(int *wrong, int left)
{
    int known = __atomic_load_n(wrong, __ATOMIC_RELAXED);
    while (known < left && !__atomic_compare_exchange_n(wrong, &known, left, 1, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

void KERNEL(sample)(const void *pointer, int number, void *scratch)
{
    const struct sample_args *args = pointer;
    const int seq = args->row_seqs[number], first = args->row_offsets[seq];
    const struct draw *draw = &args->draws[seq];
    const int left = args->num_rows - number;
    if (!draw->draws || left < __atomic_load_n(&args->wrong[seq], __ATOMIC_RELAXED))
        return;
    float *x = args->logits + (size_t)number * args->stride;
    const int position = args->positions[number] + 1;
    edit_row(x, draw, args->edits, args->tokens + first + 1, number - first,
             position < draw->min_total);
    struct row row = row_over(x, args->size, scratch);
    row.scale = draw->scale;
    row.least = draw->least;
    args->ids[number] = draw_token(&row, draw, (uint64_t)position);
    if (number + 1 < args->row_offsets[seq + 1] && args->ids[number] != args->tokens[number + 1])
        tell_wrong(&args->wrong[seq], left);
}

void KERNEL(find_best)(const void *pointer, int part, void *scratch)
{
    const struct find_best_args *args = pointer;
    struct row row = row_over(args->x, args->size, scratch);
    (void)part;
    find_maxima(&row);
    *args->max = row.max;
    if (args->num_best > 0)
        find_top(&row, args->num_best);
    for (int i = 0; i < args->num_best; i++)
        args->keys[i] = row.items[i].key;
}
