/* accept: greedy acceptance of each window's draft; specrt/reference/accept.py says what it
 * computes.
 *
 * ids is [T] int32; tokens and positions are [>= T], row_offsets is [num_seqs + 1] with no value
 * above T; out is [num_seqs, 3]. A warp has one window, a block THREADS / 32 of them: grid
 * ceil(num_seqs * 32 / THREADS). A lane compares one row with the token of the next, 32 rows at a
 * time; a window's last row has no next one and agrees with nothing.
 */
#include "common.cuh"

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS)
accept(const int *ids, const int *tokens, const int *positions, const int *row_offsets, int *out,
       int num_seqs)
{
    const int window = static_cast<int>(blockIdx.x * (THREADS / 32) + threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (window >= num_seqs)
        return;
    const int first = load(row_offsets + window), end = load(row_offsets + window + 1);
    if (first >= end && lane < 3)
        store(out + 3 * window + lane, 0);
    unsigned differ = 0; /* the lanes whose rows do */
    for (int start = first; start < end && !differ; start += 32) {
        const int row = start + lane;
        const bool differs = row + 1 >= end || load(ids + row) != load(tokens + row + 1);
        differ = __ballot_sync(0xffffffffu, differs);
        if (differs && !(differ & ((1u << lane) - 1))) { /* the first of them */
            store(out + 3 * window, row - first);
            store(out + 3 * window + 1, load(ids + row));
            store(out + 3 * window + 2, load(positions + first) + row - first + 1);
        }
    }
}
