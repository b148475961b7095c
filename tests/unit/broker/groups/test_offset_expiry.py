"""When committed offsets are forgotten: by whether anyone reads, and since when nobody does."""

from dataclasses import replace

import pytest

from cordwood.broker.groups.offset_expiry import expired_offsets
from cordwood.log.topics.committed_offsets import CommittedOffset, GroupOffsets
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from fakes.group_bench import GroupBench, subscription

HOUR_MS = 3_600_000
RETENTION_MS = 24 * HOUR_MS
ORDERS, RETURNS = ("orders", 0), ("returns", 0)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def committed(bench: GroupBench, *, expires_in_ms: int | None = None) -> GroupOffsets:
    now_ms = bench.clock.now_ms()
    expires_ms = NO_TIMESTAMP if expires_in_ms is None else now_ms + expires_in_ms
    offset = CommittedOffset(
        offset=Offset(5), committed_ms=now_ms, expires_ms=TimestampMs(expires_ms)
    )
    return {ORDERS: offset, RETURNS: offset}


def expired(bench: GroupBench, offsets: GroupOffsets) -> set[tuple[str, int]]:
    now_ms = bench.clock.now_ms()
    return set(expired_offsets(bench.group, offsets, now_ms=now_ms, retention_ms=RETENTION_MS))


def test_a_group_that_only_commits_loses_them_so_long_after_the_last_commit(
    bench: GroupBench,
) -> None:
    offsets = committed(bench)

    bench.clock.advance(RETENTION_MS - 1)
    before = expired(bench, offsets)
    bench.clock.advance(1)

    assert before == set()
    assert expired(bench, offsets) == {ORDERS, RETURNS}


def test_an_empty_group_loses_them_so_long_after_it_became_empty(bench: GroupBench) -> None:
    offsets = committed(bench)
    [member] = bench.stable(1)
    bench.clock.advance(RETENTION_MS)
    bench.leave((member, None))

    at_once = expired(bench, offsets)
    bench.clock.advance(RETENTION_MS)

    assert at_once == set()
    assert expired(bench, offsets) == {ORDERS, RETURNS}


def test_a_group_whose_last_change_nobody_noted_goes_by_its_commits(bench: GroupBench) -> None:
    offsets = committed(bench)
    [member] = bench.stable(1)
    bench.leave((member, None))
    saved = replace(bench.saved, current_state_timestamp=NO_TIMESTAMP)
    bench.group = bench.new_group()
    bench.group.restore(saved)

    bench.clock.advance(RETENTION_MS)

    assert expired(bench, offsets) == {ORDERS, RETURNS}


def test_a_stable_group_loses_those_of_topics_it_no_longer_reads(bench: GroupBench) -> None:
    offsets = committed(bench)
    bench.stable(1)

    bench.clock.advance(RETENTION_MS)

    assert expired(bench, offsets) == {RETURNS}


def test_while_members_join_and_sync_nothing_expires(bench: GroupBench) -> None:
    offsets = committed(bench)
    [member] = bench.stable(1)
    bench.clock.advance(RETENTION_MS)

    bench.join_anew()
    joining = expired(bench, offsets)
    bench.join(member)

    assert bench.group.state_name == "CompletingRebalance"
    assert joining == expired(bench, offsets) == set()


@pytest.mark.parametrize(
    "wish",
    [
        {"protocol_type": "connect", "protocols": (("v0", b"x"),)},
        {"protocols": (("range", b"not a subscription"),)},
    ],
    ids=["not consumers", "unknown topics"],
)
def test_while_members_may_read_anything_nothing_expires(
    bench: GroupBench, wish: dict[str, object]
) -> None:
    offsets = committed(bench)
    member, _ = bench.join_anew(**wish)
    bench.sync(member, assignments={})

    bench.clock.advance(RETENTION_MS * 2)

    assert expired(bench, offsets) == set()


def test_an_expiry_that_the_client_chose_is_kept_to_the_millisecond(bench: GroupBench) -> None:
    offsets = committed(bench, expires_in_ms=HOUR_MS)

    bench.clock.advance(HOUR_MS - 1)
    before = expired(bench, offsets)
    bench.clock.advance(1)

    assert before == set()
    assert expired(bench, offsets) == {ORDERS, RETURNS}


def test_an_expiry_later_than_the_retention_counts_too(bench: GroupBench) -> None:
    offsets = committed(bench, expires_in_ms=2 * RETENTION_MS)

    bench.clock.advance(RETENTION_MS)

    assert expired(bench, offsets) == set()


def test_what_is_read_does_not_expire_whatever_the_client_chose(bench: GroupBench) -> None:
    offsets = committed(bench, expires_in_ms=0)
    member, _ = bench.join_anew(protocols=(("range", subscription("orders", "returns")),))
    bench.sync(member, assignments={})

    bench.clock.advance(RETENTION_MS)

    assert expired(bench, offsets) == set()
