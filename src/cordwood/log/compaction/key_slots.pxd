# The bodies of key_slots.py with C signatures, for the compiler to inline into each kernel.
# A change to one file must be made in both; tests/unit/test_primitives.py compares them.

cimport cython

cdef extern from *:
    # A hint to the processor, in the form that gcc and clang share: a load from there follows.
    void __builtin_prefetch(const void *address) nogil

cdef enum:
    ROWS_AHEAD = 16

cdef inline Py_ssize_t find_slot(
    unsigned long long[::1] words,
    unsigned long long slots,
    unsigned long long low,
    unsigned long long high,
) noexcept nogil:
    """Where the key's slot begins in `words`, or the free slot where it belongs.

    Always finds one, because the map is never full.
    """
    slot: cython.ulonglong = ((low >> 32) * slots) >> 32
    at: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slot * 3)
    end: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slots * 3)
    while words[at + 2] != 0 and not (words[at] == low and words[at + 1] == high):
        at += 3
        if at == end:
            at = 0
    return at

cdef inline void look_ahead(
    unsigned long long[::1] words,
    unsigned long long slots,
    unsigned long long[::1] hashes,
    Py_ssize_t row,
    Py_ssize_t end_row,
) noexcept nogil:
    """Prefetch the slot of a later row: the map is larger than the processor's caches."""
    if cython.compiled:
        row += ROWS_AHEAD
        if row < end_row:
            __builtin_prefetch(
                cython.address(
                    words[
                        cython.cast(
                            cython.Py_ssize_t, (((hashes[row * 2] >> 32) * slots) >> 32) * 3
                        )
                    ]
                )
            )
