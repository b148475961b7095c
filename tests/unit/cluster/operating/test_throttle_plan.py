"""Which replicas and brokers a limit for copies concerns."""

from cordwood.cluster.operating.cluster_picture import PartitionPicture, Place
from cordwood.cluster.operating.throttle_plan import plan_throttle


def partition(number: int, *replicas: int, adding: tuple[int, ...] = ()) -> PartitionPicture:
    return PartitionPicture(
        place=Place("orders", number),
        leader=replicas[0],
        replicas=replicas,
        in_sync=replicas[:1],
        adding=adding,
    )


def test_all_present_replicas_send_and_the_new_ones_receive() -> None:
    parts = [partition(0, 1, 2), partition(1, 2, 3)]

    plan = plan_throttle(parts, {Place("orders", 0): (2, 4), Place("orders", 1): (3, 2)})

    assert plan.senders == {"orders": "0:1,0:2"}
    assert plan.receivers == {"orders": "0:4"}
    assert plan.brokers == (1, 2, 4)


def test_what_is_under_way_keeps_its_place_in_the_list() -> None:
    parts = [partition(0, 1, 2), partition(1, 2, 5, adding=(5,))]

    plan = plan_throttle(parts, {Place("orders", 0): (3, 2)})

    assert plan.senders == {"orders": "0:1,0:2,1:2"}
    assert plan.receivers == {"orders": "0:3,1:5"}
    assert plan.brokers == (1, 2, 3, 5)


def test_a_change_of_the_order_needs_no_limit() -> None:
    plan = plan_throttle([partition(0, 1, 2)], {Place("orders", 0): (2, 1)})

    assert plan.brokers == ()
    assert plan.senders == plan.receivers == {}
