"""Redis' XADD as bytes, and what its answer says.

An XADD that was taken is answered with two lines, the size of the entry's id and the id:
``$15`` and ``1712345678901-0``. One that was refused is answered with ``-ERR`` and the reason.
"""

_LINE_END = b"\r\n"


def command(*words: bytes) -> bytes:
    """A command as Redis reads it: an array of bulk strings."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def xadd(stream: bytes, value: bytes) -> bytes:
    return command(b"XADD", stream, b"*", b"v", value)


def is_added(answer: bytes) -> bool:
    """Whether `answer` is one whole answer to an XADD that was taken."""
    return answer[:1] == b"$" and answer.endswith(_LINE_END) and answer.count(_LINE_END) == 2


def is_refused(answer: bytes) -> bool:
    return answer[:1] == b"-"
