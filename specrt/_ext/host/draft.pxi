# Recording of mtp_project and draft_token.

from specrt.ops import PAGE

cdef extern from "draft.h":
    ctypedef struct MtpProjectArgs "struct mtp_project_args":
        Matrix embedding
        const float *embedding_norm
        const float *hidden_norm
        const float *hidden
        const int *tokens
        const int *positions
        const int *row_seqs
        const int *slots
        Acts acts
        float scale, eps
        int ring
    ctypedef struct DraftTokenArgs "struct draft_token_args":
        const int *ids
        const float *logits
        const int *names
        const float *gates
        int *step_tokens
        int *positions
        int *tokens
        float *shares
        int *stop
        int num_seqs, k, ring, last

cdef extern from *:
    """
    static kernel_fn *mtp_project_kernel(int level) { return SELECT_KERNEL(mtp_project, level); }
    static kernel_fn *draft_token_kernel(int level) { return SELECT_KERNEL(draft_token, level); }
    """
    kernel_fn *mtp_project_kernel(int level)
    kernel_fn *draft_token_kernel(int level)


def record_mtp_project(Tape tape, embedding, hidden, step, tuple norms, float scale, float eps,
                       acts, int num_rows):
    """Append one phase, a part per row: the rows that the projection reads."""
    cdef MtpProjectArgs args
    args.embedding = matrix_struct(embedding)
    args.embedding_norm = <const float *>address(norms[0])
    args.hidden_norm = <const float *>address(norms[1])
    args.hidden = <const float *>address(hidden)
    args.tokens = <const int *>address(step.tokens)
    args.positions = <const int *>address(step.positions)
    args.row_seqs = <const int *>address(step.row_seqs)
    args.slots = <const int *>address(step.slots)
    args.acts = acts_struct(acts, num_rows)
    args.scale, args.eps = scale, eps
    args.ring = hidden.shape[1]
    tape.append("mtp_project", mtp_project_kernel(tape.level), &args, sizeof(args), num_rows,
                8 * args.embedding.num_cols, (embedding, hidden, step, norms, acts))


def record_draft_token(Tape tape, ids, logits, step, names, gates, tokens, shares, stop):
    """Append one phase of one part: a draft has few sequences."""
    cdef DraftTokenArgs args
    args.ids = <const int *>address(ids)
    args.logits = <const float *>address(logits)
    args.names = <const int *>address(names)
    args.gates = <const float *>address(gates)
    args.step_tokens = <int *>address(step.tokens)
    args.positions = <int *>address(step.positions)
    args.tokens = <int *>address(tokens)
    args.shares = <float *>address(shares)
    args.stop = <int *>address(stop)
    args.num_seqs, args.k = ids.shape
    args.ring = tokens.shape[1]
    args.last = step.page_table.shape[1] * PAGE - 1
    tape.append("draft_token", draft_token_kernel(tape.level), &args, sizeof(args), 1, 0,
                (ids, logits, step, names, gates, tokens, shares, stop))
