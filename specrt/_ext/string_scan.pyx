"""Walk a GGUF string array: every string is a uint64 length and its bytes."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy


def scan_strings(const unsigned char[::1] data, Py_ssize_t pos, int64_t[::1] starts):
    """Write where each string's bytes start, until one leaves the data.

    Args:
        data: the file.
        pos: where the first length is.
        starts: ``[N + 1]``; ``starts[i + 1]`` is 8 past the end of string i.

    Returns:
        How many of the N strings lie wholly inside the data.
    """
    cdef Py_ssize_t size = data.shape[0], count = starts.shape[0] - 1, i
    cdef uint64_t length
    starts[0] = pos + 8
    for i in range(count):
        if size - pos < 8:
            return i
        memcpy(&length, &data[pos], 8)
        pos += 8
        if length > <uint64_t>(size - pos):
            return i
        pos += <Py_ssize_t>length
        starts[i + 1] = pos + 8
    return count
