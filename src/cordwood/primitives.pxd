# The bodies of primitives.py with C signatures, for the compiler to inline into each kernel.
# A change to one file must be made in both; tests/unit/test_primitives.py compares them.

cimport cython

# --- big-endian integers ---------------------------------------------------------------------

cdef inline long long int16(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    value: cython.longlong = (cython.cast(cython.longlong, data[at]) << 8) | data[at + 1]
    if value >= 0x8000:
        value -= 0x10000
    return value

cdef inline long long uint32(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    value: cython.longlong = (
        (cython.cast(cython.longlong, data[at]) << 24)
        | (cython.cast(cython.longlong, data[at + 1]) << 16)
        | (cython.cast(cython.longlong, data[at + 2]) << 8)
        | cython.cast(cython.longlong, data[at + 3])
    )
    return value

cdef inline long long int32(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    sign: cython.longlong = 0x80000000
    return (uint32(data, at) ^ sign) - sign

cdef inline long long int64(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    return (int32(data, at) << 32) | uint32(data, at + 4)

cdef inline void put_int32(unsigned char[::1] out, Py_ssize_t at, long long value) noexcept nogil:
    """Write the low 32 bits of `value`."""
    out[at] = cython.cast(cython.uchar, (value >> 24) & 0xFF)
    out[at + 1] = cython.cast(cython.uchar, (value >> 16) & 0xFF)
    out[at + 2] = cython.cast(cython.uchar, (value >> 8) & 0xFF)
    out[at + 3] = cython.cast(cython.uchar, value & 0xFF)

cdef inline void put_int64(unsigned char[::1] out, Py_ssize_t at, long long value) noexcept nogil:
    put_int32(out, at, value >> 32)
    put_int32(out, at + 4, value)

cdef inline bint is_ascii(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """Whether no byte of ``data[at:end]`` needs a look at its neighbours to be UTF-8."""
    while at < end:
        if data[at] >= 0x80:
            return False
        at += 1
    return True

# --- varints ---------------------------------------------------------------------------------

cdef inline (unsigned long long, Py_ssize_t) unsigned_varint(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """An integer of at most 64 bits and the position after it; position -1 if malformed."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.uint
    while at < end and shift <= 63:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        if byte < 0x80:
            return raw, at
        shift += 7
    return 0, -1

cdef inline (long long, Py_ssize_t) size_at(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, int width
) noexcept nogil:
    """A size of `width` bytes, or a varint of size + 1 for width 0; position -1 if truncated."""
    raw: cython.ulonglong
    following: cython.Py_ssize_t
    if end - at < width:
        return 0, -1
    if width == 2:
        return int16(data, at), at + 2
    if width == 4:
        return int32(data, at), at + 4
    raw, following = unsigned_varint(data, at, end)
    if following < 0 or following - at > 5:
        return 0, -1
    return cython.cast(cython.longlong, raw) - 1, following

cdef inline (long long, Py_ssize_t) varlong(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """A zig-zag integer of at most 64 bits and the position after it; position -1 if malformed."""
    raw: cython.ulonglong
    raw, at = unsigned_varint(data, at, end)
    return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1), at

cdef inline (long long, Py_ssize_t) varint(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    """A zig-zag integer of at most 32 bits and the position after it; position -1 if malformed."""
    raw: cython.ulonglong = 0
    limit: cython.ulonglong = 0xFFFFFFFF
    shift: cython.int = 0
    byte: cython.uint
    if at < end and data[at] < 0x80:
        byte = data[at]
        return (byte >> 1) ^ -cython.cast(cython.longlong, byte & 1), at + 1
    while at < end and shift <= 28:
        byte = data[at]
        at += 1
        raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        if byte < 0x80:
            if raw > limit:
                return 0, -1
            return (
                cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1),
                at,
            )
        shift += 7
    return 0, -1

cdef inline unsigned long long zigzag(long long value) noexcept nogil:
    """The unsigned integer that a varint stores for `value`."""
    return (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(cython.ulonglong, value >> 63)

cdef inline Py_ssize_t unsigned_size(unsigned long long raw) noexcept nogil:
    """Bytes that `raw` takes as an unsigned varint."""
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size

cdef inline Py_ssize_t varint_size(long long value) noexcept nogil:
    """Bytes that `value` takes as a zig-zag varint."""
    return unsigned_size(zigzag(value))

cdef inline Py_ssize_t put_unsigned(
    unsigned char[::1] out, Py_ssize_t at, unsigned long long raw
) noexcept nogil:
    """Write `raw` as an unsigned varint; return the position after it."""
    while raw >= 0x80:
        out[at] = cython.cast(cython.uchar, (raw & 0x7F) | 0x80)
        raw >>= 7
        at += 1
    out[at] = cython.cast(cython.uchar, raw)
    return at + 1

cdef inline Py_ssize_t put_varint(
    unsigned char[::1] out, Py_ssize_t at, long long value
) noexcept nogil:
    """Write `value` as a zig-zag varint; return the position after it."""
    return put_unsigned(out, at, zigzag(value))

# --- arithmetic that wraps, as Java's does ---------------------------------------------------

cdef inline long long wrapping_sum(long long a, long long b) noexcept nogil:
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b)
        )
    else:
        return (a + b + (1 << 63)) % (1 << 64) - (1 << 63)

cdef inline long long wrapping_difference(long long a, long long b) noexcept nogil:
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, a) - cython.cast(cython.ulonglong, b)
        )
    else:
        return (a - b + (1 << 63)) % (1 << 64) - (1 << 63)

# --- hashes ----------------------------------------------------------------------------------

cdef inline unsigned int murmur2_of(
    const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    """Kafka's hash of the key ``data[start:start + size]``, as an unsigned 32-bit integer."""
    mask: cython.ulonglong = 0xFFFFFFFF
    mix: cython.ulonglong = 0x5BD1E995
    mixed: cython.ulonglong = 0x9747B28C
    word: cython.ulonglong
    at: cython.Py_ssize_t = start
    rest: cython.Py_ssize_t = size & 3
    whole: cython.Py_ssize_t = start + size - rest
    mixed = (mixed ^ cython.cast(cython.ulonglong, size)) & mask
    while at < whole:
        word = (
            cython.cast(cython.ulonglong, data[at])
            | (cython.cast(cython.ulonglong, data[at + 1]) << 8)
            | (cython.cast(cython.ulonglong, data[at + 2]) << 16)
            | (cython.cast(cython.ulonglong, data[at + 3]) << 24)
        )
        word = (word * mix) & mask
        word ^= word >> 24
        word = (word * mix) & mask
        mixed = ((mixed * mix) & mask) ^ word
        at += 4
    if rest >= 3:
        mixed ^= cython.cast(cython.ulonglong, data[at + 2]) << 16
    if rest >= 2:
        mixed ^= cython.cast(cython.ulonglong, data[at + 1]) << 8
    if rest >= 1:
        mixed ^= cython.cast(cython.ulonglong, data[at])
        mixed = (mixed * mix) & mask
    mixed ^= mixed >> 13
    mixed = (mixed * mix) & mask
    mixed ^= mixed >> 15
    return cython.cast(cython.uint, mixed)

cdef inline long long crc32c_of(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, const unsigned int[::1] table
) noexcept nogil:
    """The CRC-32C of ``data[at:end]``; `table` is `CRC32C_TABLE`. Eight bytes at a step."""
    mask: cython.uint = 0xFFFFFFFF
    crc: cython.uint = mask
    low: cython.uint
    while at + 8 <= end:
        low = crc ^ (
            cython.cast(cython.uint, data[at])
            | (cython.cast(cython.uint, data[at + 1]) << 8)
            | (cython.cast(cython.uint, data[at + 2]) << 16)
            | (cython.cast(cython.uint, data[at + 3]) << 24)
        )
        crc = (
            table[1792 + (low & 0xFF)]
            ^ table[1536 + ((low >> 8) & 0xFF)]
            ^ table[1280 + ((low >> 16) & 0xFF)]
            ^ table[1024 + (low >> 24)]
            ^ table[768 + data[at + 4]]
            ^ table[512 + data[at + 5]]
            ^ table[256 + data[at + 6]]
            ^ table[data[at + 7]]
        )
        at += 8
    while at < end:
        crc = table[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
        at += 1
    return crc ^ mask
