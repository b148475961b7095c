from cordwood.console.facts.replica_facts import ClusterPicture, NodeFacts, ReplicaFacts
from cordwood.console.views.replica_rows import node_rows, replica_findings, replica_rows


def node(node_id: int, *, is_fenced: bool = False) -> NodeFacts:
    return NodeFacts(node_id=node_id, address=f"b{node_id}:9092", is_fenced=is_fenced)


def replicas(
    partition: int, leader: int, placed: tuple[int, ...], in_sync: tuple[int, ...]
) -> ReplicaFacts:
    return ReplicaFacts("orders", partition, leader, 1, placed, in_sync, ())


PICTURE = ClusterPicture(
    cluster_id="c",
    controller=2,
    nodes=(node(1), node(2), node(3, is_fenced=True)),
    partitions=(
        replicas(0, 1, (1, 2, 3), (1, 2, 3)),
        replicas(1, 2, (1, 2, 3), (2, 1, 3)),
        replicas(2, 2, (2, 3, 4), (2,)),
        replicas(3, -1, (4,), (4,)),
    ),
)


def test_a_partition_has_the_worst_of_its_states() -> None:
    assert [row.state for row in replica_rows(PICTURE, only_problems=False)] == [
        "in sync",
        "other leader",
        "under-replicated",
        "no leader",
    ]
    assert [row.partition for row in replica_rows(PICTURE, only_problems=True)] == [1, 2, 3]


def test_a_broker_is_counted_by_what_it_leads_holds_and_lacks() -> None:
    rows = {row.node_id: row for row in node_rows(PICTURE)}

    assert (rows[1].leader_count, rows[1].replica_count, rows[1].out_of_sync_count) == (1, 2, 0)
    assert (rows[3].leader_count, rows[3].replica_count, rows[3].out_of_sync_count) == (0, 3, 1)
    assert {number: row.state for number, row in rows.items()} == {
        1: "alive",
        2: "alive",
        3: "fenced",
        4: "gone",
    }
    assert [row.node_id for row in rows.values() if row.is_controller] == [2]


def test_without_a_leader_is_bad_and_the_rest_may_become_so() -> None:
    bad, warnings = replica_findings(PICTURE)

    assert bad == ["1 partition without a leader."]
    assert warnings[0].startswith("1 partition under-replicated")
    assert warnings[1] == "2 brokers down or fenced: 3, 4."


def test_a_viewer_sees_the_replicas_of_their_topics_only() -> None:
    assert PICTURE.of_topics({"payments"}).partitions == ()
    assert len(PICTURE.of_topics({"orders"}).partitions) == 4
