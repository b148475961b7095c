"""The segment files of a partition directory: which ones count, while they are being replaced too.

The owner replaces a group of segments by a new group in steps (see
`log/partition/removal/segment_swap`). `o` is a file of the old group, `n` one of the new group; the
first `n` has the base offset of the first `o`. Each line shows the names while a step runs, and
which group counts:

    written     o.log, n.log.cleaned                            the old group
    announced   o.log, n.log.cleaned or n.log.swap              the old group: a `.cleaned` is left
    removed     o.log or o.log.deleted, n.log.swap              the new group
    placed      n.log.swap or n.log; no o.log is left           the new group

    Invariant: a directory has at every moment a complete old group, or a complete new group
    whose files have the suffix `.swap` or none.

Announcing starts with the highest base offset, so a `.cleaned` file means that the `.swap` files
from its offset on are incomplete. If all are announced, a `.swap` file replaces the segments that
begin in its range of offsets, whether they are still there or not. The same rule holds if the owner
died half-way, and while the next one completes or undoes the steps.

A listing is not atomic: a file that is renamed meanwhile may appear under both names or under
none. Each of these steps ends with a sync, and one listing can only miss names of a step that
runs during it. Three listings in a row with the same names would need a fourth step.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from cordwood.errors import CorruptSegmentError, FormatError, StorageError
from cordwood.format.file_names import (
    CLEANED,
    DELETED,
    NO_SUFFIX,
    SWAP,
    FileKind,
    SegmentFileName,
    parse_segment_file_name,
    segment_file_name,
)
from cordwood.quantities import INT32_MAX, FilePosition, Offset
from cordwood.storage.files import DirectoryEntry, FileSystem
from cordwood.storage.indexes.offset_index import OffsetIndex
from cordwood.storage.log_file.segment_reader import IndexHint, SegmentReader
from cordwood.storage.log_file.zero_tail import is_zeros
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# A directory that changes at every look for so long is not one of ours.
_LOOKS_MAX: Final = 1000
_PATIENT_LOOKS: Final = 10  # looks without a pause
_PAUSE_S: Final = 0.005

SwapEnd = Callable[[Offset], Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSegment:
    """A segment in a directory.

    has_indexes       both exist and consist of whole entries
    has_transactions  there is an index of aborted transactions
    swapped           the files that still have the suffix `.swap`
    """

    base_offset: Offset
    size: int
    has_indexes: bool
    has_transactions: bool = False
    swapped: frozenset[FileKind] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """The contents of a tidy partition directory."""

    segments: list[FoundSegment]
    snapshots: list[Offset]


class _Listed(NamedTuple):
    name: SegmentFileName
    size: int


# --- the decision ----------------------------------------------------------------------------


def standing_segments(entries: Iterable[DirectoryEntry], swap_end: SwapEnd) -> list[FoundSegment]:
    """The segments that count, in order; see the table above.

    `swap_end` returns where the batches of the `.log.swap` file with that base offset end.
    """
    listed = _listed(entries)
    announced = _announced(found.name for found in listed)
    plain: dict[Offset, dict[FileKind, int]] = {}
    swaps: dict[Offset, dict[FileKind, int]] = {}
    for name, size in listed:
        if name.suffix == NO_SUFFIX:
            plain.setdefault(name.base_offset, {})[name.kind] = size
        elif name in announced:
            swaps.setdefault(name.base_offset, {})[name.kind] = size
    logs = {base for base, kinds in plain.items() if FileKind.LOG in kinds}
    new = {base for base, kinds in swaps.items() if FileKind.LOG in kinds}
    if new:
        logs -= _replaced(logs, {base: swap_end(base) for base in new})
    return [_found(base, plain.get(base, {}), swaps.get(base, {})) for base in sorted(logs | new)]


def _announced(names: Iterable[SegmentFileName]) -> set[SegmentFileName]:
    """The `.swap` files that will replace others, whatever happens."""
    listed = list(names)
    unfinished = min((n.base_offset for n in listed if n.suffix == CLEANED), default=None)
    return {
        name
        for name in listed
        if name.suffix == SWAP and (unfinished is None or name.base_offset < unfinished)
    }


def _replaced(bases: Iterable[Offset], swap_ends: dict[Offset, Offset]) -> set[Offset]:
    """The base offsets of the segments that give way to these replacements."""
    first = min(swap_ends)
    end = max(max(end, base + 1) for base, end in swap_ends.items())
    return {base for base in bases if first <= base < end}


def _found(
    base_offset: Offset, plain: dict[FileKind, int], swaps: dict[FileKind, int]
) -> FoundSegment:
    # Beside a `.log.swap` every index without suffix is the old one's.
    sizes = swaps if FileKind.LOG in swaps else plain | swaps
    return FoundSegment(
        base_offset=base_offset,
        size=sizes[FileKind.LOG],
        has_indexes=(
            sizes.get(FileKind.INDEX, 1) % 8 == 0 and sizes.get(FileKind.TIMEINDEX, 1) % 12 == 0
        ),
        has_transactions=FileKind.TXNINDEX in sizes,
        swapped=frozenset(swaps),
    )


def is_settled(
    before: Sequence[str], entries: Sequence[DirectoryEntry], after: Sequence[str]
) -> bool:
    """Whether three looks at a directory in a row show the same files of segments."""
    if set(before) == {entry.name for entry in entries} == set(after):
        return True  # as nearly always: no name needs to be parsed
    seen = _decisive(entry.name for entry in entries)
    return _decisive(before) == seen == _decisive(after)


def _decisive(names: Iterable[str]) -> set[SegmentFileName]:
    """The names that decide which segments count; indexes can be derived."""
    parsed = (parse_segment_file_name(name) for name in names)
    return {
        name
        for name in parsed
        if name is not None
        and name.suffix != DELETED
        and name.kind in (FileKind.LOG, FileKind.TXNINDEX)
    }


def _listed(entries: Iterable[DirectoryEntry]) -> list[_Listed]:
    listed: list[_Listed] = []
    for entry in entries:
        parsed = None if entry.is_directory else parse_segment_file_name(entry.name)
        if parsed is not None:
            listed.append(_Listed(parsed, entry.size))
    return listed


# --- looking ---------------------------------------------------------------------------------


def find_segments(fs: FileSystem, directory: str) -> list[FoundSegment]:
    """The segments of a directory that another process may be changing; changes nothing.

    Raises `StorageError` if the directory never comes to rest.
    """
    for look in range(_LOOKS_MAX):
        if look > _PATIENT_LOOKS:
            time.sleep(_PAUSE_S)
        before, entries, after = fs.names(directory), fs.list(directory), fs.names(directory)
        if not is_settled(before, entries, after):
            continue
        try:
            return standing_segments(entries, lambda base: _indexed_end(fs, directory, base))
        except FileNotFoundError:
            continue  # the swap went on
    raise StorageError(
        f"the files of {directory} changed during each of {_LOOKS_MAX} looks; "
        "check which programs write to this directory"
    )


def newest_base(fs: FileSystem, directory: str) -> Offset | None:
    """The base offset of the active segment, which is never replaced; None if there is none."""
    parsed = (parse_segment_file_name(name) for name in fs.names(directory))
    return max(
        (
            name.base_offset
            for name in parsed
            if name is not None and name.kind is FileKind.LOG and name.suffix == NO_SUFFIX
        ),
        default=None,
    )


def find_snapshots(fs: FileSystem, directory: str) -> list[Offset]:
    """The offsets of the producer snapshots in a directory, in order."""
    parsed = (parse_segment_file_name(name) for name in fs.names(directory))
    return sorted(
        name.base_offset
        for name in parsed
        if name is not None and name.kind is FileKind.SNAPSHOT and name.suffix == NO_SUFFIX
    )


def walk_to_end(reader: SegmentReader, hint: IndexHint) -> Offset:
    """Where the batches of a file end. The walk starts at `hint`, the last entry of its index.

    Raises `CorruptSegmentError`.
    """
    position = reader.locate(hint[0], hint)
    if position is not None:
        for _ in reader.chunks(position, reader.next_offset):
            pass
    return reader.next_offset


def segment_end(fs: FileSystem, directory: str, found: FoundSegment) -> Offset:
    """Where the records of a segment end, with the help of its index."""
    suffix = SWAP if FileKind.LOG in found.swapped else NO_SUFFIX
    return _indexed_end(fs, directory, found.base_offset, suffix)


def _indexed_end(fs: FileSystem, directory: str, base_offset: Offset, suffix: str = SWAP) -> Offset:
    path = os.path.join(directory, segment_file_name(base_offset, FileKind.INDEX, suffix))
    try:
        index = OffsetIndex.open_sealed(fs, path, base_offset)
        hint = index.lookup(Offset(base_offset + INT32_MAX))
    except (FormatError, OSError):
        hint = (base_offset, FilePosition(0))
    return _walked_end(fs, directory, base_offset, hint, suffix)


def _verified_end(fs: FileSystem, directory: str, base_offset: Offset) -> Offset:
    """Where a replacement ends; all of it is read."""
    return _walked_end(fs, directory, base_offset, (base_offset, FilePosition(0)), SWAP)


def _walked_end(
    fs: FileSystem, directory: str, base_offset: Offset, hint: IndexHint, suffix: str
) -> Offset:
    """If the file is damaged, only the base offset in its name counts.

    The segments that a replacement should replace are then kept: records twice are better than
    records lost.
    """
    name = segment_file_name(base_offset, FileKind.LOG, suffix)
    file = fs.open_read(os.path.join(directory, name))
    try:
        size = file.size()
        return walk_to_end(SegmentReader(file, base_offset, size), hint)
    except CorruptSegmentError as error:
        if suffix == NO_SUFFIX and is_zeros(file, error.position, size):
            return error.first_offset  # written ahead of the batches
        logger.warning("%s", error)
        return Offset(base_offset + 1)
    finally:
        file.close()


# --- tidying ---------------------------------------------------------------------------------


def tidy_directory(fs: FileSystem, directory: str) -> FoundFiles:
    """Remove files that were being deleted or built, complete begun swaps, list the rest.

    It can be interrupted anywhere and repeated. Readers may look meanwhile: see the table above.
    """
    names = _parsed_names(fs, directory)
    announced = _announced(names.values())
    unfinished = [n for n, p in names.items() if p.suffix == SWAP and p not in announced]
    if _remove(fs, directory, unfinished):
        # Without the `.cleaned` files, which are removed next, they would count as announced.
        fs.sync_directory(directory)
    changed = _remove(fs, directory, [n for n in names if names[n].suffix in (DELETED, CLEANED)])
    if announced:
        _finish_swaps(fs, directory, names, announced)
    changed |= _remove(fs, directory, _orphans(fs, directory))
    if changed:
        fs.sync_directory(directory)
    entries = fs.list(directory)
    if _remove(fs, directory, _empty_snapshots(entries)):
        fs.sync_directory(directory)
    return FoundFiles(
        segments=standing_segments(entries, lambda base: base),
        snapshots=find_snapshots(fs, directory),
    )


def _empty_snapshots(entries: Iterable[DirectoryEntry]) -> list[str]:
    """Snapshots of producers that a kill left when they were begun."""
    found = (
        (entry.name, parse_segment_file_name(entry.name)) for entry in entries if not entry.size
    )
    return [
        name
        for name, parsed in found
        if parsed is not None and parsed.kind is FileKind.SNAPSHOT and parsed.suffix == NO_SUFFIX
    ]


def _parsed_names(fs: FileSystem, directory: str) -> dict[str, SegmentFileName]:
    parsed = {name: parse_segment_file_name(name) for name in fs.names(directory)}
    return {name: found for name, found in parsed.items() if found is not None}


def _remove(fs: FileSystem, directory: str, names: Sequence[str]) -> bool:
    for name in names:
        fs.remove(os.path.join(directory, name))
    return bool(names)


def _orphans(fs: FileSystem, directory: str) -> list[str]:
    """Indexes without a log file. Snapshots need none."""
    names = _parsed_names(fs, directory)
    logs = {parsed.base_offset for parsed in names.values() if parsed.kind is FileKind.LOG}
    return [
        name
        for name, parsed in names.items()
        if parsed.kind is not FileKind.SNAPSHOT and parsed.base_offset not in logs
    ]


def _finish_swaps(
    fs: FileSystem,
    directory: str,
    names: dict[str, SegmentFileName],
    swaps: set[SegmentFileName],
) -> None:
    """Complete a replacement: remove the replaced segments, then rename to the final names."""
    new = [swap.base_offset for swap in swaps if swap.kind is FileKind.LOG]
    if new:
        ends = {base: _verified_end(fs, directory, base) for base in new}
        replaced = _replaced((name.base_offset for name in names.values()), ends)
        _remove(
            fs,
            directory,
            [
                name
                for name, parsed in names.items()
                if parsed.suffix == NO_SUFFIX
                and parsed.kind is not FileKind.SNAPSHOT
                and parsed.base_offset in replaced
            ],
        )
        # Names reach the disk in any order: a replaced segment must not reappear after a crash.
        fs.sync_directory(directory)
    place_swaps(fs, directory, swaps)


def place_swaps(fs: FileSystem, directory: str, swaps: Iterable[SegmentFileName]) -> None:
    """The last step: `.swap` files take their final names. Durable on return.

    Log files are renamed first, because an index beside a `.log.swap` counts as the old one's and
    is removed. Indexes of aborted transactions cannot be derived, so they wait for a sync.
    """
    ordered = sorted(swaps, key=lambda swap: swap.base_offset)
    logs = [swap for swap in ordered if swap.kind is FileKind.LOG]
    indexes = [swap for swap in ordered if swap.kind is not FileKind.LOG]
    _place(fs, directory, logs)
    if logs and any(swap.kind is FileKind.TXNINDEX for swap in indexes):
        fs.sync_directory(directory)
    _place(fs, directory, indexes)
    fs.sync_directory(directory)


def _place(fs: FileSystem, directory: str, swaps: Iterable[SegmentFileName]) -> None:
    for swap in swaps:
        name = segment_file_name(swap.base_offset, swap.kind, SWAP)
        final = segment_file_name(swap.base_offset, swap.kind)
        fs.rename(os.path.join(directory, name), os.path.join(directory, final))
