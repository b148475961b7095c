"""Checkpoint files: small text files that are always replaced as a whole, durably.

A missing or empty file has no entries. A damaged one raises a `FormatError` that names the file
and the line; the caller decides what to use instead.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from cordwood.errors import FormatError
from cordwood.format.file_names import LEADER_EPOCHS
from cordwood.format.small_files.checkpoint_text import (
    EpochEntry,
    decode_text,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    render_epoch_checkpoint,
    render_offset_checkpoint,
)
from cordwood.quantities import MIB, Offset
from cordwood.storage.files import FileSystem, read_whole, replace_file, write_file

# About a million partitions; anything larger is not a checkpoint.
_CHECKPOINT_BYTES_MAX: Final = 64 * MIB

_Parsed = TypeVar("_Parsed")


def read_offset_checkpoint(
    fs: FileSystem, directory: str, name: str
) -> dict[tuple[str, int], Offset]:
    """Offsets by (topic, partition) from the checkpoint `name` of a log directory."""
    return _read(fs, os.path.join(directory, name), parse_offset_checkpoint)


def write_offset_checkpoint(
    fs: FileSystem, directory: str, name: str, offsets: Mapping[tuple[str, int], Offset]
) -> None:
    """Replace the checkpoint `name` of a log directory. Durable on return."""
    text = render_offset_checkpoint(offsets)
    replace_file(fs, os.path.join(directory, name), text.encode())


def read_epoch_checkpoint(fs: FileSystem, directory: str) -> list[EpochEntry]:
    """The leader epochs of a partition directory."""
    return _read(fs, os.path.join(directory, LEADER_EPOCHS), parse_epoch_checkpoint)


def write_epoch_checkpoint(
    fs: FileSystem, directory: str, entries: Sequence[EpochEntry], *, sync: bool = True
) -> None:
    """Replace the leader epochs of a partition directory. Durable on return, with `sync`."""
    path, text = os.path.join(directory, LEADER_EPOCHS), render_epoch_checkpoint(entries)
    if sync:
        replace_file(fs, path, text.encode())
    else:
        write_file(fs, path, text.encode())


def _read(fs: FileSystem, path: str, parse: Callable[[str], _Parsed]) -> _Parsed:
    try:
        content = read_whole(fs, path, limit=_CHECKPOINT_BYTES_MAX)
    except FileNotFoundError:
        content = b""
    try:
        return parse(decode_text(content))
    except FormatError as error:
        error.add_note(f"in {path}")
        raise
