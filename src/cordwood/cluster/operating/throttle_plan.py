"""Which replicas a limit for copies concerns, as Kafka's tool for reassignments lists them.

A topic lists the replicas that send (every present replica of a partition that moves: any of them
may come to lead) and those that receive. The brokers of both get the limit.
"""

from collections.abc import Iterable, Mapping

from cordwood.cluster.operating.cluster_picture import PartitionPicture
from cordwood.cluster.operating.reassignment import Assignment
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlePlan:
    """`senders` and `receivers` are by topic: ``0:1,0:2``, partition and broker."""

    brokers: tuple[int, ...]
    senders: Mapping[str, str]
    receivers: Mapping[str, str]


def plan_throttle(partitions: Iterable[PartitionPicture], wanted: Assignment) -> ThrottlePlan:
    """The limit for the moves that are under way and those of `wanted`.

    Both: a topic has one list, which is replaced.
    """
    senders: dict[str, list[str]] = {}
    receivers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition in sorted(partitions, key=lambda each: each.place):
        sources = [node for node in partition.replicas if node not in partition.adding]
        after = wanted.get(partition.place, partition.target)
        targets = [node for node in after if node not in sources]
        if not targets:
            continue
        topic, number = partition.place.topic, partition.place.partition
        senders.setdefault(topic, []).extend(f"{number}:{node}" for node in sources)
        receivers.setdefault(topic, []).extend(f"{number}:{node}" for node in targets)
        brokers.update(sources, targets)
    return ThrottlePlan(
        brokers=tuple(sorted(brokers)),
        senders={topic: ",".join(listed) for topic, listed in senders.items()},
        receivers={topic: ",".join(listed) for topic, listed in receivers.items()},
    )
