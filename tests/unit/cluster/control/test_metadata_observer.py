"""An observer of the metadata log: what it asks, what it applies, and what it never applies."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.control.metadata_observer import NOBODY, MetadataObserver, Next
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.image.record_schemas import RecordType
from cordwood.errors import ClusterMismatchError, FormatError, MetadataLostError
from cordwood.protocol.replica_fetch import CurrentLeader
from fakes.metadata_log import FakeLeader, Value


def config(name: str, value: str | None = "1") -> Value:
    fields = {"resource_type": 4, "resource_name": "", "name": name, "value": value}
    return (RecordType.CONFIG, 0, fields)


BEGIN: Value = (RecordType.BEGIN_TRANSACTION, 0, {})
END: Value = (RecordType.END_TRANSACTION, 0, {})
ABORT: Value = (RecordType.ABORT_TRANSACTION, 0, {})


def observer(cluster_id: str = "cluster") -> MetadataObserver:
    return MetadataObserver(node_id=1, cluster_id=cluster_id, directory_id=uuid4())


def ask(watcher: MetadataObserver, leader: FakeLeader) -> Next:
    request = watcher.request(18)
    return watcher.receive(request, leader.answer(request))


def apply(watcher: MetadataObserver, count: int = 1000) -> list[ImageChange]:
    changes = []
    while watcher.has_work:
        change = watcher.advance(count)
        if change is not None:
            changes.append(change)
    return changes


def follow(watcher: MetadataObserver, leader: FakeLeader, times: int = 6) -> list[ImageChange]:
    changes = []
    for _ in range(times):
        ask(watcher, leader)
        changes += apply(watcher)
    return changes


def configs(watcher: MetadataObserver) -> dict[str, Any]:
    return dict(watcher.image.config_of(4, ""))


def test_it_learns_from_anyone_who_leads() -> None:
    watcher, leader = observer(), FakeLeader(epoch=5)
    assert watcher.request(18).leader_id == NOBODY

    following = ask(watcher, leader)

    assert following is Next.ASK
    assert watcher.leader == CurrentLeader(3000, 5)
    assert watcher.request(18).leader_id == 3000
    assert watcher.endpoints[3000].port == 9093


def test_committed_records_are_applied_and_told() -> None:
    watcher, leader = observer(), FakeLeader()
    leader.append(config("a"), config("b"))

    changes = follow(watcher, leader)

    assert configs(watcher) == {"a": "1", "b": "1"}
    assert [change.configs for change in changes] == [{(4, "")}]
    assert watcher.image.end == 2
    assert watcher.image.epoch == 1


def test_a_record_above_the_high_watermark_waits() -> None:
    watcher, leader = observer(), FakeLeader()
    leader.append(config("a"))
    leader.append(config("b"), commit=False)

    follow(watcher, leader)

    assert configs(watcher) == {"a": "1"}

    leader.high_watermark = leader.end
    follow(watcher, leader)

    assert configs(watcher) == {"a": "1", "b": "1"}


def test_records_that_a_new_leader_lacks_are_never_applied() -> None:
    watcher, old = observer(), FakeLeader(node_id=1, epoch=1)
    old.append(config("a"))
    old.append(config("lost"), commit=False)
    follow(watcher, old)
    new = FakeLeader(node_id=2, epoch=2, batches=old.batches[:1], high_watermark=1)
    new.append(config("b"))

    follow(watcher, new)

    assert configs(watcher) == {"a": "1", "b": "1"}
    assert watcher.image.end == 2
    assert watcher.image.epoch == 2


def test_a_leader_that_lost_what_was_committed_is_not_followed() -> None:
    watcher, old = observer(), FakeLeader(node_id=1, epoch=1)
    old.append(config("a"))
    old.append(config("b"))
    follow(watcher, old)
    new = FakeLeader(node_id=2, epoch=2, batches=old.batches[:1], high_watermark=1)
    new.append(config("c"))

    with pytest.raises(MetadataLostError):
        follow(watcher, new)

    assert configs(watcher) == {"a": "1", "b": "1"}


def test_an_older_leader_changes_nothing() -> None:
    watcher, old, new = observer(), FakeLeader(node_id=1, epoch=1), FakeLeader(node_id=2, epoch=2)
    follow(watcher, new)
    old.append(config("a"))

    following = ask(watcher, old)

    assert following is Next.WAIT
    assert watcher.leader == CurrentLeader(NOBODY, 2)  # ask somebody who knows
    assert configs(watcher) == {}


def test_a_follower_tells_who_leads() -> None:
    watcher = observer()
    follower = FakeLeader(node_id=2, epoch=4, leader_id=3, port=19093)

    ask(watcher, follower)
    following = ask(watcher, follower)

    assert following is Next.WAIT or watcher.leader.leader_id == 3
    assert watcher.endpoints[3].port == 19093


def test_a_new_observer_begins_with_a_snapshot() -> None:
    watcher, leader = observer(), FakeLeader(epoch=3)
    leader.append(config("x"))
    leader.snapshot([config(f"k{at}") for at in range(40)], [config("last")], end=500, epoch=2)
    leader.append(config("after"))

    changes = follow(watcher, leader, times=40)

    assert changes[0].is_whole
    assert len(configs(watcher)) == 42
    assert watcher.image.end == 501


def test_an_observer_that_fell_behind_replaces_its_image_by_a_snapshot() -> None:
    watcher, leader = observer(), FakeLeader()
    leader.append(config("gone"))
    follow(watcher, leader)
    leader.snapshot([config("new")], end=90, epoch=1)

    changes = follow(watcher, leader, times=20)

    assert configs(watcher) == {"new": "1"}
    assert changes[-1].old.config_of(4, "") == {"gone": "1"}


def test_a_snapshot_that_is_deleted_meanwhile_is_replaced_by_the_next_one() -> None:
    watcher, leader = observer(), FakeLeader()
    leader.snapshot([config(f"old{at}") for at in range(20)], end=90, epoch=1)
    follow(watcher, leader, times=3)
    leader.snapshot([config("new")], end=95, epoch=1)

    follow(watcher, leader, times=20)

    assert configs(watcher) == {"new": "1"}
    assert watcher.image.end == 95


def test_a_snapshot_goes_on_with_another_leader() -> None:
    watcher, leader = observer(), FakeLeader(node_id=1, epoch=1)
    leader.snapshot([config(f"k{at}") for at in range(20)], end=90, epoch=1)
    follow(watcher, leader, times=3)
    other = FakeLeader(node_id=2, epoch=2, snapshots=leader.snapshots, start=90, high_watermark=90)

    follow(watcher, other, times=40)

    assert len(configs(watcher)) == 20


def test_a_transaction_appears_at_once_or_not_at_all() -> None:
    watcher, leader = observer(), FakeLeader()
    leader.append(config("a"))
    leader.append(BEGIN, config("b"))
    follow(watcher, leader)
    assert configs(watcher) == {"a": "1"}
    assert watcher.image.end == 1

    leader.append(config("c"), END)
    follow(watcher, leader)
    assert configs(watcher) == {"a": "1", "b": "1", "c": "1"}

    leader.append(BEGIN, config("d"))
    leader.append(ABORT)
    follow(watcher, leader)
    assert configs(watcher) == {"a": "1", "b": "1", "c": "1"}
    assert watcher.image.end == leader.end


def test_another_cluster_is_refused() -> None:
    watcher, leader = observer(cluster_id="mine"), FakeLeader(cluster_id="yours")

    with pytest.raises(ClusterMismatchError, match="mine"):
        ask(watcher, leader)


def test_a_record_of_a_newer_kafka_stops_the_observer_with_advice() -> None:
    watcher, leader = observer(), FakeLeader()
    leader.append((RecordType.NO_OP, 0, {}))
    follow(watcher, leader)
    base = leader.end
    leader.append(config("a"))
    newest = leader.batches[-1]
    forged = newest.data.replace(b"\x01\x04\x00\x04\x01", b"\x01\x63\x00\x04\x01")
    from cordwood.format.batch_builder import seal

    data = bytearray(forged)
    seal(data)
    leader.batches[-1] = newest._replace(data=bytes(data))
    assert leader.end == base + 1

    with pytest.raises(FormatError, match="99; the controllers are newer than this broker"):
        follow(watcher, leader)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    committed=st.integers(0, 60),
    portion=st.integers(1, 7),
)
def test_the_image_never_has_more_or_less_than_what_is_committed(
    sizes: list[int], committed: int, portion: int
) -> None:
    watcher, leader = observer(), FakeLeader()
    number = 0
    for size in sizes:
        leader.append(*[config(f"k{number + at}") for at in range(size)], commit=False)
        number += size
    ends = [batch.end for batch in leader.batches]
    leader.high_watermark = max([0, *[end for end in ends if end <= committed]])

    for _ in range(3):
        ask(watcher, leader)
        apply(watcher, portion)

    assert configs(watcher) == {f"k{at}": "1" for at in range(leader.high_watermark)}
    assert watcher.image.end == leader.high_watermark


def test_ids_of_the_metadata_topic_are_kafkas() -> None:
    body = observer().request(18).body

    assert UUID(int=1).bytes in body
