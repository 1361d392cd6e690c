# Recording of markov.

cdef extern from "markov.h":
    ctypedef struct MarkovArgs "struct markov_args":
        Matrix predecessor
        Weight successor
        Acts acts
        float *logits
        const float *hidden
        const float *confidence
        const int *names
        const int *tokens
        const int *row_offsets
        float *best
        int *best_ids
        int *ids
        float *confidences
        int hidden_width, num_rows, num_parts, row
    int MARKOV_TILES

cdef extern from *:
    """
    static kernel_fn *markov_kernel(int level) { return SELECT_KERNEL(markov, level); }
    static kernel_fn *markov_rows_kernel(int level) { return SELECT_KERNEL(markov_rows, level); }
    """
    kernel_fn *markov_kernel(int level)
    kernel_fn *markov_rows_kernel(int level)


def record_markov(Tape tape, logits, hidden, step, predecessor, successor, confidence, names, acts,
                  ids, confidences):
    """Append two phases per row, over sequences and over tiles, and one that notes the last ids."""
    cdef MarkovArgs args
    cdef int num_seqs = len(ids), row
    args.predecessor = matrix_struct(predecessor)
    args.successor = weight_struct(successor)
    args.acts = acts_struct(acts, num_seqs)
    args.logits = <float *>address(logits)
    args.hidden = <const float *>address(hidden)
    args.names = <const int *>address(names)
    args.tokens = <const int *>address(step.tokens)
    args.row_offsets = <const int *>address(step.row_offsets)
    args.ids = <int *>address(ids)
    args.confidence = <const float *>address(confidence)
    args.confidences = <float *>address(confidences)
    args.hidden_width, args.num_rows = hidden.shape[1], ids.shape[1]
    args.num_parts = (num_tiles(args.successor.num_rows) + MARKOV_TILES - 1) // MARKOV_TILES
    best = bytearray(4 * num_seqs * args.num_parts)
    best_ids = bytearray(4 * num_seqs * args.num_parts)
    args.best = <float *><char *>best
    args.best_ids = <int *><char *>best_ids
    owned = (logits, hidden, step, predecessor, successor, confidence, names, acts, ids,
             confidences, best, best_ids)
    for row in range(args.num_rows + 1):
        args.row = row
        tape.append("markov_rows", markov_rows_kernel(tape.level), &args, sizeof(args), num_seqs,
                    4 * args.predecessor.num_cols, owned)
        if row < args.num_rows:
            tape.append("markov", markov_kernel(tape.level), &args, sizeof(args), args.num_parts, 0,
                        owned)
