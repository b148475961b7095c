"""Changes of groups that come through the inbox of a broker's store."""

from collections.abc import Iterator

import pytest

import cordwood
from cordwood.errors import ChangeRefusedError
from cordwood.library import request_change
from cordwood.log.inbox.store_change import CommitGroup
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.protocol.api_catalog import ApiKey
from wire.raw_client import RawClient


@pytest.fixture
def broker() -> Iterator[cordwood.Broker]:
    with cordwood.Broker(topics={"orders": 2}) as running:
        yield running


@pytest.fixture
def member(broker: cordwood.Broker) -> Iterator[None]:
    """Someone is in the group "billing"."""
    with RawClient(broker.bootstrap_servers) as client:
        joining = {
            "group_id": "billing",
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        first = client.call(ApiKey.JOIN_GROUP, 9, joining)
        joined = client.call(ApiKey.JOIN_GROUP, 9, {**joining, "member_id": first.member_id})
        assert joined.error_code == 0
        yield


def ask(broker: cordwood.Broker, change: CommitGroup | ForgetGroup) -> None:
    request_change(broker.data_dir, change)


def test_offsets_are_committed_and_forgotten(broker: cordwood.Broker) -> None:
    offsets = {("orders", 0): (3, "note"), ("orders", 1): (0, "")}
    ask(broker, CommitGroup(group="billing", offsets=offsets))
    details = broker.store.group("billing").details()
    assert {place: (c.offset, c.metadata) for place, c in details.items()} == offsets
    assert {c.topic_id for c in details.values()} == {broker.store.topic("orders").topic_id}

    ask(broker, ForgetGroup(group="billing", places=(("orders", 1), ("orders", 7))))
    assert broker.store.group("billing").committed() == {("orders", 0): 3}

    ask(broker, ForgetGroup(group="billing", places=(("orders", 1),)))
    ask(broker, ForgetGroup(group="billing"))
    assert broker.store.groups() == []


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize(
    "change",
    [
        CommitGroup(group="billing", offsets={("orders", 0): (3, "")}),
        ForgetGroup(group="billing"),
        ForgetGroup(group="billing", places=(("orders", 0),)),
    ],
)
def test_a_group_with_members_stays_as_it_is(
    broker: cordwood.Broker, change: CommitGroup | ForgetGroup
) -> None:
    with pytest.raises(ChangeRefusedError, match="group billing has members: stop them first"):
        ask(broker, change)

    assert broker.store.group("billing").committed() == {}


def test_a_group_that_is_not_there_cannot_be_deleted(broker: cordwood.Broker) -> None:
    with pytest.raises(ChangeRefusedError, match="no group named 'none'"):
        ask(broker, ForgetGroup(group="none"))


def test_a_broker_that_has_just_started_is_waited_for(broker: cordwood.Broker) -> None:
    broker.restart()

    ask(broker, CommitGroup(group="billing", offsets={("orders", 0): (3, "")}))

    assert broker.store.group("billing").committed("orders", 0) == 3


def test_a_store_goes_its_own_way_when_its_broker_has_gone(broker: cordwood.Broker) -> None:
    server, store = broker._running(), broker.store
    server._owns_store = False
    server.stop()
    try:
        ask(broker, CommitGroup(group="billing", offsets={("orders", 0): (3, "")}))

        assert store.group("billing").committed("orders", 0) == 3
    finally:
        store.close()
