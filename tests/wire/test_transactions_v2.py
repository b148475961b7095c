"""Transactions of version 2 (KIP-890), request by request; and version 1 beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch
from wire.raw_client import RawClient
from wire.record_requests import (
    Wanted,
    fetch,
    fetch_body,
    produce_body,
    receive_fetched,
    receive_produced,
)
from wire.waiting import await_waiting_fetches

V1, V2 = 11, 12  # of Produce: the last of the old way, the first of the new


@dataclass
class TransactionalClient:
    """A producer that does what it is told."""

    client: RawClient
    id: str
    producer_id: int = -1
    epoch: int = -1

    def init(self) -> None:
        answer = self.client.call(
            ApiKey.INIT_PRODUCER_ID,
            5,
            {"transactional_id": self.id, "transaction_timeout": 60_000},
        )
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def send_produce(
        self,
        topic: str,
        *values: bytes,
        sequence: int = 0,
        epoch: int | None = None,
        version: int = V2,
        partition: int = 0,
    ) -> None:
        batch = client_batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
        )
        body = produce_body(version, [(topic, partition, bytes(batch))], transactional_id=self.id)
        self.client.send(ApiKey.PRODUCE, version, body)

    def produced(self, version: int = V2) -> ErrorCode:
        (answer,) = receive_produced(self.client, version).responses
        return ErrorCode(answer.partition_responses[0].error_code)

    def produce(self, topic: str, *values: bytes, **how: Any) -> ErrorCode:
        self.send_produce(topic, *values, **how)
        return self.produced(how.get("version", V2))

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        answer = self.client.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": self.id,
                "v3_and_below_producer_id": self.producer_id,
                "v3_and_below_producer_epoch": self.epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
            },
        )
        (result,) = answer.results_by_topic_v3_and_below
        return ErrorCode(result.results_by_partition[0].partition_error_code)

    def send_end(self, *, commit: bool, epoch: int | None = None, version: int = 5) -> Any:
        answer = self.client.call(
            ApiKey.END_TXN,
            version,
            {
                "transactional_id": self.id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch if epoch is None else epoch,
                "committed": commit,
            },
        )
        return answer

    def end(self, *, commit: bool = True, version: int = 5) -> ErrorCode:
        answer = self.send_end(commit=commit, version=version)
        if not answer.error_code and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 5) -> ErrorCode:
        answer = self.client.call(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            {
                "transactional_id": self.id,
                "group_id": group,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": 0, "committed_offset": offset}],
                    }
                ],
            },
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def client(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def writer(client: RawClient, names: Iterator[str]) -> TransactionalClient:
    made = TransactionalClient(client, next(names))
    made.init()
    return made


def committed(broker: cordwood.Broker, topic: str) -> list[bytes | None]:
    log = broker.store.topic(topic).partition(0)
    return [record.value for record in log.read(isolation="read_committed")]


def test_the_broker_says_that_it_serves_version_2(client: RawClient) -> None:
    answer = client.call(
        ApiKey.API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"}
    )
    old = client.call(
        ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}
    )

    assert ("transaction.version", 0, 2) in [
        (f.name, f.min_version, f.max_version) for f in answer.supported_features
    ]
    for told in (answer, old):
        assert ("transaction.version", 2, 2) in [
            (f.name, f.min_version_level, f.max_version_level) for f in told.finalized_features
        ]
    assert old.supported_features == ()


def test_a_produce_adds_its_partition(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    assert writer.produce(topic, b"a", b"b") is ErrorCode.none
    assert writer.produce(topic, b"c", sequence=2) is ErrorCode.none
    assert committed(broker, topic) == []
    assert writer.end() is ErrorCode.none

    assert writer.epoch == 1
    assert writer.produce(topic, b"d") is ErrorCode.none
    assert writer.end(commit=False) is ErrorCode.none
    assert writer.produce(topic, b"e") is ErrorCode.none
    assert writer.end() is ErrorCode.none
    assert writer.epoch == 3
    assert writer.produce(topic, b"-") is ErrorCode.none  # waits for the markers of the last
    assert committed(broker, topic) == [b"a", b"b", b"c", b"e"]


def test_many_transactions_follow_each_other_without_a_retry(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    for number in range(50):
        assert writer.produce(topic, b"%d" % number) is ErrorCode.none
        assert writer.end() is ErrorCode.none

    writer.init()
    assert committed(broker, topic) == [b"%d" % number for number in range(50)]


def test_an_old_client_must_add_the_partition_before(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    refused = writer.produce(topic, b"a", version=V1)
    older = writer.produce(topic, b"a", version=9)
    assert writer.add(topic) is ErrorCode.none

    assert refused is ErrorCode.transaction_abortable
    assert older is ErrorCode.invalid_txn_state
    assert writer.produce(topic, b"b", version=V1) is ErrorCode.none
    assert writer.end(version=4) is ErrorCode.none
    writer.init()
    assert committed(broker, topic) == [b"b"]


def test_a_batch_does_not_overtake_one_that_must_be_sent_again(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    """Otherwise the first one would be out of sequence whenever it is sent again."""
    refused = writer.produce(topic, b"a", version=V1)
    assert writer.add(topic) is ErrorCode.none

    early = writer.produce(topic, b"b", version=V1, sequence=1)

    assert refused is ErrorCode.transaction_abortable
    assert early is ErrorCode.out_of_order_sequence_number
    assert writer.produce(topic, b"a", version=V1) is ErrorCode.none
    assert writer.produce(topic, b"b", version=V1, sequence=1) is ErrorCode.none
    assert writer.end(version=4) is ErrorCode.none
    writer.init()
    assert committed(broker, topic) == [b"a", b"b"]


def test_a_delayed_batch_of_an_ended_transaction_is_refused(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    """The hole of version 1 that Jepsen found: here it would join the next transaction."""
    assert writer.produce(topic, b"a") is ErrorCode.none
    assert writer.end() is ErrorCode.none
    assert writer.produce(topic, b"b") is ErrorCode.none

    late = writer.produce(topic, b"late", sequence=1, epoch=0)

    assert late is ErrorCode.invalid_producer_epoch
    assert writer.end() is ErrorCode.none
    writer.init()
    assert committed(broker, topic) == [b"a", b"b"]


def test_a_repeated_end_does_not_end_the_next_transaction(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    writer.produce(topic, b"a")
    assert writer.end() is ErrorCode.none
    again = writer.send_end(commit=True, epoch=0)
    writer.produce(topic, b"b")

    late = writer.send_end(commit=True, epoch=0)

    assert (again.error_code, again.producer_epoch) == (ErrorCode.none, 1)
    assert late.error_code == ErrorCode.producer_fenced
    assert writer.end(commit=False) is ErrorCode.none
    writer.init()
    assert committed(broker, topic) == [b"a"]


def test_a_fenced_producer_writes_nothing(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    writer.produce(topic, b"a")
    second = TransactionalClient(writer.client, writer.id)

    second.init()

    assert second.epoch == 2  # one for the abort, one for itself
    assert writer.produce(topic, b"b", sequence=1) is ErrorCode.invalid_producer_epoch
    assert writer.send_end(commit=True).error_code == ErrorCode.producer_fenced
    assert second.produce(topic, b"c") is ErrorCode.none
    assert second.end() is ErrorCode.none
    second.init()
    assert committed(broker, topic) == [b"c"]


def test_an_abort_of_nothing_gives_the_next_epoch(writer: TransactionalClient) -> None:
    assert writer.end(commit=False) is ErrorCode.none
    assert writer.epoch == 1
    assert writer.end(commit=True) is ErrorCode.invalid_txn_state


def test_the_first_batch_of_a_transaction_must_have_sequence_0(
    writer: TransactionalClient, topic: str
) -> None:
    assert writer.produce(topic, b"a", sequence=3) is ErrorCode.out_of_order_sequence_number


def test_batches_of_two_producers_in_one_request_are_refused(
    writer: TransactionalClient, topic: str
) -> None:
    parts = [
        (topic, 0, bytes(client_batch(b"x", producer_id=pid, sequence=0, transactional=True)))
        for pid in (writer.producer_id, writer.producer_id + 1)
    ]
    writer.client.send(ApiKey.PRODUCE, 9, produce_body(9, parts, transactional_id=writer.id))

    codes = {
        part.error_code
        for answer in receive_produced(writer.client, 9).responses
        for part in answer.partition_responses
    }
    assert codes == {ErrorCode.invalid_producer_id_mapping}


# --- offsets ---------------------------------------------------------------------------------


def fetched_offset(client: RawClient, group: str, topic: str, *, stable: bool) -> tuple[int, int]:
    answer = client.call(
        ApiKey.OFFSET_FETCH,
        9,
        {
            "groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
            "require_stable": stable,
        },
    )
    part = answer.groups[0].topics[0].partitions[0]
    return part.committed_offset, part.error_code


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_pending_offset_is_unstable_until_the_end(
    writer: TransactionalClient, topic: str, names: Iterator[str], is_commit: bool
) -> None:
    group, client = next(names), writer.client
    assert writer.commit_offset(group, topic, 3) is ErrorCode.none
    assert writer.end() is ErrorCode.none

    assert writer.commit_offset(group, topic, 7) is ErrorCode.none
    unstable = fetched_offset(client, group, topic, stable=True)
    old = fetched_offset(client, group, topic, stable=False)
    assert writer.end(commit=is_commit) is ErrorCode.none
    writer.init()

    assert unstable == (-1, ErrorCode.unstable_offset_commit)
    assert old == (3, ErrorCode.none)
    expected = 7 if is_commit else 3
    assert fetched_offset(client, group, topic, stable=True) == (expected, ErrorCode.none)


def test_an_old_client_must_add_the_group_before(
    writer: TransactionalClient, topic: str, names: Iterator[str]
) -> None:
    group = next(names)
    refused = writer.commit_offset(group, topic, 3, version=4)
    older = writer.commit_offset(group, topic, 3, version=3)
    answer = writer.client.call(
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        {
            "transactional_id": writer.id,
            "producer_id": writer.producer_id,
            "producer_epoch": writer.epoch,
            "group_id": group,
        },
    )

    assert refused is ErrorCode.transaction_abortable
    assert older is ErrorCode.invalid_txn_state
    assert answer.error_code == ErrorCode.none
    assert writer.commit_offset(group, topic, 3, version=4) is ErrorCode.none


def test_deleting_a_group_deletes_its_pending_offsets(
    writer: TransactionalClient, topic: str, names: Iterator[str]
) -> None:
    group, client = next(names), writer.client
    assert writer.commit_offset(group, topic, 7) is ErrorCode.none

    deleted = client.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})
    assert writer.end() is ErrorCode.none
    writer.init()

    assert deleted.results[0].error_code == ErrorCode.none
    assert fetched_offset(client, group, topic, stable=True) == (-1, ErrorCode.none)


# --- reading ---------------------------------------------------------------------------------


def test_a_waiting_fetch_of_committed_records_is_woken_by_the_marker(
    broker: cordwood.Broker, writer: TransactionalClient, topic: str
) -> None:
    writer.produce(topic, b"a")
    with RawClient(broker.bootstrap_servers) as reader:
        reader.send(
            ApiKey.FETCH,
            12,
            fetch_body(12, [Wanted(topic=topic)], max_wait_ms=60_000, isolation_level=1),
        )
        await_waiting_fetches(broker, 1)

        assert writer.end() is ErrorCode.none

        (answer,) = receive_fetched(reader, 12).responses
        (part,) = answer.partitions
        assert part.records


def test_aborted_transactions_are_listed_in_the_order_of_their_first_offsets(
    broker: cordwood.Broker, client: RawClient, topic: str, names: Iterator[str]
) -> None:
    writers = [TransactionalClient(client, next(names)) for _ in range(3)]
    for writer in writers:
        writer.init()
        assert writer.produce(topic, b"x") is ErrorCode.none
    for writer in reversed(writers):
        assert writer.end(commit=False) is ErrorCode.none
        writer.init()

    (answer,) = fetch(client, [Wanted(topic=topic)], isolation_level=1).responses

    (part,) = answer.partitions
    assert [found.first_offset for found in part.aborted_transactions] == [0, 1, 2]
    assert [found.producer_id for found in part.aborted_transactions] == [
        writer.producer_id for writer in writers
    ]


def test_both_generations_write_to_one_partition(
    broker: cordwood.Broker, client: RawClient, topic: str, names: Iterator[str]
) -> None:
    old, new = (TransactionalClient(client, next(names)) for _ in range(2))
    old.init()
    new.init()

    for number in range(10):
        assert old.add(topic) is ErrorCode.none
        assert old.produce(topic, b"old", version=V1, sequence=number) is ErrorCode.none
        assert new.produce(topic, b"new") is ErrorCode.none
        assert new.end(commit=number % 2 == 0) is ErrorCode.none
        assert old.end(commit=number % 2 == 1, version=4) is ErrorCode.none

    old.init()
    new.init()
    assert committed(broker, topic) == [b"new", b"old"] * 5
