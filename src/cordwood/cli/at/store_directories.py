"""Whether directories belong to a store: a wrong ``--at`` is an error, not an empty store."""

import os
from collections.abc import Sequence

from cordwood.errors import FormatError, LogError
from cordwood.format.file_names import (
    LOCK,
    META_PROPERTIES,
    SECURITY_FOLDER,
    parse_directory_name,
    parse_segment_file_name,
)
from cordwood.security.security_document import SECURITY_FILE


def check_is_store(paths: Sequence[str]) -> None:
    """Raise `LogError` if the directories have contents, but nothing of a store."""
    if all(_is_foreign(path) for path in paths):
        raise LogError(
            f"{','.join(paths)} is not a store: there is no {META_PROPERTIES} and no partition in "
            "it; pass a data directory with --at"
        )


def _is_foreign(path: str) -> bool:
    # Users and certificates may be made before the first start.
    made = (META_PROPERTIES, SECURITY_FILE, os.path.join(SECURITY_FOLDER, "ca.key"))
    if any(os.path.exists(os.path.join(path, name)) for name in made):
        return False
    with os.scandir(path) as entries:
        found = [entry for entry in entries if not _is_of_interrupted_setup(entry)]
    return bool(found) and not any(entry.is_dir() and _is_partition(entry) for entry in found)


def _is_of_interrupted_setup(entry: "os.DirEntry[str]") -> bool:
    """Whether `serve --secure` may have left it before it made its first file."""
    if entry.name == SECURITY_FOLDER and entry.is_dir():
        return all(name.endswith(".tmp") for name in os.listdir(entry.path))
    return entry.name == LOCK


def _is_partition(entry: "os.DirEntry[str]") -> bool:
    """Whether a directory has the name of a partition, and segments in it."""
    try:
        parse_directory_name(entry.name)
        return any(parse_segment_file_name(name) is not None for name in os.listdir(entry.path))
    except (FormatError, OSError):
        return False
