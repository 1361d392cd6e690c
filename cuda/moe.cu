/* moe: a mixture of experts; specrt/reference/moe.py says what it computes.
 *
 * Of P = T k pairs of a row and one of its experts each has a place: those of an expert are side by
 * side, so that its weights are read once for a task, which is up to task_rows of them.
 * WEIGHT_TYPE is the type of all matrices of a launch.
 *   moe_group: ids [P] to sources [P], the row of each place, places [P], the place of each pair, and
 *   tasks: their number, then expert, first place and end of each. One block; shared memory: two
 *   integers for each warp.
 *   moe_dot, moe_mma_8, moe_mma_16, moe_f32_8, moe_f32_16: forms of linear.cu, of the same bits. One
 *   or two stacks of matrices share the rows, which are sources' where there are some, else the
 *   places' own; bytes is from one expert's tiles to the next one's; out is [P, N]. Grid: tiles of
 *   both stacks in x, in y as many tasks as there may be. Shared memory: as linear.cu.
 *   moe_mix: results [P, width] by rank, weights [T, k], shared [T, width] with shared_gate [T], and
 *   add [T, width] to out; the last three may be null. Grid (ceil(width / THREADS), T).
 */
#include "tile_f32.cuh"
#include "tile_int8.cuh"

using Type = WEIGHT_TYPE;

/* Where a task's expert, first place and end stand. */
template <class Int> __device__ __forceinline__ Int *task_at(Int *tasks, int number)
{
    return tasks + 1 + 3 * number;
}

extern "C" __global__ void __launch_bounds__(THREADS)
moe_group(const int *ids, int num_pairs, int num_used, int num_experts, int task_rows, int *sources,
          int *places, int *tasks)
{
    int *warps = shared_block<int>();
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    int rows_before = 0, tasks_before = 0;
    for (int base = 0; base < num_experts; base += THREADS) {
        const int expert = base + thread;
        int count = 0;
        for (int i = 0; i < num_pairs; i++)
            count += load(ids + i) == expert;
        const int own = (count + task_rows - 1) / task_rows;
        int rows = count, parts = own; /* of the warp's experts up to this one */
        for (int step = 1; step < 32; step *= 2) {
            const int more_rows = __shfl_up_sync(ALL_LANES, rows, step);
            const int more_parts = __shfl_up_sync(ALL_LANES, parts, step);
            rows += lane >= step ? more_rows : 0;
            parts += lane >= step ? more_parts : 0;
        }
        if (lane == 31) {
            store(warps + thread / 32 * 2, rows);
            store(warps + thread / 32 * 2 + 1, parts);
        }
        __syncthreads();
        int place = rows_before + rows - count, task = tasks_before + parts - own;
        for (int warp = 0; warp < THREADS / 32; warp++) {
            const int more_rows = load(warps + 2 * warp), more_parts = load(warps + 2 * warp + 1);
            place += warp < thread / 32 ? more_rows : 0;
            task += warp < thread / 32 ? more_parts : 0;
            rows_before += more_rows;
            tasks_before += more_parts;
        }
        __syncthreads(); /* before the next experts' sums */
        const int end = place + count;
        for (int first = place; first < end; first += task_rows, task++) {
            store(task_at(tasks, task), expert);
            store(task_at(tasks, task) + 1, first);
            store(task_at(tasks, task) + 2, first + task_rows < end ? first + task_rows : end);
        }
        for (int i = 0; place < end; i++)
            if (load(ids + i) == expert) {
                store(sources + place, i / num_used);
                store(places + i, place++);
            }
    }
    if (thread == 0)
        store(tasks, tasks_before);
}

/* The rows that the places of a task stand for. */
struct TaskRows {
    int first, end;
    const int *sources; /* or null: the places' own */
    __device__ __forceinline__ bool there(int local) const { return first + local < end; }
    __device__ __forceinline__ int at(int local) const
    {
        const int place = there(local) ? first + local : end - 1;
        return sources ? load(sources + place) : place;
    }
};

/* A block's task, and the pair of which it has a tile; false if there is none. */
struct Work {
    Pair pair;
    int tile;
    TaskRows taken;
    End end;
};

__device__ __forceinline__ bool find_work(Work &work, Pair (&stacks)[2],
                                          const long long (&bytes)[2], const int *sources,
                                          const int *tasks)
{
    const int number = static_cast<int>(blockIdx.y);
    if (number >= load(tasks))
        return false;
    const int *task = task_at(tasks, number);
    const int expert = load(task), first = load(task + 1), end = load(task + 2);
    for (int i = 0; i < 2; i++)
        stacks[i].weights += expert * bytes[i];
    work.tile = static_cast<int>(blockIdx.x);
    work.pair = pick(stacks, TILE_ROWS, work.tile);
    work.taken = TaskRows{first, end, sources};
    work.end = End{nullptr, nullptr, 1.0f, 0.0f, end};
    return true;
}

#define STACK(i) const char *weights##i, long long bytes##i, float *out##i, int num_rows##i
#define STACKS STACK(0), STACK(1)
#define THE_STACKS                                                                                 \
    {{weights0, nullptr, out0, num_rows0}, {weights1, nullptr, out1, num_rows1}}
#define ENDS const int *sources, const int *tasks, int width

template <class Form>
__device__ __forceinline__ void expert_split(STACKS, const Codes &codes, ENDS)
{
    Pair stacks[2] = THE_STACKS;
    const long long bytes[2] = {bytes0, bytes1};
    Work work;
    if (find_work(work, stacks, bytes, sources, tasks))
        split<Type, Form>(work.pair, work.tile, codes, work.taken, work.end, width);
}

template <int rows>
__device__ __forceinline__ void expert_f32(STACKS, const float *x, int wide, ENDS)
{
    Pair stacks[2] = THE_STACKS;
    const long long bytes[2] = {bytes0, bytes1};
    Work work;
    if (find_work(work, stacks, bytes, sources, tasks))
        split_f32<Type, rows>(work.pair, work.tile, x, wide, work.taken, work.end, width);
}

#define GIVEN_STACKS weights0, bytes0, out0, num_rows0, weights1, bytes1, out1, num_rows1
#define GIVEN_ENDS sources, tasks, width

extern "C" __global__ void __launch_bounds__(THREADS, 2)
moe_dot(STACKS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        expert_split<DotForm<Type>>(GIVEN_STACKS, THE_CODES, GIVEN_ENDS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
moe_mma_8(STACKS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        expert_split<MmaForm<Type, 1>>(GIVEN_STACKS, THE_CODES, GIVEN_ENDS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
moe_mma_16(STACKS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        expert_split<MmaForm<Type, 2>>(GIVEN_STACKS, THE_CODES, GIVEN_ENDS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
moe_f32_8(STACKS, const float *x, int wide, ENDS)
{
    expert_f32<8>(GIVEN_STACKS, x, wide, GIVEN_ENDS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
moe_f32_16(STACKS, const float *x, int wide, ENDS)
{
    expert_f32<16>(GIVEN_STACKS, x, wide, GIVEN_ENDS);
}

extern "C" __global__ void __launch_bounds__(THREADS)
moe_mix(const float *results, const int *places, const float *weights, const float *shared,
        const float *shared_gate, const float *add, float *out, int num_used, int width)
{
    const int row = static_cast<int>(blockIdx.y);
    const int column = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    if (column >= width)
        return;
    const long long at = static_cast<long long>(row) * width + column;
    const int pair = row * num_used;
    float total = 0.0f;
    for (int r = 0; r < num_used; r++) {
        const long long place = load(places + pair + r);
        total = __fmaf_rn(load(weights + pair + r), load(results + place * width + column), total);
    }
    if (shared) {
        const float e = exp_of(__fsub_rn(0.0f, load(shared_gate + row)));
        total = __fmaf_rn(__fdiv_rn(1.0f, __fadd_rn(1.0f, e)), load(shared + at), total);
    }
    store(out + at, add ? __fadd_rn(total, load(add + at)) : total);
}
