# What the kernels take from Python's C interface with types that Cython's own declarations lack.

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    int PyGC_Disable()
    int PyGC_Enable()
