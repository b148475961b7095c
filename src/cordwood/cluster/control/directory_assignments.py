"""Which data directory has which replica: told to the controllers until they have confirmed it.

A broker with one directory has nothing to tell. With several, the controllers must know which
replicas are gone if one directory fails. One request is out at a time; a newer place of a replica
replaces the one that waits.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cordwood.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

REPLICAS_PER_REQUEST_MAX: Final = 2_250  # as Kafka's brokers do it

Replica = tuple[UUID, int]


class DirectoryAssignments:
    """The assignments of one broker that the controllers have not confirmed. For one thread."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._waiting: dict[Replica, UUID] = {}
        self._out: dict[Replica, UUID] = {}

    @property
    def has_work(self) -> bool:
        """Whether `next_request` would return one."""
        return bool(self._waiting) and not self._out

    @property
    def unconfirmed_count(self) -> int:
        return len(self._waiting.keys() | self._out.keys())

    def add(self, topic_id: UUID, partition: int, directory_id: UUID) -> None:
        """The replica is in this directory now."""
        self._waiting[topic_id, partition] = directory_id

    def forget(self, topic_id: UUID, partition: int) -> None:
        """The replica is not here any more."""
        self._waiting.pop((topic_id, partition), None)
        self._out.pop((topic_id, partition), None)

    def next_request(self, broker_epoch: int) -> "messages.AssignReplicasToDirsRequestDict":
        """The request with what waits. It is out until `answered` or `failed`."""
        assert self.has_work, "one request at a time"
        replicas = list(self._waiting)[:REPLICAS_PER_REQUEST_MAX]
        self._out = {replica: self._waiting.pop(replica) for replica in replicas}
        places: dict[UUID, dict[UUID, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic_id, partition), directory_id in self._out.items():
            places[directory_id][topic_id].append(partition)
        return {
            "broker_id": self._node_id,
            "broker_epoch": broker_epoch,
            "directories": [
                {
                    "id": directory_id,
                    "topics": [
                        {
                            "topic_id": topic_id,
                            "partitions": [{"partition_index": each} for each in partitions],
                        }
                        for topic_id, partitions in topics.items()
                    ],
                }
                for directory_id, topics in places.items()
            ],
        }

    def answered(self, answer: "messages.AssignReplicasToDirsResponse") -> bool:
        """Whether the controllers have handled the request; if not, ask again after a pause."""
        if answer.error_code:
            self.failed()
            return False
        refused = {
            (topic.topic_id, part.partition_index)
            for directory in answer.directories
            for topic in directory.topics
            for part in topic.partitions
            if part.error_code not in _SETTLED
        }
        out, self._out = self._out, {}
        for replica in refused & out.keys():
            self._waiting.setdefault(replica, out[replica])
        return not refused

    def failed(self) -> None:
        """Nobody answered: everything waits again, unless there is newer news."""
        out, self._out = self._out, {}
        for replica, directory_id in out.items():
            self._waiting.setdefault(replica, directory_id)


# Confirmed, or about a replica that is not this broker's any more: metadata will tell.
_SETTLED: Final = frozenset(
    {
        ErrorCode.none,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    }
)
