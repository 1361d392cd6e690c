"""Merge the characters of a text into vocabulary pieces: by score (SentencePiece) or by rank (BPE).

The table reads the pieces where the file holds them; nothing is copied but one int32 a slot.
"""

from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memset

import numpy as np


cdef struct Symbol:
    Py_ssize_t start, size      # size 0: merged into its left neighbour
    Py_ssize_t prev, next       # -1 at the ends
    int32_t token               # -1: not in the vocabulary


cdef struct Candidate:
    double cost
    Py_ssize_t left, right, size


cdef struct Heap:
    Candidate *items
    Py_ssize_t count, room


cdef inline bint before(const Candidate *a, const Candidate *b) noexcept nogil:
    return a.cost < b.cost or (a.cost == b.cost and a.left < b.left)


cdef int push(Heap *heap, Candidate item) except -1 nogil:
    cdef Py_ssize_t at = heap.count, up
    cdef Candidate *grown
    if heap.count == heap.room:
        grown = <Candidate *>realloc(heap.items, 2 * heap.room * sizeof(Candidate))
        if grown == NULL:
            with gil:
                raise MemoryError()
        heap.items, heap.room = grown, 2 * heap.room
    heap.count += 1
    while at > 0:
        up = (at - 1) // 2
        if not before(&item, &heap.items[up]):
            break
        heap.items[at] = heap.items[up]
        at = up
    heap.items[at] = item
    return 0


cdef Candidate pop(Heap *heap) noexcept nogil:
    cdef Candidate top = heap.items[0], last = heap.items[heap.count - 1]
    cdef Py_ssize_t at = 0, down = 1
    heap.count -= 1
    while down < heap.count:
        if down + 1 < heap.count and before(&heap.items[down + 1], &heap.items[down]):
            down += 1
        if not before(&heap.items[down], &last):
            break
        heap.items[at] = heap.items[down]
        at = down
        down = 2 * at + 1
    heap.items[at] = last
    return top


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    x ^= x >> 33
    x *= <uint64_t>0xFF51AFD7ED558CCD
    x ^= x >> 33
    return x


cdef inline Py_ssize_t character_size(uint8_t first) noexcept nogil:
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


cdef Py_ssize_t slots_for(Py_ssize_t count) noexcept:
    """A power of two, at most half full."""
    cdef Py_ssize_t slots = 16
    while slots < 2 * count:
        slots *= 2
    return slots


cdef class PieceMerger:
    """The vocabulary as a hash table from text to id, and the merge loop over it.

    Args:
        data: what holds the pieces, ``[size]`` uint8.
        starts: ``[V + 1]``; piece i is ``data[starts[i] : starts[i + 1] - 8]`` (in a GGUF file a
            length of 8 bytes follows).
        usable: ``[V]``, 1 for the pieces that text may become; of equal ones the first is taken.
        byte_tokens: ``[256]`` what a byte of a character outside the vocabulary becomes; -1 drops.
    """

    cdef const uint8_t[::1] data
    cdef const int64_t[::1] starts
    cdef int32_t[::1] slots
    cdef const int32_t[::1] byte_tokens
    cdef uint64_t mask

    def __init__(self, const uint8_t[::1] data, const int64_t[::1] starts,
                 const uint8_t[::1] usable, const int32_t[::1] byte_tokens):
        cdef Py_ssize_t count = starts.shape[0] - 1, i, slot
        self.data, self.starts, self.byte_tokens = data, starts, byte_tokens
        self.slots = np.full(slots_for(count), -1, np.int32)
        self.mask = self.slots.shape[0] - 1
        for i in range(count):
            if usable[i] and starts[i + 1] - 8 > starts[i]:
                slot = self.slot_of(&data[starts[i]], starts[i + 1] - 8 - starts[i])
                if self.slots[slot] < 0:
                    self.slots[slot] = i

    cdef Py_ssize_t slot_of(self, const uint8_t *text, Py_ssize_t size) noexcept nogil:
        """The slot that holds this text, or the empty one where it would lie."""
        cdef uint64_t code = 0xCBF29CE484222325
        cdef Py_ssize_t i
        cdef int32_t token
        for i in range(size):
            code = (code ^ text[i]) * <uint64_t>0x100000001B3
        code = mixed(code)
        while True:
            token = self.slots[code & self.mask]
            if token < 0 or (self.starts[token + 1] - 8 - self.starts[token] == size
                             and memcmp(&self.data[self.starts[token]], text, size) == 0):
                return code & self.mask
            code += 1

    cdef int32_t lookup(self, const uint8_t *text, Py_ssize_t size) noexcept nogil:
        return self.slots[self.slot_of(text, size)]

    cdef double cost(self, const uint8_t *text, Symbol *left, Symbol *right) noexcept nogil:
        """The order in which two neighbours merge, lowest first; NaN: they do not."""
        return 0.0 / 0.0

    cdef int consider(self, const uint8_t *text, Symbol *symbols, Py_ssize_t left,
                      Py_ssize_t right, Heap *heap) except -1 nogil:
        cdef Candidate item
        if left < 0 or right < 0:
            return 0
        item.cost = self.cost(text, &symbols[left], &symbols[right])
        if isnan(item.cost):
            return 0
        item.left, item.right = left, right
        item.size = symbols[left].size + symbols[right].size
        return push(heap, item)

    cdef int merge(self, const uint8_t *text, Symbol *symbols, Py_ssize_t count,
                   Heap *heap) except -1 nogil:
        cdef Py_ssize_t i
        cdef Symbol *left
        cdef Symbol *right
        cdef Candidate item
        cdef int32_t token
        for i in range(1, count):
            self.consider(text, symbols, i - 1, i, heap)
        while heap.count:
            item = pop(heap)
            left, right = &symbols[item.left], &symbols[item.right]
            # Either has merged elsewhere since.
            if not left.size or not right.size or left.size + right.size != item.size:
                continue
            token = self.lookup(&text[left.start], item.size)
            if token < 0:
                continue
            left.token, left.size, left.next = token, item.size, right.next
            right.size = 0
            if left.next >= 0:
                symbols[left.next].prev = item.left
            self.consider(text, symbols, left.prev, item.left, heap)
            self.consider(text, symbols, item.left, left.next, heap)
        return 0

    def find(self, bytes piece):
        """The id of this very piece, or -1."""
        return self.lookup(piece, len(piece))

    def encode(self, bytes piece):
        """The ids of a piece in UTF-8."""
        cdef const uint8_t *text = piece
        cdef Py_ssize_t size = len(piece), count = 0, at = 0, i
        cdef Symbol *symbols
        cdef Heap heap
        if not size:
            return []
        heap.count, heap.room = 0, size + 1
        heap.items = <Candidate *>malloc(heap.room * sizeof(Candidate))
        symbols = <Symbol *>malloc(size * sizeof(Symbol))
        try:
            if heap.items == NULL or symbols == NULL:
                raise MemoryError()
            while at < size:
                symbols[count].start, symbols[count].prev = at, count - 1
                symbols[count].size = min(character_size(text[at]), size - at)
                symbols[count].token = self.lookup(&text[at], symbols[count].size)
                at += symbols[count].size
                symbols[count].next = count + 1 if at < size else -1
                count += 1
            with nogil:
                self.merge(text, symbols, count, &heap)
            return self.tokens_of(text, symbols)
        finally:
            free(symbols)
            free(heap.items)

    cdef list tokens_of(self, const uint8_t *text, Symbol *symbols):
        cdef list tokens = []
        cdef Py_ssize_t at = 0, i
        while at >= 0:
            if symbols[at].token >= 0:
                tokens.append(symbols[at].token)
            else:
                for i in range(symbols[at].start, symbols[at].start + symbols[at].size):
                    if self.byte_tokens[text[i]] >= 0:
                        tokens.append(self.byte_tokens[text[i]])
            at = symbols[at].next
        return tokens


cdef class ScoreMerger(PieceMerger):
    """SentencePiece: neighbours whose join is a piece merge, the highest score first, then leftmost.

    Args:
        scores: ``[V]`` float32.
    """

    cdef const float[::1] scores

    def __init__(self, const uint8_t[::1] data, const int64_t[::1] starts,
                 const uint8_t[::1] usable, const int32_t[::1] byte_tokens,
                 const float[::1] scores):
        super().__init__(data, starts, usable, byte_tokens)
        self.scores = scores

    cdef double cost(self, const uint8_t *text, Symbol *left, Symbol *right) noexcept nogil:
        cdef int32_t token = self.lookup(&text[left.start], left.size + right.size)
        return 0.0 / 0.0 if token < 0 else -<double>self.scores[token]


cdef class RankMerger(PieceMerger):
    """BPE: neighbours that the merge list names merge, the earliest entry first, then leftmost.

    Args:
        merge_data, merge_starts: the list, ``[M]`` strings ``left right`` laid out as the pieces.
            Of equal entries the first counts; one whose parts are no pieces is passed over.
    """

    cdef uint64_t[::1] pairs        # left id << 32 | right id, + 1; 0: empty
    cdef int32_t[::1] ranks
    cdef uint64_t pair_mask

    def __init__(self, const uint8_t[::1] data, const int64_t[::1] starts,
                 const uint8_t[::1] usable, const int32_t[::1] byte_tokens,
                 const uint8_t[::1] merge_data, const int64_t[::1] merge_starts):
        cdef Py_ssize_t count = merge_starts.shape[0] - 1, rank, space, size, slot
        cdef const uint8_t *text
        cdef int32_t left, right
        super().__init__(data, starts, usable, byte_tokens)
        self.pairs = np.zeros(slots_for(count), np.uint64)
        self.ranks = np.empty(self.pairs.shape[0], np.int32)
        self.pair_mask = self.pairs.shape[0] - 1
        for rank in range(count):
            size = merge_starts[rank + 1] - 8 - merge_starts[rank]
            if size < 3:
                continue
            text = &merge_data[merge_starts[rank]]
            space = 1
            while space < size - 1 and text[space] != 32:
                space += 1
            if space == size - 1:
                continue
            left = self.lookup(text, space)
            right = self.lookup(&text[space + 1], size - space - 1)
            slot = self.pair_slot(left, right)
            if left >= 0 and right >= 0 and not self.pairs[slot]:
                self.pairs[slot] = (<uint64_t>left << 32 | <uint64_t>right) + 1
                self.ranks[slot] = rank

    cdef Py_ssize_t pair_slot(self, int32_t left, int32_t right) noexcept nogil:
        cdef uint64_t pair = (<uint64_t>left << 32 | <uint64_t><uint32_t>right) + 1
        cdef uint64_t code = mixed(pair)
        while self.pairs[code & self.pair_mask] not in (0, pair):
            code += 1
        return code & self.pair_mask

    cdef double cost(self, const uint8_t *text, Symbol *left, Symbol *right) noexcept nogil:
        cdef Py_ssize_t slot
        if left.token < 0 or right.token < 0:
            return 0.0 / 0.0
        slot = self.pair_slot(left.token, right.token)
        return 0.0 / 0.0 if not self.pairs[slot] else self.ranks[slot]
