"""The text of the `*-checkpoint` files.

    line      content
    1         version, always 0
    2         number of entries
    3...      offset checkpoints:      <topic> <partition> <offset>
              leader-epoch-checkpoint: <epoch> <start offset>

Every line ends with a newline, including the last one. An empty file has no entries; any other
incomplete file is an error that names the line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cordwood.errors import FormatError, InvalidTopicNameError, UnsupportedFormatError
from cordwood.format.file_names import check_topic_name
from cordwood.quantities import INT32_MAX, INT64_MAX, LeaderEpoch, Offset
from cordwood.value_class import dataclass

_VERSION: Final = 0

_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_OFFSET_LINE: Final = re.compile(r"(\S+)\s+([0-9]{1,19})\s+([0-9]{1,19})\s*", re.ASCII)
_EPOCH_LINE: Final = re.compile(r"([0-9]{1,19})\s+([0-9]{1,19})\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEntry:
    """The leader epoch that began at an offset."""

    epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    number: int
    position: int
    text: str

    def error(self, reason: str) -> FormatError:
        return FormatError(f"line {self.number}: {reason}", position=self.position)


def decode_text(data: bytes) -> str:
    """The text of a UTF-8 file; bytes that are not UTF-8 are a FormatError."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8 text: {error.reason}", position=error.start) from error


def parse_offset_checkpoint(text: str) -> dict[tuple[str, int], Offset]:
    """Offsets by (topic, partition). A partition named twice is an error."""
    offsets: dict[tuple[str, int], Offset] = {}
    for line in _entry_lines(text):
        found = _OFFSET_LINE.fullmatch(line.text)
        if found is None:
            raise line.error(f"{line.text[:80]!r} is not '<topic> <partition> <offset>'")
        try:
            check_topic_name(found[1])
        except InvalidTopicNameError as error:
            raise line.error(str(error)) from error
        partition = _bounded(line, "partition", found[2], INT32_MAX)
        if (found[1], partition) in offsets:
            raise line.error(f"{found[1]}-{partition} appears twice")
        offsets[found[1], partition] = Offset(_bounded(line, "offset", found[3], INT64_MAX))
    return offsets


def render_offset_checkpoint(offsets: Mapping[tuple[str, int], Offset]) -> str:
    """The whole file, sorted by topic and partition."""
    assert all(offset >= 0 for offset in offsets.values()), offsets
    return _render(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def parse_epoch_checkpoint(text: str) -> list[EpochEntry]:
    """Entries in file order. Epochs must increase, and start offsets must not decrease."""
    entries: list[EpochEntry] = []
    for line in _entry_lines(text):
        found = _EPOCH_LINE.fullmatch(line.text)
        if found is None:
            raise line.error(f"{line.text[:80]!r} is not '<epoch> <start offset>'")
        entry = EpochEntry(
            epoch=LeaderEpoch(_bounded(line, "epoch", found[1], INT32_MAX)),
            start_offset=Offset(_bounded(line, "start offset", found[2], INT64_MAX)),
        )
        if entries and entry.epoch <= entries[-1].epoch:
            raise line.error(f"epoch {entry.epoch} follows epoch {entries[-1].epoch}")
        if entries and entry.start_offset < entries[-1].start_offset:
            raise line.error(
                f"epoch {entry.epoch} starts at offset {entry.start_offset}, "
                f"before epoch {entries[-1].epoch} at {entries[-1].start_offset}"
            )
        entries.append(entry)
    return entries


def render_epoch_checkpoint(entries: Iterable[EpochEntry]) -> str:
    """The whole file, entries in the order given."""
    return _render(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def _render(entry_lines: Iterable[str]) -> str:
    lines = list(entry_lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(lines)), *lines))


def _entry_lines(text: str) -> Iterator[_Line]:
    """The lines after the first two, which are checked; their number must match the count.

    The count is only compared; no memory is allocated according to it.
    """
    if not text:
        return
    lines = _lines(text)
    first = next(lines)
    version = _bounded(first, "version", first.text, INT32_MAX)
    if version != _VERSION:
        raise UnsupportedFormatError("checkpoint version", version)
    second = next(lines, None)
    if second is None:
        raise FormatError("line 2: the number of entries is missing", position=len(text))
    announced = _bounded(second, "number of entries", second.text, INT32_MAX)
    found = 0
    for line in lines:
        found += 1
        yield line
    if found != announced:
        raise second.error(f"the header says {announced} entries, found {found}")


def _lines(text: str) -> Iterator[_Line]:
    position = 0
    number = 0
    while position < len(text):
        number += 1
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        yield _Line(number=number, position=position, text=text[position:end].removesuffix("\r"))
        position = end + 1


def _bounded(line: _Line, what: str, digits: str, largest: int) -> int:
    # int() alone would also accept signs, underscores, spaces and digits of other scripts.
    if _NUMBER.fullmatch(digits) is None or int(digits) > largest:
        raise line.error(f"{what} {digits[:80]!r} is not a number from 0 to {largest}")
    return int(digits)
