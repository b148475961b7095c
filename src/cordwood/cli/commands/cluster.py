"""``cordwood cluster``: sets up the nodes of a cluster."""

import os
import shlex
from typing import Annotated, Final

import typer

from cordwood.cli.failures import UsageError
from cordwood.cli.options import JsonOption
from cordwood.cli.render import Column, output_for
from cordwood.cli.terminal import say

cluster_app = typer.Typer(help="Set up the nodes of a cluster.", no_args_is_help=True)

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


@cluster_app.callback()
def cluster() -> None:
    """Set up the nodes of a cluster."""


@cluster_app.command("format")
def format_broker(
    directories: Annotated[
        list[str],
        typer.Option("--dir", metavar="DIR", help="A data directory of the broker; repeatable."),
    ],
    node_id: Annotated[
        int,
        typer.Option("--node-id", min=0, max=_NODE_ID_MAX, help="The broker's node.id."),
    ],
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
    from cordwood.log.topics.directory_format import format_directories
    from cordwood.storage.files import RealFileSystem

    if cluster_id is None:
        raise UsageError(
            "--cluster-id is missing: use the id that the controllers were formatted with "
            "(`cordwood cluster controllers` shows it, and so does cluster.id in their "
            "meta.properties)"
        )
    formatted = format_directories(
        RealFileSystem(),
        [os.path.abspath(path) for path in dict.fromkeys(directories)],
        node_id=node_id,
        cluster_id=check_cluster_id(cluster_id),
        clock=SystemClock(),
    )
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


@cluster_app.command("controllers")
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
