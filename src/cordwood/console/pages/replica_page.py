"""The brokers of a cluster, and where the copies of partitions are."""

from typing import Final

from cordwood.console.facts import replica_census
from cordwood.console.facts.replica_facts import ClusterPicture, QuorumFacts, Reassignment
from cordwood.console.pages.page import PageNotFoundError, PageRequest
from cordwood.console.views.replica_rows import (
    NodeRow,
    ReplicaRow,
    node_rows,
    replica_findings,
    replica_rows,
)
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.errors import CordwoodError
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.value_class import dataclass

_MOVES_SHOWN: Final = 200
SHOWN: Final = {"problems": "with problems", "all": "all"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """`problems` says what could not be asked."""

    cluster_id: str
    bad: tuple[str, ...]
    warnings: tuple[str, ...]
    nodes: tuple[NodeRow, ...]
    partition_count: int
    under_replicated: int
    without_leader: int
    shown: str
    table: TablePage[ReplicaRow]
    moves: tuple[Reassignment, ...]
    move_count: int
    quorum: QuorumFacts | None
    problems: tuple[str, ...]


_COLUMNS: Final[tuple[Column[ReplicaRow], ...]] = (
    Column(name="topic", title="Topic", value=lambda r: r.topic),
    Column(name="partition", title="Partition", value=lambda r: r.partition, is_number=True),
    Column(name="state", title="State", value=lambda r: r.state),
    Column(name="leader", title="Leader", value=lambda r: r.leader, is_number=True),
    Column(
        name="replicas",
        title="Replicas",
        value=lambda r: " ".join(map(str, r.replicas)),
        help="In the order of preference as leader",
    ),
    Column(
        name="missing",
        title="Not in sync",
        value=lambda r: " ".join(map(str, r.out_of_sync)),
    ),
)


def show_cluster(request: PageRequest) -> ClusterView:
    access = request.viewer.access
    if access is None:
        raise PageNotFoundError("Brokers and replicas are known by a broker; none is asked here.")
    problems: list[str] = []
    with access.connected() as cluster:
        picture = request.snapshot.replicas or replica_census.cluster_picture(cluster)
        moves = _moves(cluster, problems)
        quorum = _quorum(cluster, picture)
    bad, warnings = replica_findings(picture)
    shown = request.choice("show", SHOWN, "problems")
    return ClusterView(
        cluster_id=picture.cluster_id,
        bad=tuple(bad),
        warnings=tuple(warnings),
        nodes=node_rows(picture),
        partition_count=len(picture.partitions),
        under_replicated=picture.under_replicated,
        without_leader=picture.without_leader,
        shown=shown,
        table=table_page(
            replica_rows(picture, only_problems=shown == "problems"),
            _COLUMNS,
            TableState.parse(request.parameters, sort="topic"),
            text=lambda row: f"{row.topic} {row.topic}-{row.partition} {row.state}",
        ),
        moves=moves[:_MOVES_SHOWN],
        move_count=len(moves),
        quorum=quorum,
        problems=tuple(problems),
    )


def _moves(cluster: RemoteCluster, problems: list[str]) -> tuple[Reassignment, ...]:
    try:
        return replica_census.reassignments(cluster)
    except CordwoodError as error:
        problems.append(f"Reassignments are not known: {error}")
        return ()


def _quorum(cluster: RemoteCluster, picture: ClusterPicture) -> QuorumFacts | None:
    """None if the broker does not tell: not every broker passes the question on."""
    if len(picture.nodes) <= 1:
        return None
    try:
        return replica_census.quorum(cluster)
    except CordwoodError:
        return None
