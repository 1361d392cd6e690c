"""An incremental index of the n-grams of one sequence: where did the last n ids stand before?

One open-addressing table per order n (min_order .. max_order). A table holds an entry per distinct
n-gram: the newest position c of a token that follows it, packed into 32 bits with a tag from the
n-gram's hash. The suffix of the history has no follower yet and so is in no table: it can never
hide its previous occurrence. What an entry replaced is kept per position, hence a rewind undoes
the insertions in reverse order and leaves the tables as they were; nothing stale remains.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif

    /* Zeroed now, so that no step meets a page fault; huge pages save a TLB miss per probe. */
    static void *zeroed(size_t size) {
        const size_t huge = (size_t)2 << 20;
        void *memory;
        if (size < huge) {
            memory = malloc(size);
        } else {
            size = (size + huge - 1) / huge * huge;
            memory = aligned_alloc(huge, size);
    #if defined(MADV_HUGEPAGE)
            if (memory) madvise(memory, size, MADV_HUGEPAGE);
    #endif
        }
        return memory ? memset(memory, 0, size) : memory;
    }

    #define PREFETCH(address) __builtin_prefetch(address)

    static inline uint64_t mix(uint64_t hash, int32_t id) {
        hash = (hash ^ (uint32_t)id) * 0x9E3779B97F4A7C15u;
        return hash ^ (hash >> 32);
    }
    """
    void *zeroed(size_t size) noexcept
    void PREFETCH(const void *address) noexcept
    uint64_t mix(uint64_t hash, int32_t id) noexcept

cdef enum:
    MOST_ORDERS = 16
    MOST_DRAFT = 64
    BLOCK = 16  # ids appended together, so that their cache misses overlap


cdef class NgramIndex:
    """Finds the newest earlier occurrence of the history's last n ids, longest n first.

    Args:
        history: [context + 1] int32, the sequence's own buffer, which ``follow`` reads; all memory
            is sized from it, at once.
        min_order: the shortest n-gram indexed.
        max_order: the longest, at most 16.
    """

    cdef readonly int min_order
    cdef readonly int max_order
    cdef readonly int match_order
    cdef const int32_t[::1] history
    cdef Py_ssize_t capacity
    cdef Py_ssize_t length
    cdef int pending          # newest ids that are not indexed yet
    cdef int orders
    cdef int slot_shift
    cdef int tag_shift
    cdef uint32_t slot_mask
    cdef uint32_t position_mask
    cdef int32_t *ids         # [capacity]
    cdef uint32_t *tables     # [orders, slots] of tag | position, 0 is empty
    cdef uint32_t *replaced   # [capacity, orders], the entry that a position's entry replaced
    cdef uint32_t keys[BLOCK + 1][MOST_ORDERS]  # row i: the suffixes before pending id i

    def __cinit__(self, const int32_t[::1] history, int min_order=2, int max_order=8):
        if not 1 <= min_order <= max_order <= MOST_ORDERS:
            raise ValueError(f"orders {min_order} .. {max_order}: expected 1 <= min_order <= "
                             f"max_order <= {MOST_ORDERS}")
        if not 2 <= history.shape[0] <= 1 << 26:
            raise ValueError(f"{history.shape[0]} ids: expected a history of 2 .. 2**26")
        self.history = history
        self.min_order, self.max_order = min_order, max_order
        self.orders = max_order - min_order + 1
        self.capacity = history.shape[0]
        self.tag_shift = self.capacity.bit_length()
        self.position_mask = (<uint32_t>1 << self.tag_shift) - 1
        cdef int slot_bits = max(6, (3 * self.capacity // 2).bit_length())
        self.slot_shift = 32 - slot_bits
        self.slot_mask = (<uint32_t>1 << slot_bits) - 1
        self.ids = <int32_t *>zeroed(self.capacity * sizeof(int32_t))
        self.tables = <uint32_t *>zeroed((<size_t>self.orders << slot_bits) * sizeof(uint32_t))
        self.replaced = <uint32_t *>zeroed(self.capacity * self.orders * sizeof(uint32_t))
        if self.ids == NULL or self.tables == NULL or self.replaced == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.ids)
        free(self.tables)
        free(self.replaced)

    def __len__(self):
        return self.length

    def commit(self, Py_ssize_t start_pos, list tokens, next_token=None):
        """Hold ``tokens`` from ``start_pos`` on, and the token after them if it is known.

        Ids held already are skipped; from the first that differs on, the held ones are replaced.

        Raises:
            ValueError: a gap after the held ids, or more ids than the context holds.
        """
        cdef Py_ssize_t count = len(tokens)
        cdef Py_ssize_t end = start_pos + count + (next_token is not None)
        cdef Py_ssize_t position = start_pos
        cdef int32_t block[BLOCK]
        cdef int filled = 0
        self._check(start_pos, end)
        while position < end:
            block[filled] = (
                tokens[position - start_pos] if position < start_pos + count else next_token
            )
            if position < self.length:
                if self.ids[position] == block[0]:
                    position += 1
                    continue
                self._rewind(position)
            position += 1
            filled += 1
            if filled == BLOCK or position == end:
                self._append(block, filled)
                filled = 0

    def follow(self, Py_ssize_t num_tokens):
        """Hold exactly ``history[:num_tokens]``; what is held already costs nothing.

        Only the last held ids are compared: a history that changes further back must be committed,
        or rewound here too.
        """
        cdef Py_ssize_t i
        self._check(0, num_tokens)
        self._rewind(num_tokens)
        for i in range(max(0, self.length - self.max_order), self.length):
            if self.ids[i] != self.history[i]:
                i = 0
                while self.ids[i] == self.history[i]:
                    i += 1
                self._rewind(i)
                break
        while self.length < num_tokens:
            self._append(&self.history[self.length], <int>min(BLOCK, num_tokens - self.length))

    def rewind(self, Py_ssize_t num_tokens):
        """Forget all ids from ``num_tokens`` on."""
        self._check(num_tokens, num_tokens)
        self._rewind(num_tokens)

    def propose(self, int num_draft, int min_order):
        """The ids that followed the newest earlier occurrence of the longest known suffix.

        A copy that reaches the end of the history goes on reading the proposed ids, so that a
        repetition of any period gives a full draft. ``match_order`` is the suffix's length after
        it, 0 without a hit.

        Args:
            num_draft: how many ids, at most 64.
            min_order: the shortest suffix that counts.
        """
        cdef int32_t draft[MOST_DRAFT]
        cdef Py_ssize_t length = self.length
        cdef Py_ssize_t source = 0
        cdef int order = <int>min(self.max_order, length) + 1
        cdef int lowest = max(min_order, self.min_order)
        cdef int i
        self._flush()
        while source == 0 and order > lowest:
            order -= 1
            source = self._find(order)
        self.match_order = order if source else 0
        if source == 0:
            return []
        num_draft = min(num_draft, <int>MOST_DRAFT)
        for i in range(num_draft):
            draft[i] = self.ids[source + i] if source + i < length else draft[source + i - length]
        return [draft[i] for i in range(num_draft)]

    cdef int _check(self, Py_ssize_t start_pos, Py_ssize_t end) except -1:
        if not 0 <= start_pos <= self.length:
            raise ValueError(f"position {start_pos}: expected 0 .. {self.length}, the ids held")
        if end > self.capacity:
            raise ValueError(f"{end} ids: expected at most {self.capacity}")
        return 0

    cdef void _hash(self, Py_ssize_t end, uint32_t *keys) noexcept:
        """The hashes of the n-grams that end before ``end``, one per order."""
        cdef uint64_t hash = 0
        cdef Py_ssize_t n
        for n in range(1, min(self.max_order, end) + 1):
            hash = mix(hash, self.ids[end - n])
            if n >= self.min_order:
                keys[n - self.min_order] = hash >> 32

    cdef inline uint32_t *_table(self, int k) noexcept:
        return self.tables + k * (<size_t>self.slot_mask + 1)

    cdef void _prefetch(self, const uint32_t *keys) noexcept:
        cdef int k
        for k in range(self.orders):
            PREFETCH(self._table(k) + (keys[k] >> self.slot_shift))

    cdef void _prefetch_ids(self, const uint32_t *keys) noexcept:
        """What the probes will compare, so that its misses overlap too."""
        cdef Py_ssize_t follower
        cdef int k
        for k in range(self.orders):
            follower = self._table(k)[keys[k] >> self.slot_shift] & self.position_mask
            PREFETCH(self.ids + follower)

    cdef uint32_t *_probe(self, int n, uint32_t key, Py_ssize_t end) noexcept:
        """The entry of the n-gram that ends before ``end``, or the empty slot it would take."""
        cdef uint32_t *table = self._table(n - self.min_order)
        cdef uint32_t slot = key >> self.slot_shift
        cdef uint32_t tag = key << self.tag_shift
        cdef uint32_t entry = table[slot]
        cdef Py_ssize_t back, i
        while entry:
            back = end - (entry & self.position_mask)
            if (entry ^ tag) <= self.position_mask:
                for i in range(end - 1, end - 1 - n, -1):
                    if self.ids[i] != self.ids[i - back]:
                        break
                else:
                    break
            slot = (slot + 1) & self.slot_mask
            entry = table[slot]
        return table + slot

    cdef Py_ssize_t _find(self, int n) noexcept:
        cdef uint32_t key = self.keys[0][n - self.min_order]
        return self._probe(n, key, self.length)[0] & self.position_mask

    cdef void _append(self, const int32_t *tokens, int count) noexcept:
        """Append at most BLOCK ids. They are indexed later, when their table lines are cached."""
        cdef uint32_t *keys
        cdef int i
        if self.pending + count > BLOCK:
            self._flush()
        for i in range(count):
            self.ids[self.length] = tokens[i]
            self.length += 1
            self.pending += 1
            keys = self.keys[self.pending]
            self._hash(self.length, keys)
            self._prefetch(keys)

    cdef void _flush(self) noexcept:
        """Each pending id indexes the n-grams that it follows."""
        cdef uint32_t *slot
        cdef Py_ssize_t position = self.length - self.pending
        cdef int i, k, n
        for i in range(self.pending + 1):
            self._prefetch_ids(self.keys[i])
        for i in range(self.pending):
            for n in range(self.min_order, <int>min(self.max_order, position) + 1):
                k = n - self.min_order
                slot = self._probe(n, self.keys[i][k], position)
                self.replaced[position * self.orders + k] = slot[0]
                slot[0] = (self.keys[i][k] << self.tag_shift) | <uint32_t>position
            position += 1
        memcpy(self.keys[0], self.keys[self.pending], sizeof(self.keys[0]))
        self.pending = 0

    cdef void _rewind(self, Py_ssize_t num_tokens) noexcept:
        cdef Py_ssize_t position
        cdef int k, n
        if num_tokens >= self.length:
            return
        self._flush()
        for position in range(self.length - 1, num_tokens - 1, -1):
            self._hash(position, self.keys[0])
            for n in range(self.min_order, <int>min(self.max_order, position) + 1):
                k = n - self.min_order
                self._probe(n, self.keys[0][k], position)[0] = (
                    self.replaced[position * self.orders + k]
                )
        self.length = num_tokens
        self._hash(num_tokens, self.keys[0])
