"""Brokers behind an address."""

import pytest

import cordwood
from cordwood.errors import (
    BrokerRefusedError,
    BrokerUnreachableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from cordwood.protocol.api_catalog import ApiKey
from cordwood.remote.remote_cluster import RemoteCluster, RemoteTopic
from cordwood.remote.wire_connection import WireConnection


def test_the_address_that_was_given_serves_a_single_broker() -> None:
    """What it says of itself may lead nowhere from here."""
    with (
        cordwood.Broker(config={"advertised.port": 1}, topics=["orders"]) as broker,
        RemoteCluster([(broker.host, broker.port)]) as cluster,
    ):
        [(connection, partitions)] = cluster.by_leader("orders", [0])

        assert connection.address == broker.bootstrap_servers
        assert partitions == [0]
        for found in (cluster.controller(), cluster.coordinator("g"), *cluster.everyone()):
            assert found is connection


def test_the_first_address_that_answers_is_taken() -> None:
    with (
        cordwood.Broker() as broker,
        RemoteCluster([("127.0.0.1", 1), (broker.host, broker.port)]) as cluster,
    ):
        assert cluster.address == broker.bootstrap_servers


def test_when_none_answers_the_first_is_named() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1: "):
        RemoteCluster([("127.0.0.1", 1), ("127.0.0.1", 2)])


def test_a_connection_that_broke_is_made_anew() -> None:
    with (
        cordwood.Broker(topics=["orders"]) as broker,
        RemoteCluster([(broker.host, broker.port)]) as cluster,
    ):
        assert sorted(cluster.describe()) == ["orders"]
        broker.restart()
        with pytest.raises(BrokerUnreachableError):
            cluster.describe()

        assert sorted(cluster.describe()) == ["orders"]


def test_topics_are_described_and_never_created_by_asking() -> None:
    with (
        cordwood.Broker(topics={"orders": 3}) as broker,
        RemoteCluster([(broker.host, broker.port)]) as cluster,
    ):
        described = cluster.topic("orders")
        assert described.topic_id == broker.store.topic("orders").topic_id
        assert described.partitions == [0, 1, 2]
        assert cluster.describe(["orders", "none"]) == {"orders": described}
        with pytest.raises(UnknownTopicError):
            cluster.topic("none")
        with pytest.raises(UnknownPartitionError, match="partitions 0 to 2, not 3"):
            cluster.by_leader("orders", [3])
        assert broker.store.topics() == ["orders"]


class SeveralBrokers:
    """Connections to brokers that are all the same one, and who was connected to."""

    def __init__(self, broker: cordwood.Broker) -> None:
        self._broker = broker
        self.addresses: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> WireConnection:
        self.addresses.append((host, port))
        return WireConnection(self._broker.host, self._broker.port)


def test_each_partition_is_asked_of_its_own_leader() -> None:
    with cordwood.Broker(topics={"orders": 3}) as broker:
        connect = SeveralBrokers(broker)
        with RemoteCluster([("first", 1)], connect=connect) as cluster:
            topic = cluster.topic("orders")
            cluster._brokers = {1: ("a", 9092), 2: ("b", 9092)}
            cluster._topics["orders"] = RemoteTopic(
                name="orders",
                topic_id=topic.topic_id,
                is_internal=False,
                leaders={0: 1, 1: 2, 2: 1},
            )

            found = cluster.by_leader("orders", [0, 1, 2])

            assert [partitions for _, partitions in found] == [[0, 2], [1]]
            assert connect.addresses == [("first", 1), ("a", 9092), ("b", 9092)]
            assert cluster.coordinator("g") is found[0][0]  # broker 1 keeps every group
            cluster._topics["orders"] = RemoteTopic(
                name="orders", topic_id=topic.topic_id, is_internal=False, leaders={0: -1}
            )
            with pytest.raises(BrokerRefusedError, match="it has no leader"):
                cluster.by_leader("orders", [0])
            with pytest.raises(BrokerUnreachableError, match="broker 9 is gone"):
                cluster.broker(9)


class SomeAreDown(SeveralBrokers):
    """As above; nobody listens at the addresses in `down`."""

    def __init__(self, broker: cordwood.Broker, down: set[str]) -> None:
        super().__init__(broker)
        self.down = down

    def __call__(self, host: str, port: int) -> WireConnection:
        if host in self.down:
            self.addresses.append((host, port))
            raise BrokerUnreachableError(f"{host}:{port}", "Connection refused")
        return super().__call__(host, port)


@pytest.mark.parametrize(
    ("down", "asked"),
    [
        (set(), ["home", "named"]),
        ({"named"}, ["home", "named"]),
        ({"named", "home"}, ["home", "named", "home", "other"]),
    ],
)
def test_a_change_goes_to_another_broker_if_the_named_one_is_gone(
    down: set[str], asked: list[str]
) -> None:
    with cordwood.Broker() as broker:
        connect = SomeAreDown(broker, set())
        with RemoteCluster([("home", 1)], connect=connect) as cluster:
            cluster.describe([])
            cluster._brokers = {1: ("named", 1), 2: ("other", 1)}
            cluster._controller = 1
            connect.down = down
            if "home" in down:
                cluster.anyone().close()

            assert not cluster.controller().is_broken

            assert [host for host, _ in connect.addresses] == asked


def test_a_broker_that_passes_changes_on_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With controllers of their own, the one that metadata names is any broker."""
    with cordwood.Broker() as broker:
        connect = SeveralBrokers(broker)
        with RemoteCluster([("home", 1)], connect=connect) as cluster:
            cluster.describe([])
            cluster._brokers = {1: ("named", 1), 2: ("other", 1)}
            cluster._controller = 1
            monkeypatch.setattr(
                WireConnection, "speaks", lambda _, api: api is ApiKey.DESCRIBE_QUORUM
            )

            assert cluster.controller() is cluster.anyone()
            assert connect.addresses == [("home", 1)]


def test_if_nobody_takes_a_change_the_first_who_was_asked_is_named() -> None:
    with cordwood.Broker() as broker:
        connect = SomeAreDown(broker, set())
        with RemoteCluster([("home", 1)], connect=connect) as cluster:
            cluster.describe([])
            cluster._brokers = {1: ("named", 1), 2: ("other", 1)}
            cluster._controller = 1
            connect.down = {"home", "named", "other"}
            cluster.anyone().close()

            with pytest.raises(BrokerUnreachableError, match="named:1"):
                cluster.controller()


@pytest.mark.parametrize(("failures", "is_served"), [(0, True), (3, True), (1000, False)])
def test_what_may_pass_is_tried_again_for_a_while(failures: int, is_served: bool) -> None:
    pauses: list[float] = []
    left = failures

    def attempt() -> str:
        nonlocal left
        if left:
            left -= 1
            raise BrokerRefusedError("read", "not_leader_or_follower")
        return "served"

    with (
        cordwood.Broker() as broker,
        RemoteCluster([(broker.host, broker.port)], pause=pauses.append) as cluster,
    ):
        if is_served:
            assert cluster.retried(attempt) == "served"
            assert len(pauses) == failures
        else:
            with pytest.raises(BrokerRefusedError):
                cluster.retried(attempt)
            assert 1 < len(pauses) < 100


def test_what_will_not_pass_is_raised_at_once() -> None:
    def attempt() -> None:
        raise BrokerRefusedError("read", "policy_violation")

    def no_pause(seconds: float) -> None:
        raise AssertionError(seconds)

    with (
        cordwood.Broker() as broker,
        RemoteCluster([(broker.host, broker.port)], pause=no_pause) as cluster,
        pytest.raises(BrokerRefusedError),
    ):
        cluster.retried(attempt)


def test_a_request_for_the_controller_goes_to_another_broker_if_it_is_dead() -> None:
    """The metadata may name a broker that died a moment ago."""
    with (
        cordwood.Broker() as broker,
        RemoteCluster([(broker.host, broker.port)]) as cluster,
    ):
        cluster.describe([])
        cluster._brokers = {1: (broker.host, broker.port), 2: ("127.0.0.1", 1)}
        cluster._controller = 2

        assert cluster.controller().address == broker.bootstrap_servers
