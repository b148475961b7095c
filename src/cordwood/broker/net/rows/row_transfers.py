# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Receiving from many sockets in one call, and sending to many in one call.

A kernel: see `format/batch_scan.py` for the rules of kernels. This one calls the system, and it
changes connections (`socket_rows.RowMember`), as far as that is the same for all of a row.
"""

from __future__ import annotations

import errno

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.broker.net.rows.socket_calls import receive, send  # type: ignore
else:
    from cordwood.broker.net.rows.socket_calls import receive, send

COMPILED = cython.compiled

_READABLE = cython.declare(cython.longlong, 1)
_AGAIN = cython.declare(cython.longlong, -errno.EAGAIN)
_COLUMNS = cython.declare(cython.Py_ssize_t, 2)  # of the table: descriptor, result
_FD_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_NOT_IN_ROW = cython.declare(cython.longlong, -0x80000000)  # no code of an error


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _receive_all(
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    buffer: cython.uchar[::1],
    at: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
    small_max: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Receive for the first `count` lines of `table`; return for how many it was done."""
    line: cython.Py_ssize_t
    got: cython.Py_ssize_t
    room: cython.Py_ssize_t = len(buffer) - limit
    for line in range(count):
        if at > limit:
            return line
        got = receive(cython.cast(cython.int, table[line * _COLUMNS]), buffer, at, room)
        table[line * _COLUMNS + 1] = got
        if got > small_max:
            return line + 1
        if got > 0:
            at += got
    return count


def receive_row(
    events: list,
    members: list,
    buffer: cython.uchar[::1],
    at: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
    small_max: cython.Py_ssize_t,
    table: cython.longlong[::1],
    turn_s: object,
    connections: list,
    ends: list,
) -> tuple:
    """Receive from members that are ready, one behind the other, from ``buffer[at:]`` on.

    `events` are pairs of a descriptor and what it is ready for; `members` are connections by
    descriptor, or None. A connection that received 1 to `small_max` bytes is no member any more,
    and is added to `connections`; the end of its bytes is added to `ends`. No receive begins behind
    `limit`, and each has as much room as there is behind it.

    Returns (end of what was added, (connection, result) of members that received something else,
    events of members that had no turn, events of others). Results: more bytes, which lie behind the
    end and are to be handled before anything else is received, so that one is the last; 0: the
    client sends no more; less: the negative code of the error.
    """
    unusual: list = []
    waiting: list = []
    others: list = []
    event: tuple
    fd: cython.longlong
    got: cython.longlong
    line: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    done: cython.Py_ssize_t
    lines_max: cython.Py_ssize_t = len(table) // _COLUMNS
    if at < 0 or limit < 0 or limit >= len(buffer) or small_max > len(buffer) - limit:
        raise IndexError("a row outside its buffer")
    for item in events:
        event = item
        fd = event[0]
        if (
            cython.cast(cython.longlong, event[1]) != _READABLE
            or fd < 0
            or fd >= len(members)
            or fd > _FD_MAX
            or members[cython.cast(cython.Py_ssize_t, fd)] is None
        ):
            others.append(event)
        elif count >= lines_max:
            waiting.append(event)
        else:
            table[count * _COLUMNS] = fd
            count += 1
    with cython.nogil:
        done = _receive_all(table, count, buffer, at, limit, small_max)
    for line in range(done):
        fd = table[line * _COLUMNS]
        got = table[line * _COLUMNS + 1]
        if got == _AGAIN:
            continue
        connection = members[cython.cast(cython.Py_ssize_t, fd)]
        members[cython.cast(cython.Py_ssize_t, fd)] = None
        if 0 < got <= small_max:
            connection.last_active_s = turn_s
            at += cython.cast(cython.Py_ssize_t, got)
            connections.append(connection)
            ends.append(at)
        else:
            unusual.append((connection, got))
    for line in range(done, count):
        waiting.append((table[line * _COLUMNS], _READABLE))
    return at, unusual, waiting, others


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _send_all(
    table: cython.longlong[::1],
    count: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    size: cython.Py_ssize_t,
) -> cython.void:
    line: cython.Py_ssize_t
    for line in range(count):
        if table[line * _COLUMNS] >= 0:
            table[line * _COLUMNS + 1] = send(
                cython.cast(cython.int, table[line * _COLUMNS]), data, line * size, size
            )
        else:
            table[line * _COLUMNS + 1] = _NOT_IN_ROW


def send_row(
    connections: list,
    data: cython.const[cython.uchar][::1],
    size: cython.Py_ssize_t,
    table: cython.longlong[::1],
    members: list,
    turn_s: object,
) -> list:
    """Send each connection its `size` bytes of `data`, which lie there in the same order.

    A connection that took all of them has no answer left, and is a member again. Returns (index,
    result) of the others: how many bytes it took; less than 0: the negative code of the error;
    -2**31: it is not in the row any more, and nothing was sent.
    """
    unusual: list = []
    count: cython.Py_ssize_t = len(connections)
    index: cython.Py_ssize_t
    fd: cython.longlong
    if size < 1 or count > len(data) // size or count > len(table) // _COLUMNS:
        raise IndexError("a row outside its data")
    for index in range(count):
        connection = connections[index]
        fd = connection.fd if connection.is_in_row else -1
        if fd >= len(members):
            raise IndexError("a connection outside the members")
        table[index * _COLUMNS] = fd
    with cython.nogil:
        _send_all(table, count, data, size)
    for index in range(count):
        if table[index * _COLUMNS + 1] == size:
            connection = connections[index]
            connection.answers.clear()
            connection.last_active_s = turn_s
            fd = table[index * _COLUMNS]
            members[cython.cast(cython.Py_ssize_t, fd)] = connection
        else:
            unusual.append((index, table[index * _COLUMNS + 1]))
    return unusual
