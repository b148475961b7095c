"""Checking the small files beside segments.

A log works without any of them: damage costs a longer start, a slower lookup, or an id. It is
reported all the same, because a disk that damages one file will damage others.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from cordwood.errors import FormatError
from cordwood.format.file_names import (
    CLEANER,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCHS,
    LOG_START,
    META_PROPERTIES,
    NO_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT,
    SEGMENT_MANIFEST,
    FileKind,
    parse_segment_file_name,
)
from cordwood.format.key_index import KeyIndexPages
from cordwood.format.small_files.checkpoint_text import (
    decode_text,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
)
from cordwood.format.small_files.meta_properties import parse_meta_properties
from cordwood.format.small_files.partition_metadata import parse_partition_metadata
from cordwood.format.small_files.producer_snapshot import decode_producer_snapshot
from cordwood.format.small_files.segment_manifest import decode_manifest
from cordwood.log.inspection.segment_check import SegmentProblem
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem, read_whole

SMALL_FILE_BYTES_MAX: Final = 256 * MIB

# One second in all: writing such a file takes less. Only a damaged file is waited for.
_LOOKS: Final = 11
_PAUSE_S: Final = 0.1

_BY_NAME: Final[dict[str, Callable[[bytes], object]]] = {
    **{
        name: lambda data: parse_offset_checkpoint(decode_text(data))
        for name in (RECOVERY_POINT, HIGH_WATERMARK_CHECKPOINT, LOG_START, CLEANER)
    },
    LEADER_EPOCHS: lambda data: parse_epoch_checkpoint(decode_text(data)),
    PARTITION_METADATA: lambda data: parse_partition_metadata(decode_text(data)),
    META_PROPERTIES: lambda data: parse_meta_properties(data.decode("latin-1")),
    SEGMENT_MANIFEST: decode_manifest,
}
# An empty snapshot of producers is what a kill leaves that came when it was begun. The next opening
# removes it.
_BY_KIND: Final[dict[FileKind, Callable[[bytes], object]]] = {
    FileKind.SNAPSHOT: lambda data: decode_producer_snapshot(data) if data else None,
    FileKind.KEYINDEX: lambda data: KeyIndexPages(memoryview(data)).check(),
}


def check_small_files(fs: FileSystem, directory: str) -> Iterator[SegmentProblem]:
    """Problems of the small files in a data directory or in a partition's directory."""
    try:
        names = sorted(entry.name for entry in fs.list(directory) if not entry.is_directory)
    except FileNotFoundError:
        return
    for name in names:
        read = _reader_of(name)
        if read is not None:
            yield from _check(fs, os.path.join(directory, name), read)


def _reader_of(name: str) -> Callable[[bytes], object] | None:
    segment = parse_segment_file_name(name)
    if segment is not None and segment.suffix == NO_SUFFIX:
        return _BY_KIND.get(segment.kind)
    return _BY_NAME.get(name)


def _check(fs: FileSystem, path: str, read: Callable[[bytes], object]) -> Iterator[SegmentProblem]:
    """Check one file. A file that is being written may be empty or cut off: look again."""
    for look in range(_LOOKS):
        try:
            read(read_whole(fs, path, limit=SMALL_FILE_BYTES_MAX))
        except FileNotFoundError:
            return
        except FormatError as error:
            if look == _LOOKS - 1:
                yield SegmentProblem(file=path, reason=error.reason, position=error.position)
            else:
                time.sleep(_PAUSE_S)
        else:
            return
