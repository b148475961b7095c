"""The share of one process in a store that several processes of one node run together.

Every partition has one owner for as long as the processes run: the rule below needs nothing but the
name of the topic, the number of the partition and the number of processes. So no two processes can
disagree, and nothing about it has to be saved. It is the name and not the id of the topic, because
the owner also owns the name of the directory: if a topic is deleted and created again, one process
does both in order. Another number of processes means other owners, at the next start.

The *keeper* has no partitions. It owns everything else: the topic catalog, producer ids, settings,
users and rules, the inbox. The others, the *workers*, own partitions and ask the keeper.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from cordwood.checksums import crc32c
from cordwood.value_class import dataclass

KEEPER: Final = "keeper"


def owner_of(topic: str, partition: int, count: int) -> int:
    """Which of `count` workers has a partition: neighbours have different ones."""
    return (crc32c(topic.encode()) + partition) % count


def worker_name(index: int) -> str:
    return f"worker-{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShare:
    """`index` is that of a worker; None for the keeper.

    `begin(topic, topic_id, partition)` tells the keeper that a partition is about to acknowledge
    its first records. Durable on return. The keeper itself has none. `security` is what the keeper
    has of users, access rules and quotas, encoded.
    """

    count: int
    index: int | None = None
    begin: Callable[[str, UUID, int], None] | None = None
    security: bytes | None = None

    @property
    def process(self) -> str:
        """The name of the process, and of the folder of its state."""
        return KEEPER if self.index is None else worker_name(self.index)

    def owns(self, topic: str, partition: int) -> bool:
        return owner_of(topic, partition, self.count) == self.index

    def absent(self, topic: str, partitions: int) -> int:
        """The bits of the partitions of a topic that others own."""
        bits = (1 << partitions) - 1
        if self.index is not None:
            first = (self.index - owner_of(topic, 0, self.count)) % self.count
            for number in range(first, partitions, self.count):
                bits &= ~(1 << number)
        return bits
