# sync_calls.py for compiled kernels: the same calls, without the interpreter.

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <string.h>
    #include <time.h>
    #if defined(__linux__) && defined(__LP64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #include <sys/syscall.h>
    #include <unistd.h>
    #endif
    #ifdef SYS_io_submit
    struct cordwood_sync_request {
        uint64_t data;
        uint32_t key, rw_flags;
        uint16_t opcode;
        int16_t priority;
        uint32_t fd;
        uint64_t buffer, size;
        int64_t offset;
        uint64_t reserved;
        uint32_t flags, eventfd;
    };
    static long long cordwood_answer(long found) { return found < 0 ? -(long long)errno : found; }
    static long long cordwood_set_up(long long slots) {
        unsigned long context = 0;
        long found = syscall(SYS_io_setup, (unsigned)slots, &context);
        return found < 0 ? cordwood_answer(found) : (long long)context;
    }
    static long long cordwood_destroy(long long context) {
        return cordwood_answer(syscall(SYS_io_destroy, (unsigned long)context));
    }
    static long long cordwood_submit(
        long long context, long long fd, long long number, long long eventfd
    ) {
        struct cordwood_sync_request request, *requests = &request;
        memset(&request, 0, sizeof request);
        request.data = (uint64_t)number;
        request.opcode = 3; /* fdatasync */
        request.fd = (uint32_t)fd;
        request.flags = 1; /* its end adds to the eventfd */
        request.eventfd = (uint32_t)eventfd;
        return cordwood_answer(syscall(SYS_io_submit, (unsigned long)context, 1L, &requests));
    }
    static long long cordwood_collect(
        long long context, long long at_least, long long room, void *events, long long wait_ns
    ) {
        struct timespec timeout = {wait_ns / 1000000000, wait_ns % 1000000000};
        return cordwood_answer(syscall(
            SYS_io_getevents, (unsigned long)context, (long)at_least, (long)room, events,
            wait_ns < 0 ? NULL : &timeout
        ));
    }
    #else
    #define cordwood_set_up(slots) ((void)(slots), -(long long)ENOSYS)
    #define cordwood_destroy(context) ((void)(context), -(long long)ENOSYS)
    #define cordwood_submit(context, fd, number, eventfd) \
        ((void)(context), (void)(fd), (void)(number), (void)(eventfd), -(long long)ENOSYS)
    #define cordwood_collect(context, at_least, room, events, wait_ns) \
        ((void)(context), (void)(at_least), (void)(room), (void)(events), (void)(wait_ns), \
         -(long long)ENOSYS)
    #endif
    """
    long long cordwood_set_up(long long slots) noexcept nogil
    long long cordwood_destroy(long long context) noexcept nogil
    long long cordwood_submit(
        long long context, long long fd, long long number, long long eventfd
    ) noexcept nogil
    long long cordwood_collect(
        long long context, long long at_least, long long room, void *events, long long wait_ns
    ) noexcept nogil

cdef extern from "Python.h":
    int check_signals "PyErr_CheckSignals"() except -1

cdef inline long long set_up(long long slots) noexcept nogil:
    return cordwood_set_up(slots)

cdef inline long long destroy(long long context) noexcept nogil:
    return cordwood_destroy(context)

cdef inline long long submit(
    long long context, long long fd, long long number, long long eventfd
) noexcept nogil:
    return cordwood_submit(context, fd, number, eventfd)

cdef inline long long collect(
    long long context, long long at_least, long long wait_ns, long long[::1] events
) noexcept nogil:
    return cordwood_collect(context, at_least, events.shape[0] // 4, &events[0], wait_ns)
