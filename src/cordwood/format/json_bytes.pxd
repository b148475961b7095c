# The bodies of json_bytes.py with C signatures, for the compiler to inline into each kernel.
# A change to one file must be made in both; tests/unit/test_primitives.py compares them.

cimport cython

cdef inline Py_ssize_t skip_space(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """The position of the next byte that is no space; `end` if there is none."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at

cdef inline Py_ssize_t after_wide(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """The position after a character of several bytes of UTF-8; -1 if it is none, or half a one."""
    byte: cython.uint = data[at]
    size: cython.Py_ssize_t
    low: cython.uint = 0x80
    high: cython.uint = 0xBF
    if 0xC2 <= byte <= 0xDF:
        size = 2
    elif 0xE0 <= byte <= 0xEF:
        size = 3
        if byte == 0xE0:
            low = 0xA0
        elif byte == 0xED:
            high = 0x9F
    elif 0xF0 <= byte <= 0xF4:
        size = 4
        if byte == 0xF0:
            low = 0x90
        elif byte == 0xF4:
            high = 0x8F
    else:
        return -1
    if at + size > end or not low <= data[at + 1] <= high:
        return -1
    if size > 2 and not 0x80 <= data[at + 2] <= 0xBF:
        return -1
    if size > 3 and not 0x80 <= data[at + 3] <= 0xBF:
        return -1
    return at + size
