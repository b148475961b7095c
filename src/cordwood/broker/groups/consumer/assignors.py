"""Assign the partitions of a consumer group to its members. Pure functions.

An assignor takes the subscription and the previous target of each member and returns the new
targets. Both assignors give every partition of a subscribed topic to exactly one subscriber, and
equal arguments give equal results.

uniform  As even as the subscriptions allow: no partition could move to a subscriber that has at
         least two fewer. If all members subscribe to the same topics, their shares differ by at
         most one, and as few partitions as possible move.
range    Runs of neighbouring partitions of each topic, in the order of the members. Members with
         the same subscription get the same partition numbers of all topics with equal partition
         counts, so that topics can be joined by key.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final
from uuid import UUID

from cordwood.value_class import dataclass, field

Assignment = Mapping[UUID, frozenset[int]]

EMPTY_ASSIGNMENT: Final[Assignment] = {}

# Each sweep makes the shares more even. One or two are enough for usual subscriptions; the limit
# is for hostile ones. The assignment is valid after every sweep.
_SWEEPS_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it. `previous` is its last target."""

    topics: frozenset[UUID]
    previous: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, Assignment]]
"""From members by id and partition counts by topic to the target of each member."""


def assign_uniform(
    members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Even and sticky, see the module.

    Topics with the same subscribers are one pool. Each pool in turn is distributed like water
    over the loads that its members have from other pools, until no pool changes.
    """
    pools = _pools(members, partition_counts)
    loads = dict.fromkeys(members, 0)
    for pool in pools:
        for member_id, held in pool.held.items():
            loads[member_id] += len(held)
    for sweep in range(_SWEEPS_MAX):
        has_changed = False
        for pool in pools:
            has_changed |= pool.level(loads)
        # A single pool is even after one sweep.
        if not has_changed or (sweep == 0 and len(pools) == 1):
            break
    return _merged(members, pools)


def assign_range(
    members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Runs of neighbouring partitions, see the module.

    If the partitions of a topic cannot be divided evenly, the first members get one more each.
    Members are ordered by instance id, then by member id.
    """
    shares: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topics, takers in _shared_topics(members, partition_counts):
        takers.sort(key=lambda member_id: _range_place(member_id, members[member_id]))
        for topic in topics:
            size, larger_count = divmod(partition_counts[topic], len(takers))
            start = 0
            for place, member_id in enumerate(takers):
                end = start + size + (place < larger_count)
                if end == start:
                    break  # fewer partitions than members: the others get none
                shares[member_id][topic] = frozenset(range(start, end))
                start = end
    return dict(shares)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _range_place(member_id: str, member: Subscriber) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member_id


class _Pool:
    """Topics that the same members subscribe to, and which member holds which partition.

    A partition is one integer, ``number * topics + place of the topic``. In sorted order these
    alternate between the topics, so that a member that keeps the first few has some of each.

    Invariant: every partition of the pool is in `_free` or in one member's `held`.
    """

    __slots__ = ("_free", "_members", "_topics", "held")

    def __init__(
        self, topics: list[UUID], members: list[str], partition_counts: Mapping[UUID, int]
    ) -> None:
        self._topics = topics
        self._members = members
        self._free: set[int] = {
            number * len(topics) + place
            for place, topic in enumerate(topics)
            for number in range(partition_counts[topic])
        }
        self.held: dict[str, set[int]] = {}

    def keep(self, member_id: str, place: int, numbers: Collection[int]) -> None:
        """Let the member keep its partitions of one topic, if they exist and are free."""
        count = len(self._topics)
        kept = {number * count + place for number in numbers} & self._free
        self._free -= kept
        self.held.setdefault(member_id, set()).update(kept)

    def level(self, loads: dict[str, int]) -> bool:
        """Distribute the pool over the loads from other pools; return whether it changed."""
        sizes = dict.fromkeys(self._members, 0)
        for member_id, held in self.held.items():
            sizes[member_id] = len(held)
        elsewhere = {m: loads[m] - size for m, size in sizes.items()}
        shares = self._even_shares(elsewhere, sizes)
        changed = [m for m, size in sizes.items() if shares[m] != size]
        if not changed:
            return False
        for member_id in changed:
            surplus = sizes[member_id] - shares[member_id]
            if surplus > 0:
                given = sorted(self.held[member_id])[-surplus:]
                self.held[member_id].difference_update(given)
                self._free.update(given)
            loads[member_id] = elsewhere[member_id] + shares[member_id]
        self._deal({m: shares[m] - sizes[m] for m in changed})
        return True

    def add_to(self, shares: Mapping[str, dict[UUID, frozenset[int]]]) -> None:
        """Add the held partitions to `shares`, by topic and number."""
        count = len(self._topics)
        for member_id, held in self.held.items():
            numbers: dict[int, list[int]] = {}
            for code in held:
                number, place = divmod(code, count)
                numbers.setdefault(place, []).append(number)
            share = shares[member_id]
            for place, found in numbers.items():
                share[self._topics[place]] = frozenset(found)

    def _even_shares(
        self, elsewhere: Mapping[str, int], sizes: Mapping[str, int]
    ) -> dict[str, int]:
        """The number of partitions for each member, chosen so that the fewest move."""
        total = len(self._free) + sum(sizes.values())
        level, larger_count = _water_level(sorted(elsewhere.values()), total)
        shares = {m: level - load if load < level else 0 for m, load in elsewhere.items()}
        # Some members at the level get one more: first those that already hold that many.
        at_level = [m for m, load in elsewhere.items() if load <= level]
        at_level.sort(key=lambda m: shares[m] - sizes[m])
        for member_id in at_level[:larger_count]:
            shares[member_id] += 1
        return shares

    def _deal(self, missing: Mapping[str, int]) -> None:
        """Assign all free partitions in turns, so that neighbours go to different members."""
        count = len(self._topics)
        waiting = sorted(self._free, key=lambda code: (code % count, code), reverse=True)
        takers = [(m, count) for m, count in missing.items() if count > 0]
        while takers:
            for member_id, _ in takers:
                self.held.setdefault(member_id, set()).add(waiting.pop())
            takers = [(m, count - 1) for m, count in takers if count > 1]
        assert not waiting, waiting
        self._free.clear()


def _water_level(loads: list[int], amount: int) -> tuple[int, int]:
    """The level that `amount` of water reaches over `loads`, which are in ascending order.

    All loads below the level are filled up to it. The second number is the units that are left:
    fewer than the loads at or below the level.
    """
    level = loads[0]
    for covered, load in enumerate(loads[1:], start=1):
        needed = (load - level) * covered
        if needed > amount:
            break
        amount -= needed
        level = load
    else:
        covered = len(loads)
    return level + amount // covered, amount % covered


def _shared_topics(
    members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> list[tuple[list[UUID], list[str]]]:
    """Topics grouped by their subscribers; groups with few subscribers first."""
    # Members often share one frozenset, which is then processed once.
    by_topics: dict[frozenset[UUID], list[str]] = {}
    for member_id in sorted(members):
        by_topics.setdefault(members[member_id].topics, []).append(member_id)
    alike = list(by_topics.values())
    subscribed: dict[UUID, list[int]] = {}
    for place, topics in enumerate(by_topics):
        for topic in topics:
            subscribed.setdefault(topic, []).append(place)
    shared: dict[tuple[int, ...], list[UUID]] = {}
    for topic in sorted(partition_counts, key=lambda topic: topic.int):
        if topic in subscribed:
            shared.setdefault(tuple(subscribed[topic]), []).append(topic)
    found = [
        (topics, [member_id for place in places for member_id in alike[place]])
        for places, topics in shared.items()
    ]
    found.sort(key=lambda topics_and_members: len(topics_and_members[1]))
    return found


def _pools(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> list[_Pool]:
    """The pools of a group. Members hold the part of their last target that is still valid."""
    pools: list[_Pool] = []
    places: dict[UUID, tuple[_Pool, int]] = {}
    for topics, takers in _shared_topics(members, partition_counts):
        pool = _Pool(topics, takers, partition_counts)
        pools.append(pool)
        places.update((topic, (pool, place)) for place, topic in enumerate(topics))
    for member_id in sorted(members):
        member = members[member_id]
        for topic, numbers in member.previous.items():
            if topic in member.topics and topic in places:
                pool, place = places[topic]
                pool.keep(member_id, place, numbers)
    return pools


def _merged(members: Collection[str], pools: list[_Pool]) -> dict[str, Assignment]:
    shares: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for pool in pools:
        pool.add_to(shares)
    return dict(shares)
