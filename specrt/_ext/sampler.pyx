"""The C twin of specrt.reference.sampling: one sequence's draws, argmax and log probabilities."""

from libc.math cimport INFINITY
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

import math

import numpy as np

from specrt.errors import MismatchError, OptionError
from specrt.state.draw import EDIT, ENDS, SEEN
from specrt.state.messages import TokenLogprob

cdef extern from "sampler.h":
    enum: BLOCK
    float FLT_MAX, LEAST
    int INT_MAX
    ctypedef struct item:
        uint64_t key, weight
    ctypedef struct row:
        const float *x
        float *maxima
        uint64_t *sums
        item *items
        int size, blocks
        float max, scale, t_min, cut_x
        int cut_id
    uint64_t philox_uniform(uint64_t seed, uint64_t position) nogil
    void find_maxima(row *r) nogil
    int find_argmax(const row *r) nogil
    uint64_t find_top(row *r, int k) nogil
    void set_cut(row *r, uint64_t key) nogil
    void cut_nucleus(row *r, double top_p) nogil
    int pick(row *r, uint64_t uniform) nogil
    double log_sum_exp(const row *r) nogil
    float key_logit(uint64_t key) nogil


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
    cdef row row
    cdef int top_k
    cdef bint greedy, penalised
    cdef double top_p
    cdef float repetition, presence, frequency
    cdef int[::1] ends, biased, place
    cdef float[::1] biases, edited, maxima
    cdef uint64_t[::1] sums
    cdef uint64_t[:, ::1] items
    cdef Counts counts

    def __init__(self, params, uint64_t seed, int vocab_size, end_ids=()):
        cdef int blocks = (vocab_size + BLOCK - 1) // BLOCK
        for token in params.logit_bias:
            if token >= vocab_size:
                raise OptionError(
                    f"logit_bias has the id {token}: expected ids below the vocabulary's size "
                    f"{vocab_size}"
                )
        self.seed = seed
        self.vocab_size = vocab_size
        self.greedy = params.temperature == 0
        self.top_k = params.top_k if params.top_k < vocab_size else 0
        self.top_p = params.top_p
        self.repetition = params.repetition_penalty
        self.presence = params.presence_penalty
        self.frequency = params.frequency_penalty
        self.penalised = self.repetition != 1 or self.presence != 0 or self.frequency != 0
        self.counts = Counts(vocab_size) if self.penalised else None
        self.ends = np.array([i for i in end_ids if 0 <= i < vocab_size], np.int32)
        self.biased = np.array(list(params.logit_bias), np.int32)
        with np.errstate(over="ignore"):  # a bias may be larger than float32 is
            self.biases = np.array(list(params.logit_bias.values())).astype(np.float32)
        self.place = np.zeros(vocab_size, np.int32)
        self.edited = np.empty(vocab_size, np.float32)
        self.maxima = np.empty(blocks, np.float32)
        self.sums = np.empty(blocks, np.uint64)
        self.items = np.empty((vocab_size, 2), np.uint64)
        self.row.maxima = &self.maxima[0]
        self.row.sums = &self.sums[0]
        self.row.items = <item *>&self.items[0, 0]
        self.row.size = vocab_size
        self.row.blocks = blocks
        self.row.scale = 0 if self.greedy else min(1 / params.temperature, FLT_MAX)
        self.row.t_min = max(LEAST, math.log(params.min_p)) if params.min_p > 0 else LEAST

    cdef int enter(self, const float[::1] logits) except -1:
        if logits.shape[0] != self.vocab_size:
            raise MismatchError(
                f"a row of {logits.shape[0]} logits: expected the vocabulary's {self.vocab_size}"
            )
        self.row.x = &logits[0]
        return 0

    cdef void edit(self, bint suppress_ends) noexcept nogil:
        """Suppression, bias and penalties, on a copy of the row."""
        cdef int i, token
        cdef float *x = &self.edited[0]
        memcpy(x, self.row.x, self.vocab_size * sizeof(float))
        self.row.x = x
        if suppress_ends:
            for i in range(self.ends.shape[0]):
                x[self.ends[i]] = -INFINITY
        for i in range(self.biased.shape[0]):
            x[self.biased[i]] += self.biases[i]
        for i in range(self.counts.num_distinct if self.penalised else 0):
            token = self.counts.distinct[i]
            if self.counts.total[token] == 0:
                continue
            if x[token] > 0:
                x[token] /= self.repetition
            else:
                x[token] *= self.repetition
            if self.counts.output[token] > 0:
                x[token] -= self.presence + self.frequency * <float>self.counts.output[token]

    def draw(self, const float[::1] logits, const int[::1] history, int prompt_len,
             uint64_t position, bint suppress_ends):
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
        self.enter(logits)
        return self._draw(&history[0], <int>history.shape[0], prompt_len, position, suppress_ends)

    def draw_run(self, const float[:, ::1] logits, int[::1] history, int prompt_len,
                 int position, int min_total, list draft_tokens):
        """The tokens from ``position`` on, one per row, up to the first that is not the draft's.

        Each is ``draw``'s, behind those before it, which are written to the history.

        Args:
            logits: [K + 1, V] float32, left as they are.
            history: int32, of which ids are told up to ``position``, with room for the draft.
            prompt_len: how many of them are the prompt.
            position: where the first token will stand.
            min_total: ends are suppressed at positions below it.
            draft_tokens: d1 .. dK.

        Raises:
            MismatchError: as ``draw``; or the rows are not one more than the draft's tokens.
        """
        cdef int row, token, num_draft = <int>len(draft_tokens)
        cdef list run = []
        if logits.shape[0] != num_draft + 1 or history.shape[0] < position + num_draft:
            raise MismatchError(
                f"{logits.shape[0]} rows of logits and room for {history.shape[0]} ids: expected "
                f"{num_draft + 1} rows for {num_draft} draft tokens, and {position + num_draft} ids"
            )
        for row in range(num_draft + 1):
            self.enter(logits[row])
            token = self._draw(&history[0], position, prompt_len, position, position < min_total)
            run.append(token)
            if row == num_draft or token != <int>draft_tokens[row]:
                break
            history[position] = token
            position += 1
        return run

    cdef int _draw(self, const int *history, int length, int prompt_len, uint64_t position,
                   bint suppress_ends) except -1:
        cdef int token
        if self.penalised:
            self.counts.follow(history, length, prompt_len)
        with nogil:
            if self.penalised or suppress_ends or self.biased.shape[0] > 0:
                self.edit(suppress_ends)
            find_maxima(&self.row)
            if self.greedy or self.row.max == -INFINITY:
                token = find_argmax(&self.row)
            else:
                self.cut()
                token = pick(&self.row, philox_uniform(self.seed, position))
        return token

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

    cdef void cut(self) noexcept nogil:
        """Keep what top-k and top-p keep; min-p is the row's least t."""
        self.row.cut_x = -INFINITY
        self.row.cut_id = INT_MAX
        if self.top_k > 0:
            set_cut(&self.row, find_top(&self.row, self.top_k))
        if self.top_p < 1:
            cut_nucleus(&self.row, self.top_p)

    def argmax(self, const float[::1] logits):
        """The id of the largest logit, ties to the lowest id; NaN never wins.

        Args:
            logits: [V] float32.
        """
        self.enter(logits)
        find_maxima(&self.row)
        return find_argmax(&self.row)

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
        cdef int i
        self.enter(logits)
        if not 0 <= token < self.vocab_size:
            raise MismatchError(
                f"token {token}: expected an id below the vocabulary's size {self.vocab_size}"
            )
        n = min(n, self.vocab_size)
        keys = []
        with nogil:
            find_maxima(&self.row)
            norm = log_sum_exp(&self.row)
            if n > 0:
                find_top(&self.row, n)
        for i in range(n):
            keys.append(self.row.items[i].key)
        keys.sort()
        top = tuple((key & 0xFFFFFFFF, logprob(key_logit(key), norm)) for key in keys)
        return TokenLogprob(token, logprob(logits[token], norm), top)


cdef double logprob(float x, double norm) noexcept:
    """x - norm; -inf for a logit without mass."""
    return min(x, FLT_MAX) - norm if x > -INFINITY else -INFINITY
