"""A consumer group under anything: members that come, go, fall silent and miss answers, topics that
come, grow and go, brokers that restart, logs that cannot be written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.assignors import ASSIGNORS
from cordwood.broker.groups.consumer.consumer_group_config import ConsumerGroupConfig
from cordwood.broker.groups.consumer.consumer_heartbeat import ConsumerHeartbeat
from cordwood.broker.groups.consumer.consumer_member import AWAY_EPOCH
from cordwood.protocol.error_code import ErrorCode
from fakes.consumer_client import ConsumerClient, GroupHouse
from fakes.listed_topics import ListedTopics

NAMES = ("orders", "payments", "audits")
PARTITIONS_MAX = 9
ROUNDS = 12

clients = st.integers(0, 4)
subscriptions = st.lists(st.sampled_from(NAMES), unique=True)
regexes = st.sampled_from(["", "", "", "o.*", ".*s", "none"])


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients keep to the protocol and know only what they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = ListedTopics(orders=3)
        self.counter = itertools.count()
        self.clients: list[ConsumerClient] = []
        self.in_group: set[int] = set()
        self.epoch = 0

    @initialize(assignor=st.sampled_from(sorted(ASSIGNORS)), statics=st.sets(clients))
    def start(self, assignor: str, statics: set[int]) -> None:
        others = tuple(name for name in ASSIGNORS if name != assignor)
        config = ConsumerGroupConfig(assignors=(assignor, *others))
        self.house = GroupHouse(self.topics, config)
        self.clients = [
            ConsumerClient(self.house, self.new_id(), instance_id=f"i{n}" if n in statics else None)
            for n in range(5)
        ]

    def new_id(self) -> str:
        return f"member-{next(self.counter)}"

    def attempt(self, number: int, act: Callable[[], object]) -> None:
        """Have a client do something; refused, it owns nothing and must join again."""
        client = self.clients[number]
        try:
            act()
        except RefusedError as error:
            assert error.code in {
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_member_epoch,
                ErrorCode.fenced_instance_id,
                ErrorCode.unreleased_instance_id,
            }, error
            client.owned = {}
            client.epoch = 0
            self.in_group.discard(number)
        else:
            self.in_group.add(number)

    # --- members -----------------------------------------------------------------------------

    @rule(number=clients, names=subscriptions, regex=regexes)
    def join(self, number: int, names: list[str], regex: str) -> None:
        client = self.clients[number]
        client.topic_names, client.topic_regex = tuple(names), regex
        self.attempt(number, client.join)

    @rule(number=clients, says_owned=st.booleans())
    def beat(self, number: int, says_owned: bool) -> None:
        if number in self.in_group:
            client = self.clients[number]
            self.attempt(number, lambda: client.beat(says_owned=says_owned))

    @rule(number=clients, names=subscriptions, regex=regexes)
    def subscribe(self, number: int, names: list[str], regex: str) -> None:
        client = self.clients[number]
        if number in self.in_group:
            self.attempt(number, lambda: client.subscribe(names, regex))

    @rule(number=clients)
    def beat_and_miss_the_answer(self, number: int) -> None:
        """The group hears the heartbeat, the client does not hear the answer."""
        client = self.clients[number]
        if number not in self.in_group:
            return
        try:
            self.house.send(
                ConsumerHeartbeat(
                    member_id=client.member_id, epoch=client.epoch, owned=client.owned
                )
            )
        except RefusedError:
            client.owned = {}
            client.epoch = 0
            self.in_group.discard(number)

    @rule(number=clients)
    def leave(self, number: int) -> None:
        if number in self.in_group:
            self.attempt(number, self.clients[number].leave)
            self.in_group.discard(number)
            self.clients[number].member_id = self.new_id()

    @rule(number=clients)
    def leave_for_a_while(self, number: int) -> None:
        client = self.clients[number]
        if number in self.in_group and client.instance_id is not None:
            self.attempt(number, lambda: client.leave(AWAY_EPOCH))
            self.in_group.discard(number)
            client.member_id = self.new_id()

    @rule(number=clients)
    def vanish(self, number: int) -> None:
        """The process dies; another one takes its place."""
        self.in_group.discard(number)
        client = self.clients[number]
        client.member_id, client.owned, client.epoch = self.new_id(), {}, 0

    # --- what is around them -----------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0, 31.0, 44.0, 46.0]))
    def pass_time(self, seconds: float) -> None:
        self.house.scheduler.advance(seconds)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, PARTITIONS_MAX))
    def change_topic(self, name: str, count: int) -> None:
        found = self.topics.find(name)
        if found is None:
            self.topics.create(name, count)
        elif found.partition_count < count:
            self.topics.grow(name, count)

    @precondition(lambda self: self.topics.names())
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        self.topics.delete(data.draw(st.sampled_from(sorted(self.topics.names()))))

    @rule()
    def restart(self) -> None:
        """Epochs that nobody was told of may be taken back, others may not."""
        self.house.restart()
        self.epoch = max(client.epoch for client in self.clients)

    @rule(number=clients)
    def fail_to_write(self, number: int) -> None:
        """A heartbeat whose records cannot be appended: the client is told of an error."""
        client = self.clients[number]
        if number not in self.in_group:
            return
        codes: list[ErrorCode] = []
        self.house.log.fail_with = ErrorCode.not_coordinator
        try:
            answer = self.house.group.heartbeat(
                ConsumerHeartbeat(
                    member_id=client.member_id, epoch=client.epoch, owned=client.owned
                )
            )
            self.house.group.journal.append(answer.records, codes.append)
            self.house.scheduler.run_ready()
            assert len(codes) == 1
        except RefusedError:
            client.owned = {}
            client.epoch = 0
            self.in_group.discard(number)
        finally:
            self.house.log.fail_with = None

    # --- what holds always -------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if self.clients:
            for place, owners in self.house.owners().items():
                assert len(owners) == 1, (place, owners)
                assert self.house.group.roster.owners.owner(*place) == owners[0]

    @invariant()
    def what_a_client_reads_is_held_for_it(self) -> None:
        for client in self.clients:
            member = self.house.group.roster.find(client.member_id)
            if member is None or member.epoch == AWAY_EPOCH:
                continue
            held = member.held()
            for topic, partitions in client.owned.items():
                assert partitions <= held.get(topic, set()), (client, member)

    @invariant()
    def epochs_do_not_go_back_and_are_in_order(self) -> None:
        if self.clients:
            group = self.house.group
            assert group.epoch >= self.epoch
            self.epoch = group.epoch
            assert group.epoch >= group.targets.epoch
            assert all(member.epoch <= group.targets.epoch for member in group.roster)

    @invariant()
    def there_is_a_timer_for_each_member_and_none_besides(self) -> None:
        if self.clients:
            group = self.house.group
            revoking = sum(bool(member.revoking) for member in group.roster)
            assert self.house.scheduler.timer_count == group.member_count + revoking

    # --- what holds in the end ---------------------------------------------------------------

    def teardown(self) -> None:
        """Left alone, the group settles: everything subscribed to is read by exactly one."""
        if not self.clients:
            return
        for _ in range(ROUNDS):
            self.house.scheduler.advance(5)
            for number in sorted(self.in_group):
                self.attempt(number, self.clients[number].beat)
        self.house.scheduler.advance(46 - 5)  # those who vanished are given up
        for _ in range(ROUNDS):
            self.house.scheduler.advance(1)
            for number in sorted(self.in_group):
                self.attempt(number, self.clients[number].beat)
        group = self.house.group
        assert group.state_name == ("Stable" if self.in_group else "Empty")
        assert group.member_count == len(self.in_group)
        owners = self.house.owners()
        subscribed = {t for m in group.roster for t in group.roster.subscriptions.topics(m.about)}
        shapes = [self.topics.find(name) for name in self.topics.names()]
        assert owners.keys() == {
            (shape.topic_id, partition)
            for shape in shapes
            if shape is not None and shape.topic_id in subscribed
            for partition in range(shape.partition_count)
        }
        for number in self.in_group:
            client = self.clients[number]
            member = group.roster.find(client.member_id)
            assert member is not None
            assert client.owned == {t: frozenset(p) for t, p in member.held().items()}
        self.house.group.stop()
        assert self.house.scheduler.timer_count == 0


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
