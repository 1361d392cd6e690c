/* moe: specrt/reference/moe.py says what it computes. In five phases rows are grouped by expert,
 * copied to panels of their group, multiplied and gated, multiplied again, and mixed: so an expert's
 * weights are read once for all its rows. A row's additions are its own, whatever group it is in.
 */
#include "moe.h"
#include "gated_tiles.h"

/* One part: pairs (row, rank) by expert, in order. Scratch has an integer for each expert. */
void KERNEL(moe_group)(const void *pointer, int part, void *scratch)
{
    const struct moe_args *args = pointer;
    const struct moe_groups *groups = &args->groups;
    int32_t *next = scratch;
    int count = 0, start = 0;
    (void)part;
    memset(next, 0, 4 * (size_t)args->num_experts);
    for (int i = 0; i < args->num_pairs; i++)
        next[args->ids[i]]++;
    for (int e = 0; e < args->num_experts; e++) {
        const int rows = next[e];
        next[e] = start;
        if (!rows)
            continue;
        groups->experts[count] = e;
        groups->starts[count] = start;
        for (int i = start; i < start + rows; i++)
            groups->group_of[i] = count;
        start += rows;
        count++;
    }
    groups->starts[count] = start;
    *groups->num_groups = count;
    for (int i = 0; i < args->num_pairs; i++) {
        const int at = next[args->ids[i]]++;
        groups->sources[at] = i / args->num_used;
        groups->places[i] = at;
    }
}

/* The rows start .. start + num_rows - 1 of all as acts of their own. */
static struct acts group_acts(const struct acts *all, int start, int num_rows)
{
    const size_t first = (size_t)start * (size_t)all->width;
    struct acts group = *all;
    struct int8_rows *forms[2] = {&group.first, &group.second};
    group.num_rows = num_rows;
    if (group.x)
        group.x += first;
    for (int i = 0; i < 2 && forms[i]->q; i++) {
        forms[i]->q += first;
        forms[i]->d += first / 32;
        forms[i]->s += first / 32;
        forms[i]->sums += first / 16;
    }
    return group;
}

/* A group's rows, of rows or of gated. */
static struct acts acts_of(const struct moe_args *args, const struct acts *all, int group)
{
    const int start = args->groups.starts[group];
    return group_acts(all, start, args->groups.starts[group + 1] - start);
}

/* The matrix of a group's expert. */
static struct weight weight_of(const struct moe_args *args, const struct expert_weights *weights,
                               int group)
{
    struct weight weight = weights->first;
    weight.tiles += (size_t)args->groups.experts[group] * weights->bytes;
    return weight;
}

/* One row's items of 4 bytes, each of so many columns, from its panel to its place in another. */
static void copy_items(const void *from, const struct acts *source, int row, void *to,
                       const struct acts *target, int place, int columns)
{
    const size_t count = (size_t)(source->width / columns);
    const size_t in = (size_t)(row % PANEL), out = (size_t)(place % PANEL);
    const size_t in_step = (size_t)panel_rows(source, row / PANEL);
    const size_t out_step = (size_t)panel_rows(target, place / PANEL);
    const char *p = (const char *)from + 4 * (((size_t)row - in) * count + in);
    char *q = (char *)to + 4 * (((size_t)place - out) * count + out);
    for (size_t i = 0; i < count; i++)
        memcpy(q + 4 * out_step * i, p + 4 * in_step * i, 4);
}

/* One of the P rows to its place. */
static void take_row(const struct moe_args *args, int pair)
{
    const int group = args->groups.group_of[pair], row = args->groups.sources[pair];
    const int place = pair - args->groups.starts[group];
    const struct acts *from = &args->from, to = acts_of(args, &args->rows, group);
    const struct int8_rows *source[2] = {&from->first, &from->second};
    const struct int8_rows *target[2] = {&to.first, &to.second};
    const size_t width = (size_t)from->width;
    if (to.x && from->x)
        memcpy(to.x + (size_t)place * width, from->x + (size_t)row * width, 4 * width);
    for (int i = 0; i < 2 && target[i]->q && source[i]->q; i++) {
        copy_items(source[i]->q, from, row, target[i]->q, &to, place, 4);
        copy_items(source[i]->d, from, row, target[i]->d, &to, place, 32);
        copy_items(source[i]->s, from, row, target[i]->s, &to, place, 32);
        copy_items(source[i]->sums, from, row, target[i]->sums, &to, place, 16);
    }
}

/* A part is take_rows of the P rows. */
void KERNEL(moe_take)(const void *pointer, int part, void *scratch)
{
    const struct moe_args *args = pointer;
    const int first = part * args->take_rows, end = first + args->take_rows;
    (void)scratch;
    for (int pair = first; pair < end && pair < args->num_pairs; pair++)
        take_row(args, pair);
}

/* A part is up_blocks blocks of 32 columns of a group's gated rows. */
void KERNEL(moe_up)(const void *pointer, int part, void *scratch)
{
    const struct moe_args *args = pointer;
    const int group = part / args->up_parts, first = part % args->up_parts * args->up_blocks;
    (void)scratch;
    if (group >= *args->groups.num_groups)
        return;
    const struct weight sides[2] = {weight_of(args, &args->sides[0], group),
                                    weight_of(args, &args->sides[1], group)};
    const struct acts rows = acts_of(args, &args->rows, group);
    const struct acts gated = acts_of(args, &args->gated, group);
    const int blocks = (num_tiles(&sides[0]) + GATED_TILES - 1) / GATED_TILES;
    const int end = first + args->up_blocks < blocks ? first + args->up_blocks : blocks;
    for (int block = first; block < end; block++)
        for (int panel = 0; panel < num_panels(&rows); panel++)
            gated_tiles(sides, &rows, panel, block, args->activation, &gated);
}

/* A part is down_tiles tiles of a group's results. */
void KERNEL(moe_down)(const void *pointer, int part, void *scratch)
{
    const struct moe_args *args = pointer;
    const int group = part / args->down_parts, first = part % args->down_parts * args->down_tiles;
    (void)scratch;
    if (group >= *args->groups.num_groups)
        return;
    const struct weight weight = weight_of(args, &args->down, group);
    const struct acts gated = acts_of(args, &args->gated, group);
    const size_t width = (size_t)weight.num_rows;
    float *results = args->results + (size_t)args->groups.starts[group] * width;
    const int tiles = num_tiles(&weight);
    const int end = first + args->down_tiles < tiles ? first + args->down_tiles : tiles;
    float result[PANEL * LANES];
    for (int tile = first; tile < end; tile++)
        for (int panel = 0; panel < num_panels(&gated); panel++) {
            KERNEL(tile_times)(&weight, &gated, tile, panel, result);
            for (int r = 0; r < panel_rows(&gated, panel); r++)
                v16f_store_n(results + (size_t)(panel * PANEL + r) * width + tile * TILE_ROWS,
                             v16f_load(result + r * LANES), tile_rows(&weight, tile));
        }
}

/* The results of a row's experts, rank by rank, and what is added to them. */
void KERNEL(moe)(const void *pointer, int part, void *scratch)
{
    const struct moe_args *args = pointer;
    const struct row_part at = row_part(&args->parts, part);
    const size_t width = (size_t)args->parts.width;
    (void)scratch;
    for (int row = at.first_row; row < at.end_row; row++) {
        const int32_t *places = args->groups.places + (size_t)row * (size_t)args->num_used;
        const float *weights = args->weights + (size_t)row * (size_t)args->num_used;
        const v16f share = sigmoid(v16f_set1(args->shared ? args->shared_gate[row] : 0.0f));
        for (int i = at.first; i < at.end; i += LANES) {
            const int n = at.end - i < LANES ? at.end - i : LANES;
            const size_t place = (size_t)row * width + (size_t)i;
            v16f total = v16f_set1(0.0f);
            for (int r = 0; r < args->num_used; r++) {
                const float *result = args->results + (size_t)places[r] * width + i;
                total = v16f_fma(v16f_set1(weights[r]), v16f_load_n(result, n), total);
            }
            if (args->shared)
                total = v16f_fma(share, v16f_load_n(args->shared + place, n), total);
            if (args->add)
                total = v16f_add(total, v16f_load_n(args->add + place, n));
            v16f_store_n(args->out + place, total, n);
        }
    }
}
