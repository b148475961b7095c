"""Reads and replaces the segment manifest of a partition directory."""

import logging
import os
from typing import Final

from cordwood.errors import FormatError
from cordwood.format.file_names import SEGMENT_MANIFEST
from cordwood.format.small_files.segment_manifest import (
    SegmentManifest,
    decode_manifest,
    encode_manifest,
)
from cordwood.quantities import INT64_MAX, MIB, Offset
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

_BYTES_MAX: Final = 64 * MIB  # some million segments

# Stands for a manifest that cannot be read: offsets may be missing anywhere.
UNKNOWN_MANIFEST: Final = SegmentManifest(generation=0, end=Offset(INT64_MAX))


def read_manifest(fs: FileSystem, directory: str) -> SegmentManifest | None:
    """None if there is none; `UNKNOWN_MANIFEST` if it is damaged."""
    path = os.path.join(directory, SEGMENT_MANIFEST)
    try:
        return decode_manifest(read_whole(fs, path, limit=_BYTES_MAX))
    except FileNotFoundError:
        return None
    except FormatError as error:
        logger.warning("%s cannot be read, missing segments may go unnoticed: %s", path, error)
        return UNKNOWN_MANIFEST


def write_manifest(fs: FileSystem, directory: str, manifest: SegmentManifest) -> None:
    """Replace the manifest. Durable on return."""
    replace_file(fs, os.path.join(directory, SEGMENT_MANIFEST), encode_manifest(manifest))
