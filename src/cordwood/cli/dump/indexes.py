"""Dumps the indexes of a segment, and checks that their entries are possible.

``cordwood verify`` checks whether they match the log; that cannot be seen from an index alone.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

from cordwood.cli.dump.lines import Dump, DumpedFile, DumpLine, DumpOptions, Fields, Soundness
from cordwood.cli.readable_values import shown_time
from cordwood.errors import FormatError
from cordwood.format import key_index
from cordwood.format.index_entry import (
    ABORTED_ENTRY_SIZE,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    decode_aborted_transaction,
    decode_offset_entry,
    decode_time_entry,
)

_PIECE_ENTRIES: Final = 8192
_HASH_AND_POSITION: Final = struct.Struct(">QI")
_UNUSED: Final = "unused slots, which Kafka preallocates"

# Decodes the entry at a position; FormatError for an impossible entry.
Decode = Callable[[bytes, int], Fields]
Follows = Callable[[Fields, Fields], bool]


def dump_offset_index(dumped: DumpedFile, options: DumpOptions) -> Dump:
    """Each entry: an offset, and the position of the batch that ends with it."""
    base = dumped.base_offset or 0

    def decode(data: bytes, at: int) -> Fields:
        entry = decode_offset_entry(data, at)
        return {"offset": base + entry.relative_offset, "log_position": entry.position}

    def follows(one: Fields, other: Fields) -> bool:
        return bool(one["offset"] < other["offset"] and one["log_position"] < other["log_position"])

    yield DumpLine(f"{'offset':>20}  {'position':>12}{_relative(dumped)}")
    yield from _entries(dumped, options, OFFSET_ENTRY_SIZE, decode, follows, _offset_text)


def _offset_text(entry: Fields) -> str:
    return f"{entry['offset']:>20}  {entry['log_position']:>12}"


def dump_time_index(dumped: DumpedFile, options: DumpOptions) -> Dump:
    """Each entry: a time, and the offset up to which no record is newer."""
    base = dumped.base_offset or 0

    def decode(data: bytes, at: int) -> Fields:
        entry = decode_time_entry(data, at)
        return {"offset": base + entry.relative_offset, "timestamp_ms": entry.timestamp}

    def follows(one: Fields, other: Fields) -> bool:
        return bool(
            one["offset"] <= other["offset"] and one["timestamp_ms"] < other["timestamp_ms"]
        )

    yield DumpLine(f"{'offset':>20}  time{_relative(dumped)}")
    yield from _entries(dumped, options, TIME_ENTRY_SIZE, decode, follows, _time_text)


def _time_text(entry: Fields) -> str:
    return f"{entry['offset']:>20}  {shown_time(entry['timestamp_ms'])}"


def dump_transaction_index(dumped: DumpedFile, options: DumpOptions) -> Dump:
    """Each entry: an aborted transaction."""

    def decode(data: bytes, at: int) -> Fields:
        entry = decode_aborted_transaction(data, at)
        return {
            "offset": entry.last_offset,
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            "last_stable_offset": entry.last_stable_offset,
        }

    def follows(one: Fields, other: Fields) -> bool:
        return bool(one["last_offset"] < other["last_offset"])

    yield DumpLine(f"{'producer':>12}  {'first':>12}  {'last':>12}  {'last stable':>12}")
    yield from _entries(
        dumped, options, ABORTED_ENTRY_SIZE, decode, follows, _aborted_text, skips_zeros=False
    )


def _aborted_text(entry: Fields) -> str:
    return (
        f"{entry['producer_id']:>12}  {entry['first_offset']:>12}  {entry['last_offset']:>12}"
        f"  {entry['last_stable_offset']:>12}"
    )


def _relative(dumped: DumpedFile) -> str:
    if dumped.base_offset is not None:
        return ""
    return "    (relative to the base offset, which the file name does not contain)"


def _entries(
    dumped: DumpedFile,
    options: DumpOptions,
    size: int,
    decode: Decode,
    follows: Follows,
    text: Callable[[Fields], str],
    *,
    skips_zeros: bool = True,
) -> Dump:
    """The entries, up to the first impossible one."""
    shown, last = 0, None
    for position, data in _pieces(dumped, size):
        for at in range(0, len(data) - size + 1, size):
            here = position + at
            if skips_zeros and here and not any(data[at : at + size]):
                yield _unused(dumped, here, size, last)
                return
            try:
                entry = decode(data, at)
            except FormatError as error:
                yield Soundness(position=here, offset=_end(last), problem=error.reason)
                return
            if last is not None and not follows(last, entry):
                yield Soundness(
                    position=here, offset=_end(last), problem="entries are not in ascending order"
                )
                return
            last = entry
            is_wanted = options.limit is None or shown < options.limit
            if is_wanted and entry["offset"] >= options.start_offset:
                shown += 1
                yield DumpLine(text(entry), {"kind": "entry", "position": here, **entry})
    whole = dumped.size - dumped.size % size
    problem = None if whole == dumped.size else f"incomplete entry of {dumped.size - whole} bytes"
    yield Soundness(position=whole, offset=_end(last), problem=problem, is_torn=True)


def _unused(dumped: DumpedFile, position: int, size: int, last: Fields | None) -> Soundness:
    """Check that only zeros follow."""
    for start, data in _pieces(dumped, size, position):
        used = next((at for at, byte in enumerate(data) if byte), None)
        if used is not None:
            reason = f"zeros, followed by an entry at {start + used - used % size}"
            return Soundness(position=position, offset=_end(last), problem=reason)
    count = (dumped.size - position) // size
    return Soundness(position=position, offset=_end(last), remark=f"then {count} {_UNUSED}")


def _end(last: Fields | None) -> int | None:
    return None if last is None else last["offset"] + 1


def _pieces(dumped: DumpedFile, size: int, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole entries with their positions; the last may end with a partial entry."""
    for position in range(start, dumped.size, size * _PIECE_ENTRIES):
        length = min(size * _PIECE_ENTRIES, dumped.size - position)
        yield position, dumped.file.read_at(position, length)


def dump_key_index(dumped: DumpedFile, options: DumpOptions) -> Dump:
    """Each entry: the hash of a key, and a batch that may contain it. Pages have checksums."""
    try:
        header = key_index.decode_header(dumped.file.read_at(0, key_index.HEADER_SIZE))
    except FormatError as error:
        yield Soundness(position=0, problem=error.reason)
        return
    fields = {"log_bytes": header.log_size, "entries": header.entry_count}
    text = f"{header.entry_count} entries, built from {header.log_size} bytes of log"
    yield DumpLine(text, {"kind": "header", **fields})
    yield DumpLine(f"{'key hash':>18}  {'position':>12}")
    shown, position = 0, key_index.HEADER_SIZE
    while position < min(dumped.size, header.file_size):
        page = dumped.file.read_at(position, min(key_index.PAGE_SIZE, dumped.size - position))
        try:
            entries = key_index.decode_page(page, position)
        except FormatError as error:
            yield Soundness(position=position, problem=error.reason)
            return
        for key_hash, at in _HASH_AND_POSITION.iter_unpack(entries):
            if options.limit is not None and shown >= options.limit:
                break
            shown += 1
            fields = {"key_hash": key_hash, "log_position": at}
            yield DumpLine(f"  {key_hash:016x}  {at:>12}", {"kind": "entry", **fields})
        position += len(page)
    problem = None
    if dumped.size != header.file_size:
        problem = f"the header says {header.file_size} bytes, the file has {dumped.size}"
    yield Soundness(position=position, problem=problem)
