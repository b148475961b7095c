"""The names of all files and directories in a log directory, and their meaning.

    <data directory>/
        .lock  .kafka_cleanshutdown  meta.properties  *-checkpoint
        <topic>-<partition>/
            <base offset, 20 digits>.{log,index,timeindex,txnindex,snapshot,keyindex}
            leader-epoch-checkpoint  partition.metadata  high-watermark  segment-manifest
        <topic>-<partition>.<32 hex digits>-{delete,future,stray}/

A suffix on a segment's file shows the stage of a replacement: `.cleaned` is still being written,
`.swap` is complete and will replace, `.deleted` will be removed.
"""

import re
from enum import StrEnum
from typing import Final

from cordwood.errors import FormatError, InvalidTopicNameError
from cordwood.quantities import INT32_MAX, INT64_MAX, Offset
from cordwood.value_class import dataclass

LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
SECURITY_FOLDER: Final = "security"  # certificates and settings of `serve --secure`
PROCESSES_FOLDER: Final = "remote-log-index-cache/cordwood-processes"  # Kafka ignores it, too
RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
HIGH_WATERMARK: Final = "high-watermark"
SEGMENT_MANIFEST: Final = "segment-manifest"

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
NO_SUFFIX: Final = ""

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)

# File systems allow names of 255 bytes; 249 leaves room for "-" and a partition of five digits.
TOPIC_NAME_CHARS_MAX: Final = 249
_FILE_NAME_CHARS_MAX: Final = 255

_TOPIC_CHARS: Final = re.compile(r"[a-zA-Z0-9._-]+")
_UNIQUE_HEX: Final = re.compile(r"[0-9a-f]{32}")


class FileKind(StrEnum):
    """The kind of a segment's file; the value is the extension."""

    LOG = "log"
    INDEX = "index"
    TIMEINDEX = "timeindex"
    TXNINDEX = "txnindex"
    SNAPSHOT = "snapshot"
    KEYINDEX = "keyindex"


class DirectoryState(StrEnum):
    """The state of a partition's directory; every value except LIVE is the suffix of its name."""

    LIVE = "live"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFileName:
    """The parsed name of a segment file. `suffix` is one of the three above, or empty."""

    base_offset: Offset
    kind: FileKind
    suffix: str = NO_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDirectory:
    """The parsed name of a partition directory.

    The topic of a DELETE directory may be cut to keep the name within 255 characters.
    """

    topic: str
    partition: int
    state: DirectoryState = DirectoryState.LIVE


_SEGMENT_FILE: Final = re.compile(
    rf"([0-9]{{20}})\.({'|'.join(FileKind)})({'|'.join(map(re.escape, (DELETED, CLEANED, SWAP)))})?"
)
_KINDS: Final = {kind.value: kind for kind in FileKind}  # looking one up is quick, a call is not
_MARKED_DIRECTORY: Final = re.compile(r"(\S+-\S+)\.([^\s.]+)-(delete|future|stray)")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")


def segment_file_name(base_offset: Offset, kind: FileKind, suffix: str = NO_SUFFIX) -> str:
    """``00000000000000000042.log``, optionally with one of the three suffixes."""
    assert 0 <= base_offset <= INT64_MAX, base_offset
    assert suffix in (NO_SUFFIX, DELETED, CLEANED, SWAP), suffix
    return f"{base_offset:020d}.{kind}{suffix}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Parse the name of a segment file; None for a file that belongs to no segment."""
    found = _SEGMENT_FILE.fullmatch(name)
    if found is None or int(found[1]) > INT64_MAX:
        return None
    return SegmentFileName(
        base_offset=Offset(int(found[1])), kind=_KINDS[found[2]], suffix=found[3] or NO_SUFFIX
    )


def check_topic_name(topic: str) -> None:
    """Raise InvalidTopicNameError with the rule if a topic cannot have this name."""
    if not topic:
        raise InvalidTopicNameError(topic, "must not be empty")
    if topic in (".", ".."):
        raise InvalidTopicNameError(topic, "must not be '.' or '..'")
    if len(topic) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopicNameError(topic, f"must have at most {TOPIC_NAME_CHARS_MAX} characters")
    if _TOPIC_CHARS.fullmatch(topic) is None:
        raise InvalidTopicNameError(topic, "must contain only a-z, A-Z, 0-9, '.', '_' and '-'")


def metric_name(topic: str) -> str:
    """The name of a topic in metrics, which write '.' as '_'. Two topics must not share it."""
    return topic.replace(".", "_")


def partition_directory_name(topic: str, partition: int) -> str:
    """``orders-0``."""
    assert 0 <= partition <= INT32_MAX, partition
    return f"{topic}-{partition}"


def deleted_directory_name(topic: str, partition: int, unique_hex32: str) -> str:
    """``orders-0.<32 hex digits>-delete``, with the topic cut so that the name is not too long."""
    assert 0 <= partition <= INT32_MAX, partition
    assert _UNIQUE_HEX.fullmatch(unique_hex32) is not None, unique_hex32
    ending = f"-{partition}.{unique_hex32}-{DirectoryState.DELETE}"
    return topic[: _FILE_NAME_CHARS_MAX - len(ending)] + ending


def stray_directory_name(topic: str, partition: int, unique_hex32: str) -> str:
    """``orders-0.<32 hex digits>-stray``: of a partition that its cluster does not have."""
    deleted = deleted_directory_name(topic, partition, unique_hex32)
    return f"{deleted.removesuffix(DirectoryState.DELETE)}{DirectoryState.STRAY}"


def parse_directory_name(name: str) -> PartitionDirectory:
    """Parse the name of a partition directory; FormatError for any other name.

    The partition follows the last '-'; for a marked directory, everything from the last '.' on is
    dropped first.
    """
    plain, state = name, DirectoryState.LIVE
    if name.endswith(("-delete", "-future", "-stray")):
        marked = _MARKED_DIRECTORY.fullmatch(name)
        if marked is None:
            raise FormatError(
                f"directory {name!r} must be <topic>-<partition>.<unique id>"
                f"-{name.rpartition('-')[2]}"
            )
        plain, state = marked[1], DirectoryState(marked[3])
    topic, separator, partition = plain.rpartition("-")
    if not separator:
        raise FormatError(f"directory {name!r} is not <topic>-<partition>: it has no '-'")
    if not topic:
        raise FormatError(f"directory {name!r} has no topic before the '-'")
    if not partition:
        raise FormatError(
            f"directory {name!r} has no partition after the last '-'", position=len(plain)
        )
    if _PARTITION.fullmatch(partition) is None or int(partition) > INT32_MAX:
        raise FormatError(
            f"directory {name!r}: partition {partition!r} must be a number from 0 to {INT32_MAX}",
            position=len(topic) + 1,
        )
    try:
        check_topic_name(topic)
    except InvalidTopicNameError as error:
        raise FormatError(f"directory {name!r}: {error}") from error
    return PartitionDirectory(topic=topic, partition=int(partition), state=state)
