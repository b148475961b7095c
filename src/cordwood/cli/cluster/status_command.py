"""``cordwood cluster status``: is the cluster healthy, and who has what."""

import sys
import time
from typing import Annotated, Any, Final

import typer

from cordwood.cli.at.cluster_access import ClusterAccess, open_cluster
from cordwood.cli.at.target import shown_address
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.readable_values import shown_count, shown_duration
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import say
from cordwood.cluster.operating.cluster_health import ClusterHealth, health_of
from cordwood.cluster.operating.cluster_picture import (
    ClusterPicture,
    PartitionPicture,
    QuorumMember,
    QuorumPicture,
)
from cordwood.errors import CordwoodError

_EXIT_UNHEALTHY: Final = 1
_PARTITIONS_SHOWN: Final = 20
_CLEAR: Final = "\x1b[H\x1b[2J"

_BROKER_COLUMNS: Final = (
    Column(name="broker", field="node_id", is_number=True),
    Column(name="address", is_whole=True),
    "kind",
    "rack",
    "state",
    Column(name="leads", field="leaders", is_number=True, show=shown_count),
    Column(name="replicas", is_number=True, show=shown_count),
    Column(name="metadata lag", field="metadata_lag", is_number=True, show=shown_count),
)
_CONTROLLER_COLUMNS: Final = (
    Column(name="controller", field="node_id", is_number=True),
    Column(name="address", is_whole=True),
    "role",
    Column(name="log end", field="log_end", is_number=True, show=shown_count),
    Column(name="lag", is_number=True, show=shown_count),
    Column(name="behind for", field="lag_ms", is_number=True, show=shown_duration),
)
_PARTITION_COLUMNS: Final = (
    Column(name="partition", field="name", is_whole=True),
    Column(name="leader", is_number=True),
    "replicas",
    Column(name="in sync", field="in_sync"),
    "problem",
)


def status(
    *,
    at: AtOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every --interval, until interrupted.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Show whether the cluster is healthy: brokers, controllers, partitions. Exit code 1 if not.

    The first line says it in a sentence. Not healthy are brokers that are not alive, partitions
    without a leader or with too few replicas in sync, and controllers that do not follow the
    active one. Works with brokers of ours and of Kafka.

    \b
    Examples:
      cordwood cluster status --at localhost:9092
      cordwood cluster status --watch
      cordwood cluster status --json | jq .under_replicated
    """
    with open_cluster(at) as access:
        is_healthy = _show_once(access, as_json=as_json, is_watching=watch)
        while watch:
            time.sleep(interval_s)
            try:
                access.reconnect()  # the broker that was asked may be gone
                is_healthy = _show_once(access, as_json=as_json, is_watching=True)
            except CordwoodError as error:
                say(f"cordwood: {error}")  # the next look may find it
    if not is_healthy:
        raise typer.Exit(_EXIT_UNHEALTHY)


def _show_once(access: ClusterAccess, *, as_json: bool, is_watching: bool) -> bool:
    picture = access.look()
    health = health_of(picture)
    if as_json:
        output_for(as_json=True).facts((), described(picture, health))
        sys.stdout.flush()
    else:
        if is_watching and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        _print(picture, health)
    return health.is_healthy


def described(picture: ClusterPicture, health: ClusterHealth) -> dict[str, Any]:
    """Everything, as JSON shows it."""
    return {
        "is_healthy": health.is_healthy,
        "summary": health.sentence,
        "problems": list(health.problems),
        "cluster_id": picture.cluster_id,
        "brokers": _broker_rows(picture, health),
        "quorum": None if picture.quorum is None else _quorum_facts(picture.quorum),
        "partitions": health.partition_count,
        "leaders": {str(node): count for node, count in sorted(health.leaders.items())},
        "offline": [_partition_row(each) for each in health.offline],
        "under_replicated": [_partition_row(each) for each in health.under_replicated],
        "under_min_isr": [_partition_row(each) for each in health.under_min_isr],
        "reassigning": [_partition_row(each) for each in health.moving],
        "not_preferred": [_partition_row(each) for each in health.not_preferred],
    }


def _print(picture: ClusterPicture, health: ClusterHealth) -> None:
    output = output_for(as_json=False)
    sys.stdout.write(f"{health.sentence}\n\n")
    sys.stdout.write(f"cluster {picture.cluster_id}\n")
    output.table(_BROKER_COLUMNS, _broker_rows(picture, health))
    if picture.quorum is not None:
        facts = _quorum_facts(picture.quorum)
        sys.stdout.write(
            f"\ncontrollers: {facts['leader_id']} is active, epoch {facts['leader_epoch']}\n"
        )
        output.table(_CONTROLLER_COLUMNS, facts["voters"])
    sys.stdout.write(
        f"\npartitions: {health.partition_count:,} in all, {len(health.offline):,} offline, "
        f"{len(health.under_min_isr):,} under min ISR, "
        f"{len(health.under_replicated):,} under-replicated, {len(health.moving):,} moving, "
        f"{len(health.not_preferred):,} not led by the preferred broker\n"
    )
    rows = _rows_to_look_at(health)
    if rows:
        output.table(_PARTITION_COLUMNS, rows[:_PARTITIONS_SHOWN])
        if len(rows) > _PARTITIONS_SHOWN:
            say(f"... and {len(rows) - _PARTITIONS_SHOWN:,} more; --json has all")
    sys.stdout.flush()


def _rows_to_look_at(health: ClusterHealth) -> list[Row]:
    """Partitions with a problem, the worst first, each once; then those that move."""
    rows: dict[object, Row] = {}
    for partitions, problem in (
        (health.offline, "offline"),
        (health.under_min_isr, "under min ISR"),
        (health.under_replicated, "under-replicated"),
        (health.moving, "moving"),
    ):
        for each in partitions:
            if each.place not in rows:
                rows[each.place] = {**_partition_row(each), "problem": problem}
    return list(rows.values())


def _broker_rows(picture: ClusterPicture, health: ClusterHealth) -> list[Row]:
    quorum = picture.quorum
    observers = {} if quorum is None else {each.node_id: each for each in quorum.observers}
    rows: list[Row] = []
    for broker in health.brokers:
        observer = observers.get(broker.node_id)
        rows.append(
            {
                "node_id": broker.node_id,
                "address": shown_address(broker.host, broker.port) if broker.host else None,
                "kind": broker.kind,
                "rack": broker.rack,
                "state": broker.state.value,
                "leaders": health.leaders.get(broker.node_id, 0),
                "replicas": health.replicas.get(broker.node_id, 0),
                "metadata_lag": None
                if quorum is None or observer is None
                else quorum.lag(observer),
            }
        )
    return rows


def _quorum_facts(quorum: QuorumPicture) -> dict[str, Any]:
    def row(member: QuorumMember) -> Row:
        return {
            "node_id": member.node_id,
            "address": member.address,
            "role": "active" if member.node_id == quorum.leader_id else "standby",
            "log_end": member.log_end,
            "lag": quorum.lag(member),
            "lag_ms": quorum.lag_ms(member),
        }

    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [row(each) for each in quorum.voters],
    }


def _partition_row(partition: PartitionPicture) -> Row:
    return {
        "name": str(partition.place),
        "topic": partition.place.topic,
        "partition": partition.place.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
    }
