"""What an earlier owner did about a request that it claimed and did not answer.

An owner can die after it made a change and before it wrote the answer. The next owner finds the
request claimed. The clock does not tell whether the change was made; the store does:

    publication      the ledger has its number
    creation         the topic has the id that follows from the request's id
    deletion         no topic of that name has the id
    alteration       the topic has these keys and partitions
    trimming         the logs start there
    offsets          the group has them, or others that were committed since the request was
                     submitted: then the request is not made again, it would move the group back
    copy             the directory has the id that follows from the request's id
    restored topic   the topic has the id that follows from the request's id; without a new name,
                     the archived id, and its directories are younger than the request

Rolling, compaction and archiving are made again, which does no harm. A replacement of segments
compares the segments itself.
"""

import itertools
import os
import uuid
from typing import Any, Final, Protocol

from cordwood.errors import FormatError
from cordwood.format.file_names import META_PROPERTIES, PARTITION_METADATA
from cordwood.format.small_files.meta_properties import parse_meta_properties
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.log.inbox.store_change import (
    DONE,
    SKIPPED,
    ChangeAnswer,
    ChangeRequest,
    CommitGroup,
    PublishBatches,
)
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.log.inbox.topic_change_service import topic_facts
from cordwood.log.inbox.upkeep_change import RestoreTopic, SnapshotStore
from cordwood.log.inbox.upkeep_change_service import restored_facts
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication import Publisher
from cordwood.log.rules.topic_config import canonical_texts
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.quantities import KIB, TimestampMs
from cordwood.storage.files import FileSystem, read_whole
from cordwood.value_class import replace

_META_BYTES_MAX: Final = 64 * KIB
_FILE_TIME_LAG_MS: Final = 20  # file systems use a clock that ticks less often


def made_id(request_id: str) -> uuid.UUID:
    """The id of a topic or a directory that is made for this request: always the same one."""
    numbers = itertools.count()
    return new_topic_id(lambda: uuid.uuid5(uuid.UUID(request_id), str(next(numbers))))


class JudgedStore(Protocol):
    """The parts of a store that show what was done; see `Store`."""

    @property
    def registry(self) -> TopicRegistry: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def committed_offsets(self) -> CommittedOffsets: ...


class EarlierTry:
    """Finds out what was done. Changes nothing."""

    def __init__(self, store: JudgedStore, fs: FileSystem) -> None:
        self._store = store
        self._fs = fs

    def answer(self, request_id: str, request: ChangeRequest) -> ChangeAnswer | None:
        """The answer, if the change was made; None if it was not, or may be made again."""
        match request.change:
            case PublishBatches() as change:
                if self._store.publisher.has_published(change.publication):
                    return ChangeAnswer(outcome=SKIPPED)
                return None
            case CommitGroup() | ForgetGroup():
                rest = self.remaining(request)
                is_left = rest.offsets if isinstance(rest, CommitGroup) else rest.places
                return None if is_left else ChangeAnswer(outcome=DONE)
            case _:
                facts = self._facts(request_id, request)
                return None if facts is None else ChangeAnswer(outcome=DONE, facts=facts)

    def remaining(self, request: ChangeRequest) -> CommitGroup | ForgetGroup:
        """A change of a group, without the partitions that it has changed, or others since."""
        change = request.change
        assert isinstance(change, CommitGroup | ForgetGroup), change
        known = self._store.committed_offsets.of_group(change.group)
        newer = {
            place for place, found in known.items() if found.committed_ms > request.submitted_ms
        }
        if isinstance(change, ForgetGroup):
            places = tuple(known) if change.places is None else change.places
            return replace(change, places=tuple(p for p in places if p in known.keys() - newer))
        left = {
            place: wanted
            for place, wanted in change.offsets.items()
            if place not in newer
            and (place not in known or (known[place].offset, known[place].metadata) != wanted)
        }
        return replace(change, offsets=left)

    def _facts(self, request_id: str, request: ChangeRequest) -> dict[str, Any] | None:
        find = self._store.registry.find
        match request.change:
            case CreateTopic() as change:
                topic = find(change.topic)
                is_ours = topic is not None and topic.topic_id == made_id(request_id)
                return topic_facts(topic) if topic is not None and is_ours else None
            case DeleteTopic() as change:
                topic = find(change.topic)
                return {} if topic is None or topic.topic_id != change.topic_id else None
            case AlterTopic() as change:
                return self._altered(change)
            case TrimTopic() as change:
                return self._trimmed(change)
            case SnapshotStore() as change:
                return self._copied(request_id, change)
            case RestoreTopic() as change:
                topic = find(change.new_name or change.topic)
                if topic is None:
                    return None
                if change.new_name not in (None, change.topic):
                    is_ours = topic.topic_id == made_id(request_id)
                else:
                    has_id = change.archived_id in (None, topic.topic_id)
                    is_ours = has_id and self._is_made_since(request.submitted_ms, topic)
                return restored_facts(topic) if is_ours else None
            case _:
                return None

    def _is_made_since(self, time_ms: TimestampMs, topic: Topic[PartitionLog]) -> bool:
        """Whether the directories of the topic were made then or later."""
        directory = topic.partition(0).directory
        made_ms = self._fs.modified_ms(os.path.join(directory, PARTITION_METADATA))
        return made_ms + _FILE_TIME_LAG_MS >= time_ms

    def _altered(self, change: AlterTopic) -> dict[str, Any] | None:
        topic = self._store.registry.find(change.topic)
        if topic is None or (change.partitions or 0) > topic.partition_count:
            return None
        overrides = self._store.registry.overrides(change.topic)
        wanted = canonical_texts({k: v for k, v in change.config.items() if v is not None})
        has_all = all(overrides.get(key) == wanted.get(key) for key in change.config)
        return topic_facts(topic) if has_all else None

    def _trimmed(self, change: TrimTopic) -> dict[str, Any] | None:
        topic = self._store.registry.find(change.topic)
        if topic is None or topic.topic_id != change.topic_id:
            return None
        starts = {n: int(topic.partition(n).view().start) for n in change.before}
        is_done = all(starts[number] >= offset for number, offset in change.before.items())
        return {"starts": [list(item) for item in starts.items()]} if is_done else None

    def _copied(self, request_id: str, change: SnapshotStore) -> dict[str, Any] | None:
        path = os.path.join(change.path, META_PROPERTIES)
        try:
            text = read_whole(self._fs, path, limit=_META_BYTES_MAX).decode()
            is_ours = parse_meta_properties(text).directory_id == made_id(request_id)
        except (OSError, FormatError, UnicodeDecodeError):
            return None
        if not is_ours:
            return None
        partitions = linked = copied = 0
        for directory in self._fs.list(change.path):
            if not directory.is_directory:
                continue
            partitions += 1
            home = os.path.join(change.path, directory.name)
            for entry in self._fs.list(home):
                if not entry.name.endswith(".log"):
                    continue
                if self._fs.is_shared(os.path.join(home, entry.name)):
                    linked += entry.size
                else:
                    copied += entry.size
        return {
            "path": change.path,
            "partitions": partitions,
            "linked_bytes": linked,
            "copied_bytes": copied,
        }
