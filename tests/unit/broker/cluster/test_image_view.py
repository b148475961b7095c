"""What clients of a cluster are told, from what the controllers have decided."""

from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.broker.cluster.image_view import ImageView
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import BrokerAddress, CoordinatorKind
from cordwood.cluster.image.broker_image import BrokerImage, Endpoint
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.cluster.image.partition_image import NO_LEADER, PartitionImage
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch

ORDERS = UUID(int=1)
OFFSETS = UUID(int=2)
HERE = ClientListener(name="EXTERNAL", host="unused", port=1)


def broker(node_id: int, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        node_id=node_id,
        epoch=node_id,
        incarnation=UUID(int=node_id),
        endpoints=(
            Endpoint("INTERNAL", f"in-{node_id}", 1, 0),
            Endpoint("EXTERNAL", f"out-{node_id}", 2, 0),
        ),
        rack=f"rack-{node_id}",
        is_fenced=is_fenced,
    )


def partition(leader: int, *replicas: int, epoch: int = 4) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        in_sync=replicas[:1],
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=9,
        eligible=replicas[1:],
    )


IMAGE = MetadataImage(
    brokers={1: broker(1), 2: broker(2), 3: broker(3, is_fenced=True)},
    topics={
        ORDERS: TopicImage(
            name="orders",
            topic_id=ORDERS,
            partitions={0: partition(1, 1, 3), 1: partition(NO_LEADER, 3)},
        )
    },
    topic_ids={"orders": ORDERS},
)


class Wanted:
    def __init__(self, image: MetadataImage = IMAGE) -> None:
        self.image = image
        self.topics: list[str] = []
        self.view = ImageView(
            node_id=2, cluster_id="c", image=lambda: self.image, want_topic=self.topics.append
        )


def test_clients_see_brokers_that_are_not_fenced_at_their_own_listener() -> None:
    assert Wanted().view.brokers(HERE) == [
        BrokerAddress(1, "out-1", 2, "rack-1"),
        BrokerAddress(2, "out-2", 2, "rack-2"),
    ]


def test_if_all_brokers_are_fenced_clients_are_told_of_the_one_they_asked() -> None:
    fenced = {number: broker(number, is_fenced=True) for number in (1, 2, 3)}
    view = Wanted(replace(IMAGE, brokers=fenced)).view

    assert view.brokers(HERE) == [BrokerAddress(2, "unused", 1, None)]


def test_a_partition_has_its_leader_its_replicas_and_those_that_are_offline() -> None:
    view = Wanted().view
    topic = view.topic("orders")
    assert topic is not None

    led, unled = view.partitions(topic, range(3))

    assert (led.leader, led.leader_epoch, led.error) == (1, 4, ErrorCode.none)
    assert (led.replicas, led.in_sync, led.offline, led.eligible) == ((1, 3), (1,), (3,), (3,))
    assert (unled.leader, unled.error) == (NO_LEADER, ErrorCode.leader_not_available)


@pytest.mark.parametrize(
    ("wanted", "number", "code"),
    [
        ("orders", 0, ErrorCode.not_leader_or_follower),
        (ORDERS, 1, ErrorCode.not_leader_or_follower),
        ("orders", 2, ErrorCode.unknown_topic_or_partition),
        ("missing", 0, ErrorCode.unknown_topic_or_partition),
        (UUID(int=99), 0, ErrorCode.unknown_topic_id),
    ],
)
def test_a_partition_that_is_not_here_is_led_elsewhere_or_unknown(
    wanted: str | UUID, number: int, code: ErrorCode
) -> None:
    assert Wanted().view.why_absent(wanted, number) is code


def test_an_error_can_name_the_leader_and_its_address() -> None:
    view = Wanted().view

    assert view.leader_of("orders", 0) == (1, 4)
    assert view.leader_of("orders", 1) is None
    assert view.addresses({1, 3, 8}, HERE) == [BrokerAddress(1, "out-1", 2, "rack-1")]


def test_the_coordinator_of_a_group_leads_its_partition_of_the_offsets_topic() -> None:
    offsets = TopicImage(
        name="__consumer_offsets",
        topic_id=OFFSETS,
        partitions={number: partition(1 + number % 2, 1, 2) for number in range(50)},
    )
    image = replace(
        IMAGE,
        topics={**IMAGE.topics, OFFSETS: offsets},
        topic_ids={**IMAGE.topic_ids, "__consumer_offsets": OFFSETS},
    )
    view = Wanted(image).view

    first = view.coordinator(CoordinatorKind.GROUP, "billing", HERE)
    second = view.coordinator(CoordinatorKind.GROUP, "shipping", HERE)

    assert {first, second} <= {
        BrokerAddress(1, "out-1", 2, "rack-1"),
        BrokerAddress(2, "out-2", 2, "rack-2"),
    }


def test_looking_for_a_coordinator_has_its_topic_created() -> None:
    wanted = Wanted()

    found = wanted.view.coordinator(CoordinatorKind.GROUP, "billing", HERE)

    other = wanted.view.coordinator(CoordinatorKind.TRANSACTION, "payments", HERE)

    assert found is other is ErrorCode.coordinator_not_available
    assert wanted.topics == ["__consumer_offsets", "__transaction_state"]
