"""The coordinator's life, and the groups it finds, replaces, deletes and forgets."""

import logging
from collections.abc import Sequence

import pytest

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.coordinator import CoordinatorState
from cordwood.broker.groups.managed_group import EpochGroup
from cordwood.format.groups.group_offsets import (
    GroupMetadataKey,
    decode_group_key,
    encode_group_metadata_key,
)
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.coordinator_bench import CoordinatorBench, commit_code

ORDERS = ("orders", 0)
DAY_MS = 86_400_000


class OtherGroup:
    """A group of the other kind, as far as the coordinator looks at it."""

    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str = "billing", *, members: int = 0) -> None:
        self.group_id = group_id
        self.member_count = members
        self.is_stopped = False
        self.is_resumed = False
        self.topics: frozenset[str] = frozenset()

    @property
    def state_name(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    @property
    def is_empty(self) -> bool:
        return not self.member_count

    def subscribed_topics(self) -> frozenset[str] | None:
        return self.topics

    def tombstones(self) -> list[GroupRecord]:
        return [(b"\x00\x03" + self.group_id.encode(), None)]

    def resume(self) -> None:
        self.is_resumed = True

    def stop(self) -> None:
        self.is_stopped = True

    def validate_commit(self, member_id: str, member_epoch: int) -> ErrorCode:
        return ErrorCode.none if member_epoch == 3 else ErrorCode.stale_member_epoch

    def validate_partition_commit(
        self, member_id: str, member_epoch: int, topic_name: str, partition: int
    ) -> ErrorCode:
        return self.validate_commit(member_id, member_epoch)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.none if member_epoch in (-1, 3) else ErrorCode.stale_member_epoch


@pytest.fixture
def bench() -> CoordinatorBench:
    bench = CoordinatorBench()
    bench.store.create_topic("orders", partitions=2)
    return bench


def delete(bench: CoordinatorBench, *groups: str) -> dict[str, ErrorCode]:
    answer = bench.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": list(groups)})
    return {result.group_id: ErrorCode(result.error_code) for result in answer.results}


def listed(bench: CoordinatorBench) -> list[tuple[str, str, str]]:
    answer = bench.ask(ApiKey.LIST_GROUPS, 5, {})
    return [(g.group_id, g.group_type, g.group_state) for g in answer.groups]


# --- loading ------------------------------------------------------------------------------------


def test_while_groups_are_loaded_clients_are_told_to_wait_and_heartbeats_are_fine() -> None:
    bench = CoordinatorBench(is_started=False)
    bench.workers.is_held = True

    before = bench.join().code
    bench.coordinator.start()
    loading = bench.join().code, bench.heartbeat("m"), commit_code(bench.commit())
    bench.workers.release()
    bench.scheduler.run_ready()

    assert before is ErrorCode.coordinator_not_available
    assert loading == (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.none,
        ErrorCode.coordinator_load_in_progress,
    )
    assert bench.join().code is ErrorCode.member_id_required


def test_loading_that_fails_is_tried_again(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = bench.restarted(is_started=False)
    with monkeypatch.context() as patch:
        patch.setattr(again.store.committed_offsets, "load", lambda: 1 / 0)
        again.coordinator.start()
        again.scheduler.run_ready()
        failed = again.join().code

    again.scheduler.advance(10)

    assert failed is ErrorCode.coordinator_load_in_progress
    assert again.coordinator.state is CoordinatorState.READY


def test_after_a_restart_members_carry_on_and_offsets_are_there(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.commit(offset=9, member_id=member, generation_id_or_member_epoch=1)

    again = bench.restarted(has_crashed=True)

    assert again.heartbeat(member) is ErrorCode.none
    assert again.committed() == 9
    code = commit_code(again.commit(offset=10, member_id=member, generation_id_or_member_epoch=1))
    assert code is ErrorCode.none


def test_a_group_that_became_empty_is_empty_after_a_restart(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": member}]})

    again = bench.restarted()
    group = again.coordinator.groups["billing"]

    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.generation, group.protocol_type) == ("Empty", 2, "consumer")
    assert group.state_since_ms == bench.clock.now_ms()


def test_a_record_that_cannot_be_read_costs_its_own_group_only(
    bench: CoordinatorBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.stable("billing")
    key = encode_group_metadata_key(GroupMetadataKey(group="broken"))
    bench.store.committed_offsets.append(0, [(key, b"\x00\x03nonsense"), (b"\x00\x02\x00", b"x")])

    with caplog.at_level(logging.WARNING):
        again = bench.restarted()

    assert list(again.coordinator.groups) == ["billing"]
    assert "left out" in caplog.text


def test_groups_of_the_other_kind_are_restored_from_records_of_other_kinds(
    bench: CoordinatorBench,
) -> None:
    bench.store.offsets_topic.ensure()
    bench.store.committed_offsets.append(0, [(b"\x00\x03new", b"1"), (b"\x00\x07new", b"2")])
    seen: list[tuple[bytes, bytes]] = []
    other = OtherGroup("new", members=1)

    def restore(records: Sequence[tuple[bytes, bytes]]) -> list[EpochGroup]:
        seen.extend(records)
        return [other]

    again = bench.restarted(restore_consumer_groups=restore)

    assert seen == [(b"\x00\x03new", b"1"), (b"\x00\x07new", b"2")]
    assert again.coordinator.groups == {"new": other}
    assert other.is_resumed


def test_a_stopped_coordinator_answers_everyone_and_then_nobody(bench: CoordinatorBench) -> None:
    bench.stable()
    member = bench.join().answer.member_id
    waiting = bench.join(member=member)

    bench.coordinator.stop()
    bench.scheduler.run_ready()

    assert waiting.code is ErrorCode.not_coordinator
    assert bench.join().code is ErrorCode.coordinator_not_available
    assert bench.heartbeat(member) is ErrorCode.coordinator_not_available
    assert bench.scheduler.timer_count == 0


# --- finding ------------------------------------------------------------------------------------


def test_a_group_known_by_its_offsets_alone_is_an_empty_one(bench: CoordinatorBench) -> None:
    bench.store.group("library").commit({ORDERS: 3})

    assert listed(bench) == [("library", "classic", "Empty")]
    assert bench.coordinator.groups == {}


def test_a_group_nobody_came_back_to_is_not_remembered(bench: CoordinatorBench) -> None:
    bench.join("passing")
    known = list(bench.coordinator.groups)

    bench.scheduler.advance(11)

    assert known == ["passing"]
    assert bench.coordinator.groups == {}


def test_a_name_must_be_there_and_not_be_endless(bench: CoordinatorBench) -> None:
    assert bench.join("").code is ErrorCode.invalid_group_id
    assert bench.join("x" * 8_192).code is ErrorCode.invalid_group_id
    assert bench.join("x" * 8_191).code is ErrorCode.member_id_required


def test_states_are_counted(bench: CoordinatorBench) -> None:
    bench.stable("a")
    bench.stable("b")
    bench.coordinator.groups["c"] = OtherGroup("c")

    assert bench.coordinator.states() == {("classic", "Stable"): 2, ("consumer", "Empty"): 1}


def test_there_is_a_limit_to_groups(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.broker.groups.coordinator._GROUPS_MAX", 2)
    bench.stable("a")
    bench.stable("b")

    assert bench.join("c").code is ErrorCode.coordinator_not_available
    assert bench.join("a").code is ErrorCode.member_id_required
    found = bench.coordinator.consumer_for_join("c", OtherGroup)
    assert found is ErrorCode.coordinator_not_available


# --- one kind in the place of the other ---------------------------------------------------------


def test_a_classic_member_is_refused_by_a_living_group_of_the_other_kind(
    bench: CoordinatorBench,
) -> None:
    bench.coordinator.groups["billing"] = OtherGroup(members=1)

    assert bench.join().code is ErrorCode.inconsistent_group_protocol
    assert bench.heartbeat("m") is ErrorCode.unknown_member_id


def test_an_empty_group_of_the_other_kind_gives_way(bench: CoordinatorBench) -> None:
    other = OtherGroup()
    bench.coordinator.groups["billing"] = other

    unknown = bench.join(member="m").code
    bench.stable()

    assert unknown is ErrorCode.unknown_member_id
    assert other.is_stopped
    keys = [record.key for record in bench.store.topic("__consumer_offsets").partition(0).read()]
    assert keys[0] == b"\x00\x03billing"


def test_an_empty_classic_group_gives_way_to_the_other_kind(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.commit(member_id=member, generation_id_or_member_epoch=1)
    refused = bench.coordinator.consumer_for_join("billing", OtherGroup)
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": member}]})

    taken = bench.coordinator.consumer_for_join("billing", OtherGroup)
    again = bench.coordinator.consumer_for_join("billing", OtherGroup)

    assert refused is ErrorCode.inconsistent_group_protocol
    assert isinstance(taken, OtherGroup)
    assert taken is again
    assert bench.committed() == 5, "offsets go over"
    assert bench.restarted().coordinator.groups == {}


# --- deleting -----------------------------------------------------------------------------------


def test_an_empty_group_is_deleted_with_its_offsets(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.commit(member_id=member, generation_id_or_member_epoch=1)
    alive = delete(bench, "billing")
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": member}]})

    codes = delete(bench, "billing", "nobody")

    assert alive == {"billing": ErrorCode.non_empty_group}
    assert codes == {"billing": ErrorCode.none, "nobody": ErrorCode.group_id_not_found}
    assert listed(bench) == []
    again = bench.restarted()
    assert (listed(again), again.store.groups()) == ([], [])


def test_a_group_of_commits_alone_is_deleted_too(bench: CoordinatorBench) -> None:
    bench.store.group("library").commit({ORDERS: 3})

    assert delete(bench, "library") == {"library": ErrorCode.none}
    assert bench.store.group("library").committed() == {}


def test_a_commit_under_way_is_deleted_with_the_group(bench: CoordinatorBench) -> None:
    bench.commit("g", offset=1)
    bench.log.is_held = True
    committing = bench.commit("g", offset=2, partition=1)

    deleting = bench.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    bench.log.release()
    bench.scheduler.run_ready()

    assert commit_code(committing) is ErrorCode.none
    assert deleting.answer.results[0].error_code == ErrorCode.none
    assert bench.store.group("g").committed() == {}


def test_a_deletion_that_cannot_be_written_leaves_the_group(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": member}]})
    group = bench.coordinator.groups["billing"]
    bench.log.fail_with = ErrorCode.not_coordinator

    codes = delete(bench, "billing")

    assert codes == {"billing": ErrorCode.not_coordinator}
    assert bench.coordinator.groups["billing"] is group


def test_who_joins_while_the_group_is_deleted_begins_a_new_one(bench: CoordinatorBench) -> None:
    old = bench.stable()
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": old}]})
    bench.log.is_held = True
    deleting = bench.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["billing"]})

    member = bench.join().answer.member_id
    joined = bench.join(member=member)
    bench.log.is_held = False
    bench.log.release()
    bench.scheduler.run_ready()

    assert joined.answer.generation_id == 1
    assert deleting.answer.results[0].error_code == ErrorCode.none
    assert bench.heartbeat(member) is ErrorCode.none


def test_a_group_whose_failed_deletion_comes_too_late_is_stopped(bench: CoordinatorBench) -> None:
    old = bench.stable()
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": old}]})
    bench.join()
    deleted = bench.coordinator.groups["billing"]
    bench.log.is_held = True
    bench.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["billing"]})
    bench.join()

    bench.log.fail_with = ErrorCode.not_coordinator
    bench.log.release()
    bench.scheduler.run_ready()

    assert deleted.state_name == "Dead"
    assert bench.coordinator.groups["billing"].state_name == "Empty"


# --- expiry -------------------------------------------------------------------------------------


def tombstones(bench: CoordinatorBench) -> int:
    topic = bench.store.topic("__consumer_offsets")
    return sum(record.value is None for log in topic.partitions for record in log.read())


def test_offsets_nobody_needs_are_forgotten_by_themselves(bench: CoordinatorBench) -> None:
    bench.commit("old")
    bench.scheduler.advance(6 * 86_400)
    bench.commit("young")

    bench.scheduler.advance(86_400 + 700)

    assert bench.store.groups() == ["young"]
    assert tombstones(bench) == 1
    assert bench.restarted().store.groups() == ["young"]


def test_an_empty_group_goes_with_its_last_offset(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.commit(member_id=member, generation_id_or_member_epoch=1)
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": member}]})

    bench.scheduler.advance(3_600)
    stays = list(bench.coordinator.groups)
    bench.scheduler.advance(7 * 86_400)

    assert stays == ["billing"]
    assert bench.coordinator.groups == {}
    topic = bench.store.topic("__consumer_offsets")
    last = {record.key: record.value for record in topic.partition(0).read()}
    assert set(last.values()) == {None}
    kinds = {type(decode_group_key(key or b"")).__name__ for key in last}
    assert kinds == {"OffsetKey", "GroupMetadataKey"}


def test_an_empty_group_without_offsets_goes_at_the_next_look(bench: CoordinatorBench) -> None:
    member = bench.stable()
    bench.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "billing", "members": [{"member_id": member}]})

    bench.scheduler.advance(700)

    assert bench.coordinator.groups == {}
    assert bench.restarted().coordinator.groups == {}


def test_members_keep_their_group_and_its_offsets(bench: CoordinatorBench) -> None:
    member = bench.stable(session_timeout=1_800_000)
    bench.commit(member_id=member, generation_id_or_member_epoch=1)

    for _ in range(8 * 48):
        bench.scheduler.advance(1_799)
        assert bench.heartbeat(member) is ErrorCode.none

    assert bench.committed() == 5
    assert tombstones(bench) == 0


def test_a_group_of_the_other_kind_loses_what_it_no_longer_reads(bench: CoordinatorBench) -> None:
    bench.store.create_topic("returns")
    other = OtherGroup(members=1)
    other.topics = frozenset({"orders"})
    bench.coordinator.groups["billing"] = other
    for topic in ("orders", "returns"):
        bench.commit(topic=topic, generation_id_or_member_epoch=3, member_id="m")

    bench.scheduler.advance(8 * 86_400)

    assert bench.store.group("billing").committed() == {ORDERS: 5}


def test_an_expiry_chosen_by_an_old_client_is_kept(bench: CoordinatorBench) -> None:
    bench.commit("old", version=4, retention_time=1_800_000)

    bench.scheduler.advance(1_700)
    before = bench.store.groups()
    bench.scheduler.advance(1_200)

    assert before == ["old"]
    assert bench.store.groups() == []


def test_what_is_being_committed_does_not_expire(bench: CoordinatorBench) -> None:
    bench.commit("old")
    bench.scheduler.advance(7 * 86_400 - 100)
    bench.log.is_held = True
    bench.commit("old", offset=6)

    bench.scheduler.advance(700)
    bench.log.is_held = False
    bench.log.release()
    bench.scheduler.run_ready()

    assert bench.store.group("old").committed() == {ORDERS: 6}


def test_offsets_of_a_topic_that_came_again_go_at_the_next_look(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.commit()
    with monkeypatch.context() as patch:
        patch.setattr(bench.store.committed_offsets, "remove_topics", lambda names: None)
        bench.store.delete_topic("orders")
    bench.store.create_topic("orders")
    at_once = bench.committed()

    bench.scheduler.advance(700)

    assert at_once == -1
    assert bench.store.groups() == []


def test_many_groups_are_looked_through_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.broker.groups.coordinator._EXPIRY_SLICE", 10)
    bench = CoordinatorBench(config=GroupConfig(offsets_retention_ms=DAY_MS))
    for number in range(25):
        bench.store.group(f"g{number}").commit({ORDERS: 1})

    bench.scheduler.advance(2 * 86_400)

    assert bench.store.groups() == []
    assert bench.scheduler.timer_count == 1, "the next look is planned"


def test_offsets_that_cannot_be_opened_are_not_available_yet(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that was full when the broker started, for example."""

    def refuse(_group: str | None = None) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.coordinator.offsets, "is_current", refuse)
    codes: list[ErrorCode] = []

    def answer(code: ErrorCode) -> dict[str, object]:
        codes.append(code)
        return {}

    bench.coordinator.with_offsets(["billing"], answer)

    assert codes == [ErrorCode.coordinator_not_available]
