from cordwood.console.views.lag import group_row, groups_by_topic, positions_of
from fakes.console_facts import group, snapshot, topic

FACTS = snapshot(
    topic("orders", {0: 100, 1: 50}),
    groups=(
        group("billing", {("orders", 0): 90, ("orders", 1): 50, ("gone", 0): 7}),
        group("audit", {("orders", 0): 120}),
    ),
)


def test_lag_is_what_is_not_read_yet() -> None:
    row = group_row(FACTS.groups["billing"], FACTS)

    assert (row.lag, row.worst, row.partition_count) == (10, 10, 3)


def test_a_group_ahead_of_the_end_has_no_lag() -> None:
    assert group_row(FACTS.groups["audit"], FACTS).lag == 0


def test_the_lag_in_a_deleted_topic_is_not_known() -> None:
    gone = positions_of(FACTS.groups["billing"], FACTS)[2]

    assert gone.lag is None
    assert gone.end_offset is None


def test_the_groups_of_a_topic_have_their_lag_in_it() -> None:
    assert groups_by_topic(FACTS) == {"orders": {"billing": 10, "audit": 0}}
