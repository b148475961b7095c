# socket_calls.py for compiled kernels: the same calls, without the interpreter.

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    static Py_ssize_t cordwood_receive(int fd, void *into, size_t size) {
        ssize_t got;
        do { got = recv(fd, into, size, 0); } while (got < 0 && errno == EINTR);
        return got < 0 ? -(Py_ssize_t)errno : (Py_ssize_t)got;
    }
    static Py_ssize_t cordwood_send(int fd, const void *from, size_t size) {
        ssize_t sent;
        do { sent = send(fd, from, size, MSG_NOSIGNAL); } while (sent < 0 && errno == EINTR);
        return sent < 0 ? -(Py_ssize_t)errno : (Py_ssize_t)sent;
    }
    """
    Py_ssize_t cordwood_receive(int fd, void *into, size_t size) noexcept nogil
    Py_ssize_t cordwood_send(int fd, const void *start, size_t size) noexcept nogil

cdef inline Py_ssize_t receive(
    int fd, unsigned char[::1] buffer, Py_ssize_t at, Py_ssize_t size
) noexcept nogil:
    return cordwood_receive(fd, &buffer[at], size)

cdef inline Py_ssize_t send(
    int fd, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size
) noexcept nogil:
    return cordwood_send(fd, &data[at], size)
