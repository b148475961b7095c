"""A topic that is being restored: its files are complete and durable before it becomes live.

Until then its directories are named like deleted partitions. If the process crashes, the next
start removes them.
"""

import contextlib
import os
import uuid
from collections.abc import Sequence

from cordwood.format.file_names import (
    PARTITION_METADATA,
    deleted_directory_name,
    partition_directory_name,
)
from cordwood.format.small_files.partition_metadata import render_partition_metadata
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, replace_file
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from cordwood.value_class import dataclass


@dataclass(slots=True, kw_only=True)
class IncomingPartition:
    """One partition that is being filled with the offsets [start, end).

    `allows_gaps`: it was compacted before, so missing offsets are not damage.
    """

    data_dir: str
    path: str
    start: Offset = Offset(0)
    end: Offset = Offset(0)
    allows_gaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingTopic:
    """The partitions of the new topic. One thread fills them, then installs or discards them."""

    topic: str
    topic_id: uuid.UUID
    partitions: tuple[IncomingPartition, ...]

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        data_dirs: Sequence[str],
        topic: str,
        topic_id: uuid.UUID,
        partitions: int,
    ) -> "IncomingTopic":
        """Make empty directories, in the data directories in turn."""
        staged: list[IncomingPartition] = []
        for number in range(partitions):
            data_dir = data_dirs[number % len(data_dirs)]
            name = deleted_directory_name(topic, number, uuid.uuid4().hex)
            path = os.path.join(data_dir, name)
            fs.make_directory(path)
            content = render_partition_metadata(topic_id).encode()
            replace_file(fs, os.path.join(path, PARTITION_METADATA), content)
            staged.append(IncomingPartition(data_dir=data_dir, path=path))
        return cls(topic=topic, topic_id=topic_id, partitions=tuple(staged))

    def move_in(self, fs: FileSystem) -> None:
        """Rename the directories to live partitions. Durable on return."""
        for number, partition in enumerate(self.partitions):
            marks = HighWatermarkFile(fs, partition.path, writable=True)
            marks.publish(
                high_watermark=partition.end, log_start=partition.start, durable=partition.end
            )
            marks.sync()
            marks.close()
            fs.sync_directory(partition.path)
            place = os.path.join(partition.data_dir, partition_directory_name(self.topic, number))
            if fs.exists(place):
                fs.remove_tree(place)  # of a deleted topic of this name
            fs.rename(partition.path, place)
        for data_dir in dict.fromkeys(partition.data_dir for partition in self.partitions):
            fs.sync_directory(data_dir)

    def discard(self, fs: FileSystem) -> None:
        """Remove the directories. The next start removes those that cannot be removed now."""
        for partition in self.partitions:
            with contextlib.suppress(OSError):
                fs.remove_tree(partition.path)
