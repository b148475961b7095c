"""A consumer of the new protocol without a network: joins a group, beats, lets go of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    GroupSurroundings,
    HeartbeatAnswer,
)
from cordwood.broker.groups.consumer.consumer_group_config import ConsumerGroupConfig
from cordwood.broker.groups.consumer.consumer_group_factory import ConsumerGroupFactory
from cordwood.broker.groups.consumer.consumer_heartbeat import ConsumerHeartbeat
from cordwood.protocol.error_code import ErrorCode
from fakes.listed_topics import ListedTopics
from fakes.manual_clock import ManualClock
from fakes.manual_scheduler import ManualScheduler
from fakes.memory_group_log import MemoryGroupLog

REBALANCE_TIMEOUT_MS = 30_000


class GroupHouse:
    """A group with all that is around it: topics, a clock, a log. `group` is the present one."""

    def __init__(self, topics: ListedTopics, config: ConsumerGroupConfig | None = None) -> None:
        self.topics = topics
        self.settings: dict[str, str] = {}  # of the group
        self.scheduler = ManualScheduler(ManualClock())
        self.log = MemoryGroupLog(self.scheduler)
        self.groups = ConsumerGroupFactory(
            GroupSurroundings(
                config=config or ConsumerGroupConfig(),
                topics=topics,
                scheduler=self.scheduler,
                clock=self.scheduler.clock or ManualClock(),
                settings_of=lambda group_id: self.settings,
            ),
            self.log,
        )
        self.group: ConsumerGroup = self.groups.create("g")

    def send(self, beat: ConsumerHeartbeat) -> HeartbeatAnswer:
        """What a handler does: the heartbeat, then its records into the log."""
        answer = self.group.heartbeat(beat)
        codes: list[ErrorCode] = []
        self.group.journal.append(answer.records, codes.append)
        self.scheduler.run_ready()
        assert codes == [ErrorCode.none]
        return answer

    def restart(self) -> None:
        """The broker stops and starts: what is in the log is all there is."""
        self.group.stop()
        records = [(key, value) for key, value in self.log.table.items() if value is not None]
        restored = self.groups.restore(records)
        self.group = restored[0] if restored else self.groups.create("g")
        self.group.resume()

    def owners(self) -> dict[tuple[UUID, int], list[str]]:
        """Who holds each partition, by what the members have."""
        found: dict[tuple[UUID, int], list[str]] = {}
        for member in self.group.roster:
            for topic, partitions in member.held().items():
                for partition in partitions:
                    found.setdefault((topic, partition), []).append(member.member_id)
        return found


@dataclass
class ConsumerClient:
    """One consumer. `owned` is what it would be reading."""

    house: GroupHouse
    member_id: str
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)

    def join(self) -> HeartbeatAnswer:
        """Start again, owning nothing."""
        self.epoch, self.owned = 0, {}
        return self._take(
            self.house.send(
                ConsumerHeartbeat(
                    member_id=self.member_id,
                    epoch=0,
                    instance_id=self.instance_id,
                    rebalance_timeout_ms=self.rebalance_timeout_ms,
                    topic_names=self.topic_names,
                    topic_regex=self.topic_regex,
                    assignor=self.assignor,
                    owned={},
                )
            )
        )

    def beat(self, *, says_owned: bool = True) -> HeartbeatAnswer:
        return self._take(
            self.house.send(
                ConsumerHeartbeat(
                    member_id=self.member_id,
                    epoch=self.epoch,
                    owned=self.owned if says_owned else None,
                )
            )
        )

    def subscribe(self, topic_names: Iterable[str], topic_regex: str = "") -> HeartbeatAnswer:
        self.topic_names, self.topic_regex = tuple(topic_names), topic_regex
        return self._take(
            self.house.send(
                ConsumerHeartbeat(
                    member_id=self.member_id,
                    epoch=self.epoch,
                    topic_names=self.topic_names,
                    topic_regex=self.topic_regex,
                    owned=self.owned,
                )
            )
        )

    def leave(self, epoch: int = -1) -> HeartbeatAnswer:
        answer = self.house.send(
            ConsumerHeartbeat(member_id=self.member_id, epoch=epoch, instance_id=self.instance_id)
        )
        self.owned = {}
        return answer

    def numbers(self, topic: str) -> set[int]:
        """The partitions of a topic that it owns."""
        return set(self.owned.get(self.house.topics.topic_id(topic), frozenset()))

    @property
    def owned_count(self) -> int:
        return sum(map(len, self.owned.values()))

    def _take(self, answer: HeartbeatAnswer) -> HeartbeatAnswer:
        assert answer.member_epoch >= self.epoch, (answer, self)
        self.member_id, self.epoch = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer


def settle(clients: Iterable[ConsumerClient], rounds: int = 6) -> None:
    """All beat in turn until everyone has what it is to have."""
    everyone = list(clients)
    for _ in range(rounds):
        for client in everyone:
            client.beat()
