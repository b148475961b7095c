"""ListOffsets and OffsetForLeaderEpoch: times, ends and epochs of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.list_offsets import ListOffsetsHandler
from cordwood.broker.net.requests.request import RunsOn
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.archived_store import ArchivedStore
from fakes.client_batches import client_batch, marker_batch
from fakes.handler_calls import HandlerCalls, at_once, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, log_of, open_store

OFFSETS = ApiKey.LIST_OFFSETS
EPOCHS = ApiKey.OFFSET_FOR_LEADER_EPOCH
LATEST, EARLIEST, MAX_TIME, LOCAL, ARCHIVED, PENDING = range(-1, -7, -1)
NOW = 1_700_000_000_000
NOWHERE = (ErrorCode.none, -1, -1, -1)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(SimulatedFileSystem()) as store:
        store.create_topic(TOPIC, partitions=2)
        yield store


def client(store: Store) -> HandlerCalls:
    return HandlerCalls([ListOffsetsHandler(PartitionTable(store), at_once)])


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    return client(store)


def fill(store: Store, *times: int, epoch: int | None = None) -> None:
    """A record for each time, so many after NOW."""
    for time in times:
        batch = client_batch(b"v", timestamps=[NOW + time])
        log_of(store).batches.append_batch(batch, leader_epoch=epoch)


def ask(
    call: HandlerCalls,
    time: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    epoch: int = -1,
    isolation: int = 0,
    version: int | None = None,
) -> tuple[int, int, int, int]:
    """Code, time, offset and leader epoch."""
    wanted = {"partition_index": partition, "timestamp": time, "current_leader_epoch": epoch}
    request = {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": topic, "partitions": [wanted]}],
    }
    [answer] = call(OFFSETS, request, version=version).topics
    [found] = answer.partitions
    assert (answer.name, found.partition_index) == (topic, partition)
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


# --- places -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(OFFSETS))
def test_ends_and_times_are_found_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    fill(store, 0, 10, 20)
    log_of(store).delete_before(1)
    epoch = 0 if version >= 4 else -1

    assert ask(call, LATEST, version=version) == (ErrorCode.none, -1, 3, epoch)
    assert ask(call, EARLIEST, version=version) == (ErrorCode.none, -1, 1, epoch)
    assert ask(call, NOW + 11, version=version) == (ErrorCode.none, NOW + 20, 2, epoch)


def test_a_time_finds_the_first_record_then_or_later(call: HandlerCalls, store: Store) -> None:
    fill(store, 0, 20, 10, 30)

    assert [ask(call, NOW + time)[2] for time in (-5, 0, 5, 15, 20, 21, 30, 31)] == [
        0,
        0,
        1,
        1,
        1,
        3,
        3,
        -1,
    ]


def test_a_time_past_the_last_record_is_nowhere(call: HandlerCalls, store: Store) -> None:
    fill(store, 0)

    assert ask(call, NOW + 1) == NOWHERE


def test_an_empty_log_begins_and_ends_at_zero(call: HandlerCalls) -> None:
    assert ask(call, LATEST)[:3] == (ErrorCode.none, -1, 0)
    assert ask(call, EARLIEST)[:3] == (ErrorCode.none, -1, 0)
    assert ask(call, 0) == NOWHERE
    assert ask(call, MAX_TIME) == NOWHERE


def test_the_largest_time_need_not_be_the_last(call: HandlerCalls, store: Store) -> None:
    fill(store, 0, 50, 20)

    assert ask(call, MAX_TIME) == (ErrorCode.none, NOW + 50, 1, 0)


def test_without_an_archive_all_is_local_and_nothing_archived(
    call: HandlerCalls, store: Store
) -> None:
    fill(store, 0, 1)

    assert ask(call, LOCAL)[2] == 0
    assert ask(call, ARCHIVED) == NOWHERE
    assert ask(call, PENDING) == NOWHERE


def test_with_an_archive_each_part_has_its_ends() -> None:
    archived = ArchivedStore(SimulatedFileSystem())
    with archived.store as store:
        archived.create()
        archived.append(8)
        archived.archive_and_drop()
        call = client(store)

        found = {time: ask(call, time)[2] for time in (EARLIEST, LOCAL, ARCHIVED, PENDING, LATEST)}

    assert found == {EARLIEST: 0, LOCAL: 6, ARCHIVED: 5, PENDING: 6, LATEST: 8}


@pytest.mark.parametrize(
    ("time", "version"),
    [(MAX_TIME, 6), (LOCAL, 7), (ARCHIVED, 8), (PENDING, 10), (-7, 11), (-(2**63), 11)],
)
def test_a_time_the_version_has_no_meaning_for_is_refused(
    call: HandlerCalls, time: int, version: int
) -> None:
    assert ask(call, time, version=version)[0] == ErrorCode.unsupported_version


def test_an_open_transaction_is_the_end_for_those_who_read_committed(
    call: HandlerCalls, store: Store
) -> None:
    fill(store, 0)
    open_one = client_batch(
        b"v", timestamps=[NOW + 5], producer_id=9, sequence=0, transactional=True
    )
    log_of(store).batches.append_batch(open_one)

    assert ask(call, LATEST)[2] == 2
    assert ask(call, LATEST, isolation=1)[2] == 1
    assert ask(call, NOW + 3)[2] == 1
    assert ask(call, NOW + 3, isolation=1) == NOWHERE
    assert ask(call, MAX_TIME, isolation=1) == NOWHERE


def test_a_transaction_that_ended_moves_the_end_for_them_too(
    call: HandlerCalls, store: Store
) -> None:
    log = log_of(store)
    log.batches.append_batch(client_batch(b"v", producer_id=9, sequence=0, transactional=True))
    marker = MarkerFacts(
        producer_id=ProducerId(9),
        producer_epoch=0,
        coordinator_epoch=0,
        offset=Offset(1),
        timestamp=TimestampMs(NOW),
        is_abort=False,
    )
    log.batches.append_marker(marker_batch(9), marker)

    assert ask(call, LATEST, isolation=1)[2] == 2


# --- who is asked -------------------------------------------------------------------------------


def test_partitions_that_are_not_there(call: HandlerCalls) -> None:
    assert ask(call, LATEST, topic="nope")[0] == ErrorCode.unknown_topic_or_partition
    assert ask(call, LATEST, partition=2)[0] == ErrorCode.unknown_topic_or_partition
    assert ask(call, LATEST, partition=-1)[0] == ErrorCode.unknown_topic_or_partition


def test_a_partition_whose_files_are_gone_is_told_as_such() -> None:
    fs = SimulatedFileSystem()
    with open_store(fs) as before:
        before.create_topic(TOPIC, partitions=2).append(b"x", partition=1)
    fs.remove_tree(f"{DATA}/{TOPIC}-1")

    with open_store(fs) as store:
        code, *_ = ask(client(store), LATEST, partition=1)

    assert code == ErrorCode.kafka_storage_error


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.none),
        (3, ErrorCode.none),
        (2, ErrorCode.fenced_leader_epoch),
        (4, ErrorCode.unknown_leader_epoch),
    ],
)
def test_a_client_of_another_epoch_is_told_so(
    call: HandlerCalls, store: Store, epoch: int, code: int
) -> None:
    fill(store, 0, epoch=3)

    assert ask(call, LATEST, epoch=epoch)[0] == code
    [found] = ask_epochs(call, 3, current=epoch)
    assert found[0] == code


def test_a_partition_named_twice_is_refused(call: HandlerCalls) -> None:
    wanted = {"partition_index": 0, "timestamp": LATEST}
    request = {"topics": [{"name": TOPIC, "partitions": [wanted, wanted]}]}

    [topic] = call(OFFSETS, request).topics

    assert [p.error_code for p in topic.partitions] == [ErrorCode.invalid_request] * 2


def test_each_partition_is_answered_for_itself(call: HandlerCalls, store: Store) -> None:
    fill(store, 0)
    partitions = [{"partition_index": n, "timestamp": LATEST} for n in (0, 5, 1)]

    [topic] = call(OFFSETS, {"topics": [{"name": TOPIC, "partitions": partitions}]}).topics

    assert [(p.partition_index, p.error_code, p.offset) for p in topic.partitions] == [
        (0, ErrorCode.none, 1),
        (5, ErrorCode.unknown_topic_or_partition, -1),
        (1, ErrorCode.none, 0),
    ]


def test_offsets_carry_the_epoch_that_wrote_them(call: HandlerCalls, store: Store) -> None:
    fill(store, 0, epoch=0)
    fill(store, 10, epoch=4)

    assert ask(call, EARLIEST)[2:] == (0, 0)
    assert ask(call, NOW + 5)[2:] == (1, 4)
    assert ask(call, LATEST)[2:] == (2, 4)


# --- OffsetForLeaderEpoch -----------------------------------------------------------------------


def ask_epochs(
    call: HandlerCalls, *epochs: int, current: int = -1, version: int | None = None
) -> list[tuple[int, int, int]]:
    """Code, epoch and end offset."""
    partitions: list[dict[str, Any]] = [
        {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current} for epoch in epochs
    ]
    request = {"topics": [{"topic": TOPIC, "partitions": partitions}]}
    answer: Fields = call(EPOCHS, request, version=version)
    [topic] = answer.topics
    assert topic.topic == TOPIC
    return [(p.error_code, p.leader_epoch, p.end_offset) for p in topic.partitions]


@pytest.mark.parametrize("version", versions(EPOCHS))
def test_an_epoch_ends_where_the_next_begins(
    call: HandlerCalls, store: Store, version: int
) -> None:
    fill(store, 0, 1, epoch=0)
    fill(store, 2, epoch=3)

    found = ask_epochs(call, 0, 1, 3, 4, -1, version=version)

    assert found == [
        (ErrorCode.none, 0, 2),
        (ErrorCode.none, 0, 2),
        (ErrorCode.none, 3, 3),
        (ErrorCode.none, -1, -1),
        (ErrorCode.none, -1, -1),
    ]


def test_an_epoch_of_a_partition_that_is_not_there(call: HandlerCalls) -> None:
    request = {"topics": [{"topic": "nope", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}

    [topic] = call(EPOCHS, request).topics

    [partition] = topic.partitions
    assert partition.error_code == ErrorCode.unknown_topic_or_partition
    assert (partition.leader_epoch, partition.end_offset) == (-1, -1)


def test_only_looking_up_times_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert call.routes[OFFSETS].runs_on is RunsOn.WORKER
    assert call.routes[EPOCHS].runs_on is RunsOn.ANYWHERE
