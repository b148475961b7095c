# What the kernels take from Python's C interface with types that Cython's own declarations lack.

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char *content, Py_ssize_t size)
    void PyObject_GC_Track(object item)
    int PyGC_Disable()
    int PyGC_Enable()

cdef extern from *:
    """
    /* From 3.14 on a tuple remembers its hash; -1 means that it is not known yet. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define cordwood_forget_hash(item) (((PyTupleObject *)(item))->ob_hash = -1)
    #else
    #define cordwood_forget_hash(item) ((void)(item))
    #endif
    #define cordwood_new_items(kind, items) PyObject_GC_NewVar(PyObject, kind, items)
    """
    void cordwood_forget_hash(object item)
    object cordwood_new_items(type kind, Py_ssize_t items)  # neither filled nor tracked yet
