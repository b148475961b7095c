"""``cordwood cluster join``, ``format`` and ``controllers``: set up the nodes of a cluster."""

import os
import shlex
from typing import Annotated, Final

import typer

from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, DryRunOption, JsonOption
from cordwood.cli.render import Column, output_for
from cordwood.cli.terminal import say, warn
from cordwood.errors import ConfigError, LogError

_DIRECTORY_COLUMNS: Final = (
    Column(name="directory", is_whole=True),
    "directory_id",
    "node_id",
    "cluster_id",
    "state",
)
_NODE_ID_MAX: Final = 2**31 - 1

ClusterIdOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-id", metavar="ID", help="The cluster's id, as its controllers have it."
    ),
]


DirectoriesOption = Annotated[
    list[str],
    typer.Option("--dir", metavar="DIR", help="A data directory of the broker; repeatable."),
]
NodeIdOption = Annotated[
    int,
    typer.Option("--node-id", min=0, max=_NODE_ID_MAX, help="The broker's node.id."),
]


def join(
    directories: DirectoriesOption,
    node_id: NodeIdOption,
    *,
    at: AtOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Format the data directory of a new broker for the cluster at --at, and show how to start it.

    Checks first that the cluster takes it: that no other broker has the id, and that this version
    supports every feature that the cluster has. The new broker gets no partitions by itself: move
    some with `cordwood cluster reassign`.

    \b
    Examples:
      cordwood cluster join --dir /data/4 --node-id 4 --at localhost:9092
      cordwood cluster join --dir /data/4 --node-id 4 --at localhost:9092 --dry-run
    """
    from cordwood.cli.at.cluster_access import open_cluster
    from cordwood.clock import SystemClock
    from cordwood.cluster.operating.joining import checked_features, checked_node_id
    from cordwood.log.store.cluster_mark import mark_cluster_directories
    from cordwood.log.topics.directory_format import check_directories, format_directories
    from cordwood.storage.files import RealFileSystem

    paths = [os.path.abspath(path) for path in dict.fromkeys(directories)]
    fs = RealFileSystem()
    for path in paths:
        if os.path.exists(path) and not os.path.isdir(path):
            raise ConfigError("--dir", path, "is a file; give a directory, which may be new")
    with open_cluster(at) as access:
        if not access.operations.has_controllers:
            raise LogError(
                f"the broker at {at} is alone: it has no controllers. Set up a cluster first: "
                "`cordwood cluster controllers --help`"
            )
        picture = access.picture()
        checked_features(access.operations.features().finalized)
        cluster_id = picture.cluster_id
        is_known = check_directories(fs, paths, node_id=node_id, cluster_id=cluster_id)
        checked_node_id(picture, node_id, is_own=is_known)
    quorum = picture.quorum
    if quorum is None:
        raise LogError(picture.quorum_problem or "the controllers do not answer")
    controllers = ",".join(each.address for each in quorum.voters if each.address is not None)
    if not dry_run:
        format_directories(fs, paths, node_id=node_id, cluster_id=cluster_id, clock=SystemClock())
        mark_cluster_directories(fs, paths)
    keys = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": controllers or "HOST:PORT",
        "controller.listener.names": "CONTROLLER",
    }
    command = shlex.join(
        [
            "cordwood",
            "serve",
            *(word for path in paths for word in ("--dir", path)),
            *(f"--set={key}={value}" for key, value in keys.items()),
        ]
    )
    if as_json:
        row = {
            "cluster_id": cluster_id,
            "node_id": node_id,
            "directories": paths,
            "is_formatted": not dry_run or is_known,
            "settings": keys,
            "command": command,
        }
        output_for(as_json=True).facts((), row)
        return
    verb = "would be formatted" if dry_run else "is formatted"
    say(f"{', '.join(paths)} {verb} for node {node_id} of cluster {cluster_id}. Start it with:")
    print(command)
    say(
        "Add listeners for other machines, and the keys of TLS and users if this cluster has them: "
        "those of its other brokers serve."
    )


def format_broker(
    directories: DirectoriesOption,
    node_id: NodeIdOption,
    *,
    cluster_id: ClusterIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Format the data directories of a broker that is to join a cluster.

    Each directory gets the id of the cluster, the id of the node and an id of its own
    (meta.properties, as Kafka has it). Directories that already belong to this node and cluster
    stay as they are; directories with other data are refused.

    \b
    Examples:
      cordwood cluster format --dir /data/1 --node-id 1 --cluster-id 5L6g3nShT-eMCtK--X86sw
      cordwood cluster format --dir /data/1 --dir /data/2 --node-id 2 --cluster-id orders
    """
    from cordwood.clock import SystemClock
    from cordwood.cluster.control.controller_setup import check_cluster_id
    from cordwood.format.small_files.partition_metadata import encode_topic_id
    from cordwood.log.store.cluster_mark import mark_cluster_directories
    from cordwood.log.topics.directory_format import format_directories
    from cordwood.storage.files import RealFileSystem

    if cluster_id is None:
        raise UsageError(
            "--cluster-id is missing: use the id that the controllers were formatted with "
            "(`cordwood cluster controllers` shows it, and so does cluster.id in their "
            "meta.properties)"
        )
    fs = RealFileSystem()
    paths = [os.path.abspath(path) for path in dict.fromkeys(directories)]
    formatted = format_directories(
        fs,
        paths,
        node_id=node_id,
        cluster_id=check_cluster_id(cluster_id),
        clock=SystemClock(),
    )
    mark_cluster_directories(fs, paths)
    rows = [
        {
            "directory": each.path,
            "directory_id": encode_topic_id(each.directory_id),
            "node_id": node_id,
            "cluster_id": cluster_id,
            "state": "formatted" if each.is_new else "was formatted before",
        }
        for each in formatted
    ]
    output_for(as_json=as_json).table(_DIRECTORY_COLUMNS, rows)


def set_up_controllers(
    controllers: Annotated[
        list[str],
        typer.Argument(metavar="ID@HOST:PORT...", help="The controllers: one, three or five."),
    ],
    *,
    directory: Annotated[
        str,
        typer.Option("--dir", metavar="DIR", help="Where each controller keeps its metadata."),
    ] = "/var/lib/kafka-controller",
    write: Annotated[
        str | None,
        typer.Option("--write", metavar="DIR", help="Write the files there."),
    ] = None,
    cluster_id: ClusterIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how to set up Apache Kafka's controllers for a cluster of Cordwood brokers.

    Prints, or writes, a properties file for each controller, and the command that formats it. The
    command switches off the features that Cordwood brokers do not have; a cluster that was
    formatted with them refuses these brokers. Without --cluster-id, the cluster gets a new id.

    \b
    Examples:
      cordwood cluster controllers 3000@localhost:9093
      cordwood cluster controllers 3000@a:9093 3001@b:9093 3002@c:9093 --write ./controllers
    """
    from cordwood.cluster.control.controller_setup import ControllerNode, ControllerSetup
    from cordwood.format.small_files.partition_metadata import encode_topic_id, new_topic_id

    setup = ControllerSetup(
        cluster_id=cluster_id or encode_topic_id(new_topic_id()),
        nodes=tuple(ControllerNode.parse(text) for text in controllers),
    )
    if len(setup.nodes) % 2 == 0:
        warn(
            f"{len(setup.nodes)} controllers survive no more failures than {len(setup.nodes) - 1}; "
            "take one, three or five"
        )
    rows = []
    for node in setup.nodes:
        name = f"controller-{node.node_id}.properties"
        path = name if write is None else os.path.join(write, name)
        command = shlex.join(["kafka-storage.sh", *setup.format_arguments(path)])
        rows.append(
            {
                "node_id": node.node_id,
                "address": node.address,
                "properties": setup.properties(node, directory),
                "file": path,
                "command": command,
            }
        )
    if write is not None:
        os.makedirs(write, exist_ok=True)
        for row in rows:
            with open(str(row["file"]), "x", encoding="ascii") as file:
                file.write(str(row["properties"]))
    if as_json:
        facts = {
            "cluster_id": setup.cluster_id,
            "bootstrap": setup.bootstrap,
            "controllers": rows,
        }
        output_for(as_json=True).facts((), facts)
        return
    say(f"cluster id {setup.cluster_id}")
    for row in rows:
        where = f"{row['file']}{' (written)' if write is not None else ''}"
        say(f"\ncontroller {row['node_id']}: {where}\n\n{row['properties']}\n{row['command']}")
    say(
        f"\nbrokers: cordwood cluster format --dir DIR --node-id N --cluster-id "
        f"{setup.cluster_id}\n         and process.roles=broker, node.id=N, "
        f"controller.quorum.bootstrap.servers={setup.bootstrap}"
    )
