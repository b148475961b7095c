"""Chooses how to dump a file: by its name, or by ``--as``.

Copies may have a longer name that ends with the original one. Suffixes of files that are being
replaced or deleted are ignored.
"""

import os
from typing import Final

from cordwood.cli.dump import indexes
from cordwood.cli.dump import small_files as small
from cordwood.cli.dump.lines import Dump, DumpedFile, DumpOptions
from cordwood.cli.dump.log_file import dump_log
from cordwood.errors import ConfigError
from cordwood.format.file_names import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    SWAP,
    FileKind,
    parse_segment_file_name,
)
from cordwood.format.file_names import HIGH_WATERMARK as HIGH_WATERMARK_FILE
from cordwood.storage.files import FileSystem
from cordwood.value_class import dataclass

CHECKPOINT: Final = "checkpoint"
EPOCHS: Final = "epochs"
METADATA: Final = "metadata"
PROPERTIES: Final = "properties"
HIGH_WATERMARK: Final = "high-watermark"

_DUMPERS: Final = {
    str(FileKind.LOG): dump_log,
    str(FileKind.INDEX): indexes.dump_offset_index,
    str(FileKind.TIMEINDEX): indexes.dump_time_index,
    str(FileKind.TXNINDEX): indexes.dump_transaction_index,
    str(FileKind.KEYINDEX): indexes.dump_key_index,
    str(FileKind.SNAPSHOT): small.dump_snapshot,
    CHECKPOINT: small.dump_offset_checkpoint,
    EPOCHS: small.dump_epoch_checkpoint,
    METADATA: small.dump_partition_metadata,
    PROPERTIES: small.dump_meta_properties,
    HIGH_WATERMARK: small.dump_high_watermark,
}
KINDS: Final = tuple(_DUMPERS)
_NAMES: Final = (
    (LEADER_EPOCHS, EPOCHS),
    ("-checkpoint", CHECKPOINT),
    (PARTITION_METADATA, METADATA),
    (META_PROPERTIES, PROPERTIES),
    (HIGH_WATERMARK_FILE, HIGH_WATERMARK),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPlan:
    """A file and its kind."""

    path: str
    kind: str

    def run(self, fs: FileSystem, options: DumpOptions) -> Dump:
        """The lines of the file, which stays open until the last one is read."""
        file = fs.open_read(self.path)
        try:
            name = parse_segment_file_name(os.path.basename(self.path))
            dumped = DumpedFile(
                path=self.path,
                file=file,
                size=file.size(),
                base_offset=None if name is None else name.base_offset,
            )
            yield from _DUMPERS[self.kind](dumped, options)
        finally:
            file.close()


def plan_dump(path: str, kind: str | None) -> DumpPlan:
    """The plan for `path`; `ConfigError` if its kind is unknown."""
    if kind is not None and kind not in _DUMPERS:
        raise ConfigError("--as", kind, f"must be one of {', '.join(KINDS)}")
    if os.path.isdir(path):
        raise ConfigError(
            "FILE", path, f"must be a file, not a directory; for example {path}/*.log"
        )
    found = kind or kind_of(os.path.basename(path))
    if found is None:
        raise ConfigError(
            "FILE",
            path,
            "unknown kind of file: files of segments, checkpoints, partition.metadata, "
            "meta.properties and high-watermark can be dumped; pass the kind with --as",
        )
    return DumpPlan(path=path, kind=found)


def kind_of(name: str) -> str | None:
    """The kind of a file, by its name; None if unknown."""
    for suffix in (DELETED, CLEANED, SWAP):
        name = name.removesuffix(suffix)
    for ending, kind in _NAMES:
        if name.endswith(ending):
            return kind
    _, dot, extension = name.rpartition(".")
    return extension if dot and extension in list(FileKind) else None
