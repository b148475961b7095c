"""A small file that grows by lines: a whole state, then the changes since, each under a checksum.

    <name> 2
    <crc32c, 8 hex digits> <generation> <state>
    <crc32c, 8 hex digits> <generation + 1> <change>
    <crc32c, 8 hex digits> <generation + 2> <change>
    <blanks up to a whole number of blocks>

The checksum covers the generation, a blank and what follows it. A line that is not sound and has
no sound line behind it is the torn end of an append that nobody was told of: it does not count.
A line that is not sound and has one behind it is damage.

The blanks are room for the next lines: an append then allocates nothing, so that it is one cheap
sync, and so that it works on a full disk.
"""

from typing import Final, NamedTuple

from cordwood.checksums import crc32c
from cordwood.errors import FormatError
from cordwood.quantities import KIB

_VERSION: Final = "2"
_BLOCK_BYTES: Final = 4 * KIB
_ROOM_BYTES_MIN: Final = KIB  # for a few changes, at least


class CheckedLine(NamedTuple):
    """One line whose checksum was found right."""

    generation: int
    body: bytes


class CheckedLines(NamedTuple):
    """The sound lines of a file. `end` is where the next line goes; `is_torn`: not blank there."""

    lines: list[CheckedLine]
    end: int
    is_torn: bool


def encode_line(line: CheckedLine) -> bytes:
    checked = b"%d %b" % (line.generation, line.body)
    return b"%08x %b\n" % (crc32c(checked), checked)


def encode_head(name: str) -> bytes:
    return f"{name} {_VERSION}\n".encode()


def padded(data: bytes, *, position: int) -> bytes:
    """`data`, to be written at `position`, and blanks up to the end of a block."""
    end = position + len(data) + _ROOM_BYTES_MIN
    return data + b" " * (_ROOM_BYTES_MIN + -end % _BLOCK_BYTES)


def decode_lines(name: str, content: bytes) -> CheckedLines:
    """Raises `FormatError` unless `content` is a file of that name whose first line is sound."""
    head, _, _ = content.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 2 or fields[0] != name.encode():
        raise FormatError(f"not a {name} file")
    if fields[1] != _VERSION.encode():
        raise FormatError(f"{name} file of unknown version {fields[1]!r}")
    lines: list[CheckedLine] = []
    position = end = len(head) + 1
    while (stop := content.find(b"\n", position)) >= 0:
        line = _decode_line(content[position:stop])
        if line is not None:
            if position != end:
                raise FormatError(f"the {name} file is damaged", position=end)
            if lines and line.generation != lines[-1].generation + 1:
                raise FormatError(f"the {name} file lacks a change", position=position)
            lines.append(line)
            end = stop + 1
        position = stop + 1
    if not lines:
        raise FormatError(f"the checksum of the {name} file does not match")
    return CheckedLines(lines, end, is_torn=bool(content[end:].strip(b" ")))


def _decode_line(line: bytes) -> CheckedLine | None:
    checksum, _, checked = line.partition(b" ")
    generation, _, body = checked.partition(b" ")
    if not generation.isdigit() or checksum != b"%08x" % crc32c(checked):
        return None
    return CheckedLine(int(generation), body)
