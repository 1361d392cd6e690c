"""One sequence's draws from logits, what edits them, and log probabilities."""

from libc.float cimport FLT_MAX
from libc.limits cimport INT_MAX
from libc.math cimport INFINITY, exp, log
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

import numpy as np

from specrt.errors import MismatchError, OptionError
from specrt.state.draw import EDIT, ENDS, SEEN, Draw, packed
from specrt.state.messages import TokenLogprob

cdef extern from "sample.h":
    ctypedef void kernel_fn(const void *args, int part, void *scratch) noexcept nogil
    int isa_detect()
    ctypedef struct DrawRecord "struct draw":
        int min_total, num_edits
    ctypedef struct SampleArgs "struct sample_args":
        float *logits
        size_t stride
        const DrawRecord *draws
        const void *edits
        const int *tokens
        const int *positions
        const int *row_seqs
        const int *row_offsets
        int *ids
        int *wrong
        int num_rows, size
    ctypedef struct FindBestArgs "struct find_best_args":
        const float *x
        float *max
        uint64_t *keys
        int size, num_best
    size_t draw_scratch(int size)
    float key_logit(uint64_t key)

cdef extern from *:
    """
    static kernel_fn *sample_kernel(void) { return SELECT_KERNEL(sample, isa_detect()); }
    static kernel_fn *find_best_kernel(void) { return SELECT_KERNEL(find_best, isa_detect()); }
    """
    kernel_fn *sample_kernel()
    kernel_fn *find_best_kernel()

cdef kernel_fn *sample_row = sample_kernel()
cdef kernel_fn *find_best = find_best_kernel()


cdef class Counts:
    """How often each id occurs in a history, following it as it grows, shrinks or diverges.

    The counts are a function of the history alone: a copy of the ids that were counted is compared
    with it first, so a draw that is taken back leaves nothing behind.
    """

    cdef int[::1] counted, total, output, distinct
    cdef unsigned char[::1] listed
    cdef int length, prompt_len, num_distinct

    def __init__(self, int vocab_size):
        self.counted = np.empty(1024, np.int32)
        self.total = np.zeros(vocab_size, np.int32)
        self.output = np.zeros(vocab_size, np.int32)
        self.distinct = np.empty(vocab_size, np.int32)
        self.listed = np.zeros(vocab_size, np.uint8)

    cdef int common(self, const int *history, int length) noexcept:
        """How many ids the counted history and this one share at their start."""
        cdef int i = 0, most = min(length, self.length)
        while i + 1024 <= most and memcmp(&history[i], &self.counted[i], 4096) == 0:
            i += 1024
        while i < most and history[i] == self.counted[i]:
            i += 1
        return i

    cdef int follow(self, const int *history, int length, int prompt_len) except -1:
        """Count this history, of which the first ``prompt_len`` ids are the prompt."""
        cdef int token, keep = self.common(history, length)
        if length > self.counted.shape[0]:
            larger = np.empty(2 * length, np.int32)
            larger[: self.length] = self.counted[: self.length]
            self.counted = larger
        if prompt_len != self.prompt_len:
            keep = min(keep, prompt_len, self.prompt_len)
        while self.length > keep:
            self.length -= 1
            token = self.counted[self.length]
            self.total[token] -= 1
            self.output[token] -= self.length >= self.prompt_len
        self.prompt_len = prompt_len
        while self.length < length:
            token = history[self.length]
            if not 0 <= token < self.total.shape[0]:
                raise MismatchError(
                    f"history[{self.length}] = {token}: expected an id below the vocabulary's "
                    f"size {self.total.shape[0]}"
                )
            if not self.listed[token]:
                self.listed[token] = 1
                self.distinct[self.num_distinct] = token
                self.num_distinct += 1
            self.counted[self.length] = token
            self.total[token] += 1
            self.output[token] += self.length >= prompt_len
            self.length += 1
        return 0


cdef packed struct edit_t:  # specrt.state.draw.EDIT
    int id
    float bias
    int flags, count


cdef class Edits:
    """Edits of ids, each once.

    ``place[id]`` is where an id's edit lies if the edit there is of this id, else anything.
    """

    cdef object array
    cdef edit_t[::1] items
    cdef int[::1] place
    cdef int size

    def __init__(self, int most, int[::1] place):
        self.array = self.items = np.empty(most, EDIT)
        self.place = place

    cdef edit_t *of(self, int token) noexcept:
        cdef int i = self.place[token]
        if not (i < self.size and self.items[i].id == token):
            i = self.place[token] = self.size
            self.items[i].id = token
            self.items[i].bias = self.items[i].flags = self.items[i].count = 0
            self.size += 1
        return &self.items[i]


cdef class Sampler:
    """Draws one sequence's tokens: each draw is a pure function of its arguments.

    It keeps nothing between draws but the counts of the history's ids, which follow the history
    that each draw is given. One sampler serves one thread at a time.

    Args:
        params: the SamplingParams.
        seed: the Philox key, 64 bits; ``params.seed`` is not looked at.
        vocab_size: the length of a row of logits.
        end_ids: what ``suppress_ends`` forbids; ids outside the vocabulary cannot be drawn anyway.

    Raises:
        OptionError: a biased id is outside the vocabulary.
    """

    cdef readonly uint64_t seed
    cdef readonly int vocab_size
    cdef bint penalised
    cdef int[::1] ends, biased, place
    cdef float[::1] biases, edited
    cdef unsigned char[::1] scratch, record
    cdef Counts counts

    def __init__(self, params, uint64_t seed, int vocab_size, end_ids=()):
        for token in params.logit_bias:
            if token >= vocab_size:
                raise OptionError(
                    f"logit_bias has the id {token}: expected ids below the vocabulary's size "
                    f"{vocab_size}"
                )
        self.seed = seed
        self.vocab_size = vocab_size
        self.penalised = params.penalises
        self.counts = Counts(vocab_size) if self.penalised else None
        self.ends = np.array([i for i in end_ids if 0 <= i < vocab_size], np.int32)
        self.biased = np.array(list(params.logit_bias), np.int32)
        with np.errstate(over="ignore"):  # a bias may be larger than float32 is
            self.biases = np.array(list(params.logit_bias.values())).astype(np.float32)
        self.place = np.zeros(vocab_size, np.int32)
        self.edited = np.empty(vocab_size, np.float32)
        self.scratch = np.empty(draw_scratch(vocab_size), np.uint8)
        self.record = packed([Draw(params, seed, 0, np.empty(0, EDIT))], 1).view(np.uint8)

    cdef int check_width(self, Py_ssize_t width) except -1:
        if width != self.vocab_size:
            raise MismatchError(
                f"a row of {width} logits: expected the vocabulary's {self.vocab_size}"
            )
        return 0

    def draw(self, const float[::1] logits, const int[::1] history, int prompt_len, int position,
             bint suppress_ends):
        """The token at ``position``.

        Args:
            logits: [V] float32, left as it is.
            history: [n] int32, all ids so far, with those accepted in this step.
            prompt_len: how many of them are the prompt.
            position: where the token will stand.
            suppress_ends: True while the output is shorter than ``min_tokens``.

        Raises:
            MismatchError: the row has another length than the vocabulary, or the history an id
                outside it.
        """
        self.check_width(logits.shape[0])
        edits = self.edits(history, prompt_len, (), suppress_ends)
        least = INT_MAX if suppress_ends else 0
        return self._run(&logits[0], edits, position, least, [])[0]

    def draw_run(self, const float[:, ::1] logits, const int[::1] history, int prompt_len,
                 int position, int min_total, list draft_tokens):
        """The tokens from ``position`` on, one per row, up to the first that is not the draft's.

        Each is ``draw``'s, behind those before it.

        Args:
            logits: [K + 1, V] float32, left as they are.
            history: int32, of which ids are told up to ``position``.
            prompt_len: how many of them are the prompt.
            position: where the first token will stand.
            min_total: ends are suppressed at positions below it.
            draft_tokens: d1 .. dK.

        Raises:
            MismatchError: as ``draw``; or the rows are not one more than the draft's tokens.
        """
        cdef int num_draft = <int>len(draft_tokens)
        if logits.shape[0] != num_draft + 1 or history.shape[0] < position:
            raise MismatchError(
                f"{logits.shape[0]} rows of logits and {history.shape[0]} ids: expected "
                f"{num_draft + 1} rows for {num_draft} draft tokens, and {position} ids"
            )
        self.check_width(logits.shape[1])
        edits = self.edits(history[:position], prompt_len, draft_tokens, position < min_total)
        return self._run(&logits[0, 0], edits, position, min_total, draft_tokens)

    cdef list _run(self, const float *logits, const edit_t[::1] edits, int position, int min_total,
                   list draft_tokens):
        """What the op set's kernel draws from each row: where there are edits, from a copy of it."""
        cdef int row, num_rows = <int>len(draft_tokens) + 1, num_edits = <int>edits.shape[0]
        cdef int[:, ::1] step = np.zeros((5, num_rows + 1), np.int32)
        cdef DrawRecord *record = <DrawRecord *>&self.record[0]
        cdef int wrong = 0
        cdef list run = []
        cdef SampleArgs args
        for row in range(num_rows):
            step[0, row] = draft_tokens[row - 1] if row else 0
            step[1, row] = position - 1 + row
        step[3, 1] = num_rows
        record.min_total, record.num_edits = min_total, num_edits
        args.stride, args.draws = 0, record
        args.edits = <const void *>&edits[0] if num_edits else NULL
        args.tokens, args.positions, args.row_seqs = &step[0, 0], &step[1, 0], &step[2, 0]
        args.row_offsets, args.ids, args.wrong = &step[3, 0], &step[4, 0], &wrong
        args.num_rows, args.size = num_rows, self.vocab_size
        for row in range(num_rows):
            args.logits = <float *>logits + <Py_ssize_t>row * self.vocab_size
            if num_edits:
                memcpy(&self.edited[0], args.logits, self.vocab_size * sizeof(float))
                args.logits = &self.edited[0]
            with nogil:
                sample_row(&args, row, &self.scratch[0])
            run.append(step[4, row])
            if wrong:
                break
        return run

    def edits(self, const int[::1] history, int prompt_len, draft_tokens, bint suppress_ends):
        """What changes logits in draws behind this history and, row by row, the draft tokens.

        Args:
            history: [n] int32, all ids so far.
            prompt_len: how many of them are the prompt.
            draft_tokens: d1 .. dK, counted where they are drawn behind; their edits are here.
            suppress_ends: True while the output is shorter than ``min_tokens``.

        Returns:
            [n] ``specrt.state.draw.EDIT``.

        Raises:
            MismatchError: the history or the draft has an id outside the vocabulary.
        """
        cdef int i, token, ends = <int>self.ends.shape[0] if suppress_ends else 0
        cdef int named = <int>self.biased.shape[0] + ends
        cdef int seen = SEEN, is_end = ENDS
        cdef Counts counts = self.counts
        if self.penalised:
            counts.follow(&history[0], <int>history.shape[0], prompt_len)
            named += counts.num_distinct + <int>len(draft_tokens)
        cdef Edits edits = Edits(named, self.place)
        cdef edit_t *edit
        if self.penalised:
            for i in range(counts.num_distinct):
                token = counts.distinct[i]
                if counts.total[token] > 0:
                    edit = edits.of(token)
                    edit.flags, edit.count = seen, counts.output[token]
            for token in draft_tokens:
                if not 0 <= token < self.vocab_size:
                    raise MismatchError(
                        f"the draft token {token}: expected an id below the vocabulary's size "
                        f"{self.vocab_size}"
                    )
                edits.of(token)
        for i in range(ends):
            edits.of(self.ends[i]).flags |= is_end
        for i in range(self.biased.shape[0]):
            edits.of(self.biased[i]).bias = self.biases[i]
        return edits.array[: edits.size]

    def logprobs(self, const float[::1] logits, int token, int n):
        """The token's log probability and the n likeliest tokens', ``x - log sum exp x``.

        In float64 from the raw logits. NaN counts as -inf, +inf as the largest float; a logit of
        -inf gives -inf.

        Args:
            logits: [V] float32, raw.
            token: the emitted id.
            n: how many likeliest tokens are listed, likeliest first, the lowest id among equals.

        Returns:
            TokenLogprob.
        """
        cdef double norm
        cdef float largest
        cdef uint64_t[::1] keys
        cdef FindBestArgs args
        self.check_width(logits.shape[0])
        if not 0 <= token < self.vocab_size:
            raise MismatchError(
                f"token {token}: expected an id below the vocabulary's size {self.vocab_size}"
            )
        n = min(n, self.vocab_size)
        found = np.empty(n + 1, np.uint64)
        keys = found
        args.x, args.max, args.keys = &logits[0], &largest, &keys[0]
        args.size, args.num_best = self.vocab_size, n
        with nogil:
            find_best(&args, 0, &self.scratch[0])
            norm = log_sum_exp(&logits[0], self.vocab_size, largest)
        best = np.sort(found[:n]).tolist()
        top = tuple((key & 0xFFFFFFFF, logprob(key_logit(key), norm)) for key in best)
        return TokenLogprob(token, logprob(logits[token], norm), top)


cdef double log_sum_exp(const float *x, int size, float largest) noexcept nogil:
    """The log of the sum of exp(x), ascending by id; +inf counts as the largest float."""
    cdef double most = min(largest, FLT_MAX), sum = 0
    cdef int i
    for i in range(size):
        if x[i] > -INFINITY:
            sum += exp(<double>min(x[i], FLT_MAX) - most)
    return most + log(sum)


cdef double logprob(float x, double norm) noexcept:
    """x - norm; -inf for a logit without mass."""
    return min(x, FLT_MAX) - norm if x > -INFINITY else -INFINITY
