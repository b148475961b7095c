"""A consumer group as library users see it: its committed offsets and its readers."""

from collections.abc import Mapping
from typing import Final, overload

from cordwood.errors import ConfigError, ReadOnlyError
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.topics.committed_offsets import (
    CommittedOffset,
    CommittedOffsets,
    TopicPartition,
)
from cordwood.log.topics.group_reader import GroupReader
from cordwood.log.topics.group_session import (
    COMMIT_INTERVAL_MS,
    FirstPosition,
    GroupSession,
    ReaderOptions,
    ReaderSurroundings,
)
from cordwood.quantities import Offset

_NAME_BYTES_MAX: Final = 0x7FFF  # the length is an int16 in the offsets topic


def checked_group(name: str) -> str:
    """The name of a group, if it can be one."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a group must be str, not {type(name).__name__}")
    if not name:
        raise ConfigError("group", name, "must not be empty")
    size = len(name.encode(errors="surrogatepass"))
    if size > _NAME_BYTES_MAX:
        shown = f"{name[:32]}..."
        raise ConfigError(
            "group", shown, f"has {size} bytes; at most {_NAME_BYTES_MAX} can be kept"
        )
    return name


class Group:
    """One consumer group: its committed offsets, and readers that commit by themselves."""

    def __init__(
        self,
        name: str,
        offsets: CommittedOffsets,
        lifetime: Lifetime | None = None,
        readers: ReaderSurroundings | None = None,
    ) -> None:
        """`lifetime` is that of the store; None for the store's own use.

        `readers` is what readers need; None: the store is read-only, so they cannot commit.
        """
        self.name = name
        self._readers = readers
        self._offsets = offsets
        self._lifetime = lifetime

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    def _check_open(self) -> None:
        if self._lifetime is not None:
            self._lifetime.check_open()

    def reader(
        self,
        topic: str,
        *,
        start: FirstPosition = "start",
        commit_interval_ms: int = COMMIT_INTERVAL_MS,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> GroupReader:
        """A reader over all partitions of a topic that resumes where the group stopped.

            with store.group("billing").reader("orders") as reader:
                for record in reader:
                    handle(record)

        It waits for new records; with `idle_timeout_ms` it ends after that time without one.
        Records are handled at least once. It commits every `commit_interval_ms` (0: after each
        record), at the end of the block, and with ``reader.commit()``, but not if the block
        raises. A block that ends without an error says that it has handled every record it was
        given.

        `start` says where a group begins in a topic that it never read: "start" or "end".
        Partitions that are added later are read from their start.

        Readers of one group and topic in this process share the partitions; they share them again
        when a reader comes or goes, or partitions are added. Readers in several processes share
        them through a broker, as Kafka consumers.
        """
        options = ReaderOptions(
            start=start,
            commit_interval_ms=commit_interval_ms,
            idle_timeout_ms=idle_timeout_ms,
            isolation=isolation,
        )
        return GroupReader(self.session(topic, options))

    def session(self, topic: str, options: ReaderOptions) -> GroupSession:
        """A member of the group, without an iteration. For readers of our own."""
        self._check_open()
        if self._readers is None:
            raise ReadOnlyError(f"read as group {self.name!r}")
        return GroupSession(self.name, topic, self._readers, options)

    def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> None:
        """Commit the next offset to read of each partition: {("orders", 0): 7}.

        A value may be (offset, metadata). Durable on return.
        """
        self._check_open()
        places: list[object] = list(offsets)
        for place in places:
            if not isinstance(place, tuple) or len(place) != 2:
                raise TypeError(f"commit takes {{(topic, partition): offset}}, not {place!r}")
        self._offsets.commit(
            self.name,
            {
                partition: value if isinstance(value, tuple) else (value, "")
                for partition, value in offsets.items()
            },
        )

    @overload
    def committed(self) -> dict[TopicPartition, Offset]: ...
    @overload
    def committed(self, topic: str) -> dict[TopicPartition, Offset]: ...
    @overload
    def committed(self, topic: str | TopicPartition, partition: int) -> Offset | None: ...
    @overload
    def committed(self, topic: TopicPartition) -> Offset | None: ...
    def committed(
        self, topic: str | TopicPartition | None = None, partition: int | None = None
    ) -> dict[TopicPartition, Offset] | Offset | None:
        """The committed offset of one partition, or a dictionary of several.

        ``committed("orders", 0)`` or ``committed(("orders", 0))`` gives one offset, or None if
        the group never committed it. Without a partition, the result has all partitions of the
        topic; without a topic, those of every topic.
        """
        found = {place: committed.offset for place, committed in self.details().items()}
        if isinstance(topic, tuple):
            return found.get(topic)
        if topic is not None and partition is not None:
            return found.get((topic, partition))
        if topic is not None:
            return {place: offset for place, offset in found.items() if place[0] == topic}
        return found

    def details(self) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets with their metadata and times."""
        self._check_open()
        found = self._offsets.of_group(self.name)
        return {place: committed for place, committed in found.items() if committed.is_position}

    def forget(self, *partitions: TopicPartition) -> None:
        """Remove the committed offsets of these partitions; of all partitions if none is given."""
        self._check_open()
        known = list(self._offsets.of_group(self.name))
        self._offsets.remove(self.name, list(partitions) if partitions else known)
