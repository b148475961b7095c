# A hint to the processor, in the form that gcc and clang share: a load from there will follow.

cdef extern from *:
    void __builtin_prefetch(const void *address) nogil
