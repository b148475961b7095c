"""Redis' XADD and XREAD as bytes, and their responses.

The response to an accepted XADD has two lines, the size of the entry's id and the id: ``$15`` and
``1712345678901-0``. The response to a refused one is ``-ERR`` and the reason.
"""

from typing import Final

STREAM: Final = b"bench"

_LINE_END: Final = b"\r\n"
_LINES_PER_ADD: Final = 2
# XREAD of one stream: an array of one, the pair of name and entries, the number of entries; then
# for each entry the pair, its id, and the pair of field and value.
_LINES_BEFORE_ENTRIES: Final = 5
_LINES_PER_ENTRY: Final = 8


class RedisError(Exception):
    """The server refused a command; the message has its text."""


def command(*words: bytes) -> bytes:
    """Encode a command: an array of bulk strings."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def xadd(stream: bytes, value: bytes) -> bytes:
    return command(b"XADD", stream, b"*", b"v", value)


def is_added(answer: bytes) -> bool:
    """Whether `answer` is one whole response to an accepted XADD."""
    return answer[:1] == b"$" and answer.endswith(_LINE_END) and answer.count(_LINE_END) == 2


def is_refused(answer: bytes) -> bool:
    return answer[:1] == b"-"


def xread(stream: bytes, after_id: bytes, count: int) -> bytes:
    """A request for the next `count` entries after that id; ``0`` is before the first."""
    return command(b"XREAD", b"COUNT", b"%d" % count, b"STREAMS", stream, after_id)


def lines_of_read(count: int) -> int:
    """The lines of an XREAD response with `count` entries, whose values have no line ends."""
    return _LINES_BEFORE_ENTRIES + _LINES_PER_ENTRY * count


def last_id(answer: bytes) -> bytes:
    """The id of the last entry of a whole XREAD response."""
    # After it: the pair, the field's size, the field, the value's size, the value, and nothing.
    return answer.rsplit(_LINE_END, 7)[1]


class AddCounter:
    """Counts the acknowledged XADDs that end in its input, which may come in any portions."""

    pings = 0  # Redis never sends a ping

    def __init__(self) -> None:
        self._lines = 0
        self._is_line_start = True

    def feed(self, data: bytes) -> int:
        """The number completed by `data`; a refusal raises `RedisError`."""
        if (self._is_line_start and is_refused(data)) or b"\n-" in data:
            raise RedisError(data[:200].decode(errors="replace"))
        self._is_line_start = data.endswith(b"\n")
        self._lines += data.count(b"\n")
        added, self._lines = divmod(self._lines, _LINES_PER_ADD)
        return added
