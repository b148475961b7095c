# small_checksums.py for compiled kernels: with the processor's own instruction, if it has one.

from cordwood.primitives cimport crc32c_of

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if (defined(__x86_64__) || defined(__amd64__)) && (defined(__GNUC__) || defined(__clang__))
    #include <cpuid.h>
    /* Eight bytes at a step of three cycles. The package crc32c has three such rows at once, which
       is quicker from a few KiB on, but a call of it takes as long as one KiB here. Compilers do
       not agree on how a function asks for the instruction, so it is written out. */
    static uint32_t cordwood_crc32c(const unsigned char *at, size_t size) {
        uint64_t crc = 0xFFFFFFFFu, word;
        for (; size >= 8; size -= 8, at += 8) {
            memcpy(&word, at, 8);
            __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(word));
        }
        for (; size; size--, at++)
            __asm__("crc32b %1, %0" : "+r"(crc) : "qm"(*at));
        return (uint32_t)crc ^ 0xFFFFFFFFu;
    }
    static int cordwood_find_crc32c(void) {
        unsigned int a, b, c = 0, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) != 0;
    }
    #else
    static uint32_t cordwood_crc32c(const unsigned char *at, size_t size) { return 0; }
    static int cordwood_find_crc32c(void) { return 0; }
    #endif
    static int cordwood_has_crc32c = -1;  /* not known; threads that find out find the same */
    static inline int cordwood_may_crc32c(void) {
        if (cordwood_has_crc32c < 0)
            cordwood_has_crc32c = cordwood_find_crc32c();
        return cordwood_has_crc32c;
    }
    """
    unsigned int cordwood_crc32c(const unsigned char *at, size_t size) noexcept nogil
    bint cordwood_may_crc32c() noexcept nogil

cdef inline long long small_crc32c(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, const unsigned int[::1] table
) noexcept nogil:
    if at < end and cordwood_may_crc32c():
        return cordwood_crc32c(&data[at], end - at)
    return crc32c_of(data, at, end, table)

cdef inline Py_ssize_t small_size_max(Py_ssize_t with_table) noexcept nogil:
    return 4096 if cordwood_may_crc32c() else with_table
