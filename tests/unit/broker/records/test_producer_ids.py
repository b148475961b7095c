"""InitProducerId: a number for each producer, and no transactions."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.producer_ids import ProducerIdsHandler
from cordwood.broker.net.request import RunsOn
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from fakes.handler_calls import HandlerCalls, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

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
    return HandlerCalls([ProducerIdsHandler(store.producer_ids)])


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


@pytest.mark.parametrize("version", versions(INIT))
@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("tx", ErrorCode.transactional_id_authorization_failed), ("", ErrorCode.invalid_request)],
)
def test_transactions_are_refused(
    call: HandlerCalls, version: int, transactional_id: str, code: int
) -> None:
    request = {**IDEMPOTENT, "transactional_id": transactional_id}

    answer = call(INIT, request, version=version)

    assert (answer.error_code, answer.producer_id) == (code, -1)


def test_without_a_disk_there_are_no_numbers(fs: SimulatedFileSystem, call: HandlerCalls) -> None:
    fs.fail_next("create", OSError(errno.EIO, "broken"))

    answer = call(INIT, IDEMPOTENT)
    again = call(INIT, IDEMPOTENT)

    assert (answer.error_code, answer.producer_id) == (ErrorCode.kafka_storage_error, -1)
    assert again.error_code == ErrorCode.none


def test_it_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert call.routes[INIT].runs_on is RunsOn.WORKER
