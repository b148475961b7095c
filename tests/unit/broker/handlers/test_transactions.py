"""The requests of transactional producers, in every version; ids for idempotent ones."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.requests.request import RunsOn
from cordwood.log.store.store import Store
from cordwood.log.transactions import transaction_machine
from cordwood.protocol.api_catalog import ApiKey
from fakes.client_batches import client_batch
from fakes.handler_calls import HandlerCalls, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store
from fakes.transaction_handlers import transaction_admin, transactions_handler

INIT = ApiKey.INIT_PRODUCER_ID
IDEMPOTENT: dict[str, Any] = {"transactional_id": None, "transaction_timeout": 60_000}


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Iterator[Store]:
    with open_store(fs) as store:
        yield store


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    store.create_topic("orders", partitions=2)
    return HandlerCalls(
        [
            transactions_handler(store),
            transaction_admin(store),
        ]
    )


@pytest.mark.parametrize("version", versions(INIT))
def test_every_producer_gets_a_number_of_its_own(call: HandlerCalls, version: int) -> None:
    answers = [call(INIT, IDEMPOTENT, version=version) for _ in range(3)]

    assert [answer.error_code for answer in answers] == [ErrorCode.none] * 3
    assert [answer.producer_epoch for answer in answers] == [0] * 3
    assert len({answer.producer_id for answer in answers}) == 3


def test_a_producer_that_asks_for_its_next_epoch_gets_another_number(call: HandlerCalls) -> None:
    first = call(INIT, IDEMPOTENT)

    again = call(
        INIT, {**IDEMPOTENT, "producer_id": first.producer_id, "producer_epoch": 0}, version=3
    )

    assert again.error_code == ErrorCode.none
    assert again.producer_id != first.producer_id


@pytest.mark.parametrize("half", [{"producer_id": 4}, {"producer_epoch": 4}])
def test_a_number_without_its_epoch_is_refused(call: HandlerCalls, half: dict[str, int]) -> None:
    answer = call(INIT, {**IDEMPOTENT, **half})

    assert answer.error_code == ErrorCode.invalid_request
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_without_a_disk_there_are_no_numbers(fs: SimulatedFileSystem, call: HandlerCalls) -> None:
    fs.fail_next("create", OSError(errno.EIO, "broken"))

    answer = call(INIT, IDEMPOTENT)
    again = call(INIT, IDEMPOTENT)

    assert (answer.error_code, answer.producer_id) == (ErrorCode.kafka_storage_error, -1)
    assert again.error_code == ErrorCode.none


def test_it_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert call.routes[INIT].runs_on is RunsOn.WORKER


# --- transactional producers -----------------------------------------------------------------

TRANSACTIONAL: dict[str, Any] = {"transactional_id": "billing", "transaction_timeout": 60_000}
ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN
PLACES = [{"name": "orders", "partitions": [0, 1]}]


def added(call: HandlerCalls, who: Any, topics: Any = None, version: int = 3) -> dict[Any, int]:
    request = {
        "v3_and_below_transactional_id": "billing",
        "v3_and_below_producer_id": who.producer_id,
        "v3_and_below_producer_epoch": who.producer_epoch,
        "v3_and_below_topics": PLACES if topics is None else topics,
    }
    answer = call(ADD, request, version=version)
    return {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }


def ended(call: HandlerCalls, who: Any, *, committed: bool = True, version: int = 4) -> Any:
    request = {
        "transactional_id": "billing",
        "producer_id": who.producer_id,
        "producer_epoch": who.producer_epoch,
        "committed": committed,
    }
    return call(END, request, version=version)


def only(codes: dict[Any, int]) -> int:
    (code,) = set(codes.values())
    return code


@pytest.mark.parametrize("version", versions(INIT))
def test_each_producer_of_an_id_gets_the_next_epoch(call: HandlerCalls, version: int) -> None:
    first, second = (call(INIT, TRANSACTIONAL, version=version) for _ in range(2))

    assert (first.error_code, first.producer_epoch) == (ErrorCode.none, 0)
    assert (second.error_code, second.producer_epoch) == (ErrorCode.none, 1)
    assert second.producer_id == first.producer_id


def test_an_empty_id_is_refused(call: HandlerCalls) -> None:
    assert call(INIT, {**TRANSACTIONAL, "transactional_id": ""}).error_code == (
        ErrorCode.invalid_request
    )


@pytest.mark.parametrize("timeout", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(call: HandlerCalls, timeout: int) -> None:
    answer = call(INIT, {**TRANSACTIONAL, "transaction_timeout": timeout})

    assert answer.error_code == ErrorCode.invalid_transaction_timeout


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.invalid_producer_epoch), (4, ErrorCode.producer_fenced)],
)
def test_old_clients_know_fencing_by_another_name(
    call: HandlerCalls, version: int, code: ErrorCode
) -> None:
    first = call(INIT, TRANSACTIONAL)
    call(INIT, TRANSACTIONAL)

    answer = call(
        INIT,
        {**TRANSACTIONAL, "producer_id": first.producer_id, "producer_epoch": 0},
        version=version,
    )

    assert answer.error_code == code


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_and_the_transaction_ends(call: HandlerCalls, version: int) -> None:
    who = call(INIT, TRANSACTIONAL)

    assert only(added(call, who, version=version)) == ErrorCode.none
    assert ended(call, who, version=version).error_code == ErrorCode.none
    assert ended(call, who, version=version).error_code == ErrorCode.none  # again
    assert ended(call, who, committed=False, version=version).error_code == (
        ErrorCode.invalid_txn_state
    )


def test_one_unknown_partition_refuses_all(call: HandlerCalls) -> None:
    who = call(INIT, TRANSACTIONAL)

    codes = added(
        call,
        who,
        [
            {"name": "orders", "partitions": [0, 9]},
            {"name": "nothing", "partitions": [0]},
            {"name": "__consumer_offsets", "partitions": [0]},
        ],
    )

    assert codes == {
        ("orders", 0): ErrorCode.operation_not_attempted,
        ("orders", 9): ErrorCode.unknown_topic_or_partition,
        ("nothing", 0): ErrorCode.unknown_topic_or_partition,
        ("__consumer_offsets", 0): ErrorCode.topic_authorization_failed,
    }


def add_to(call: HandlerCalls, identity: Any, topics: dict[str, list[int]]) -> Any:
    """Add partitions to the transaction of the id `billing`; their codes."""
    answer = call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "v3_and_below_transactional_id": "billing",
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.producer_epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": numbers} for name, numbers in topics.items()
            ],
        },
        version=3,
    )
    return {
        topic.name: {part.partition_error_code for part in topic.results_by_partition}
        for topic in answer.results_by_topic_v3_and_below
    }


def test_a_closed_topic_cannot_be_added(store: Store) -> None:
    for name in ("orders", "audit"):
        store.create_topic(name)
    call = HandlerCalls([transactions_handler(store, frozenset({"audit"}))])
    identity = call(INIT, {"transactional_id": "billing", "transaction_timeout": 60_000})

    codes = add_to(call, identity, {"orders": [0], "audit": [0]})

    assert codes == {
        "audit": {ErrorCode.invalid_topic_exception},
        "orders": {ErrorCode.operation_not_attempted},
    }
    found = store.transactions.find("billing")
    assert found is not None
    assert not found.partitions


def test_a_transaction_has_a_limit_of_partitions(
    call: HandlerCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_machine, "PARTITIONS_MAX", 1)
    identity = call(INIT, {"transactional_id": "billing", "transaction_timeout": 60_000})

    assert add_to(call, identity, {"orders": [0]}) == {"orders": {ErrorCode.none}}
    assert add_to(call, identity, {"orders": [0, 1]}) == {"orders": {ErrorCode.policy_violation}}


def test_ids_have_a_limit_of_memory(call: HandlerCalls, store: Store) -> None:
    budget = store.transactions._table.budget
    ask = {"transaction_timeout": 60_000}
    identity = call(INIT, {"transactional_id": "billing", **ask})
    budget.bytes_max = budget.used + 1500

    long = call(INIT, {"transactional_id": "x" * 30_000, **ask})
    short = call(INIT, {"transactional_id": "short", **ask})
    full = call(INIT, {"transactional_id": "another", **ask})
    again = call(INIT, {"transactional_id": "billing", **ask})

    assert identity.error_code == short.error_code == again.error_code == ErrorCode.none
    assert long.error_code == full.error_code == ErrorCode.policy_violation
    assert store.transactions.find("another") is None


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.invalid_producer_epoch), (3, ErrorCode.producer_fenced)],
)
def test_an_earlier_producer_is_fenced(call: HandlerCalls, version: int, code: ErrorCode) -> None:
    first = call(INIT, TRANSACTIONAL)
    call(INIT, TRANSACTIONAL)

    assert only(added(call, first, version=version)) == code
    assert ended(call, first, version=version).error_code == code


def test_version_5_of_the_end_gives_the_next_epoch(call: HandlerCalls) -> None:
    who = call(INIT, TRANSACTIONAL)
    added(call, who)

    first, again = (ended(call, who, version=5) for _ in range(2))

    for answer in (first, again):
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            ErrorCode.none,
            who.producer_id,
            1,
        )


def test_brokers_add_and_verify_for_several_transactions(call: HandlerCalls) -> None:
    who = call(INIT, TRANSACTIONAL)

    def transaction(number: int, *, verify_only: bool) -> dict[str, Any]:
        return {
            "transactional_id": "billing",
            "producer_id": who.producer_id,
            "producer_epoch": who.producer_epoch,
            "verify_only": verify_only,
            "topics": [{"name": "orders", "partitions": [number]}],
        }

    answer = call(
        ADD,
        {
            "transactions": [
                transaction(0, verify_only=False),
                transaction(0, verify_only=True),
                transaction(1, verify_only=True),
            ]
        },
    )

    codes = [
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    ]
    assert codes == [ErrorCode.none, ErrorCode.none, ErrorCode.transaction_abortable]


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_offsets_are_added(call: HandlerCalls, store: Store, version: int) -> None:
    who = call(INIT, TRANSACTIONAL)
    request = {
        "transactional_id": "billing",
        "producer_id": who.producer_id,
        "producer_epoch": who.producer_epoch,
        "group_id": "group",
    }

    assert call(ApiKey.ADD_OFFSETS_TO_TXN, request, version=version).error_code == ErrorCode.none
    refused = call(ApiKey.ADD_OFFSETS_TO_TXN, {**request, "group_id": ""}, version=version)
    assert refused.error_code == ErrorCode.invalid_group_id
    metadata = store.transactions.find("billing")
    assert metadata is not None
    assert metadata.partitions == {("__consumer_offsets", 0)}


# --- tools -----------------------------------------------------------------------------------


def test_a_transaction_is_described(call: HandlerCalls) -> None:
    who = call(INIT, TRANSACTIONAL)
    added(call, who)

    answer = call(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["billing", "other", ""]})

    billing, other, empty = answer.transaction_states
    assert (billing.error_code, billing.transaction_state) == (ErrorCode.none, "Ongoing")
    assert (billing.producer_id, billing.producer_epoch) == (who.producer_id, 0)
    assert [(t.topic, list(t.partitions)) for t in billing.topics] == [("orders", [0, 1])]
    assert other.error_code == ErrorCode.transactional_id_not_found
    assert empty.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("filters", "listed"),
    [
        ({}, ["billing", "other"]),
        ({"state_filters": ["Ongoing"]}, ["billing"]),
        ({"state_filters": ["Empty", "Nonsense"]}, ["other"]),
        ({"producer_id_filters": [999]}, []),
        ({"duration_filter": 0}, []),
        ({"transactional_id_pattern": "bill.*"}, ["billing"]),
        ({"transactional_id_pattern": "bill"}, []),
        ({"transactional_id_pattern": ""}, ["billing", "other"]),
    ],
)
def test_transactions_are_listed(
    call: HandlerCalls, filters: dict[str, Any], listed: list[str]
) -> None:
    added(call, call(INIT, TRANSACTIONAL))
    call(INIT, {**TRANSACTIONAL, "transactional_id": "other"})

    answer = call(ApiKey.LIST_TRANSACTIONS, filters)

    assert [found.transactional_id for found in answer.transaction_states] == listed
    assert list(answer.unknown_state_filters) == [
        name for name in filters.get("state_filters", []) if name == "Nonsense"
    ]


def test_a_pattern_that_is_none_is_refused(call: HandlerCalls) -> None:
    answer = call(ApiKey.LIST_TRANSACTIONS, {"transactional_id_pattern": "("})

    assert answer.error_code == ErrorCode.invalid_regular_expression


@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
def test_a_hanging_transaction_is_found_and_ended_by_force(
    call: HandlerCalls, store: Store, version: int
) -> None:
    log = store.topic("orders").partition(0)
    log.batches.append_batch(client_batch(b"x", producer_id=77, sequence=0, transactional=True))
    place = {"topics": [{"name": "orders", "partition_indexes": [0, 9]}]}

    described = call(ApiKey.DESCRIBE_PRODUCERS, place).topics[0].partitions
    marker = {
        "producer_id": 77,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        **place,
    }
    written = call(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, version=version).markers[0]

    assert [(p.producer_id, p.current_txn_start_offset) for p in described[0].active_producers] == [
        (77, 0)
    ]
    assert described[1].error_code == ErrorCode.unknown_topic_or_partition
    assert [p.error_code for p in written.topics[0].partitions] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert log.last_stable_offset == log.high_watermark == 2


def test_a_marker_with_an_old_epoch_is_refused(call: HandlerCalls, store: Store) -> None:
    log = store.topic("orders").partition(0)
    log.batches.append_batch(
        client_batch(b"x", producer_id=77, producer_epoch=3, sequence=0, transactional=True)
    )
    marker = {
        "producer_id": 77,
        "producer_epoch": 2,
        "topics": [{"name": "orders", "partition_indexes": [0]}],
    }

    written = call(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}).markers[0]

    assert written.topics[0].partitions[0].error_code == ErrorCode.invalid_producer_epoch
    assert log.last_stable_offset == 0
