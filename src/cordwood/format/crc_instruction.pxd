# CRC-32C by the processor's instruction, for compiled kernels and short inputs: a call of the
# package `crc32c` costs as much as 2 KiB. Where there is none, `cordwood_has_crc32c` is 0.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #ifdef __x86_64__
    #include <cpuid.h>
    static int cordwood_has_crc32c(void) {
        unsigned int a = 0, b = 0, c = 0, d = 0;
        return __get_cpuid(1, &a, &b, &c, &d) && (c >> 20 & 1); /* SSE 4.2 */
    }
    __attribute__((target("sse4.2")))
    static long long cordwood_crc32c(const unsigned char *at, size_t size) {
        unsigned long long crc = 0xFFFFFFFF, word;
        unsigned int last;
        for (; size >= 8; at += 8, size -= 8) {
            memcpy(&word, at, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        last = (unsigned int)crc;
        for (; size; at++, size--) last = __builtin_ia32_crc32qi(last, *at);
        return last ^ 0xFFFFFFFF;
    }
    #else
    static int cordwood_has_crc32c(void) { return 0; }
    static long long cordwood_crc32c(const unsigned char *at, size_t size) {
        return (void)at, (void)size, -1;
    }
    #endif
    """
    bint cordwood_has_crc32c() noexcept nogil
    long long cordwood_crc32c(const unsigned char *at, size_t size) noexcept nogil
