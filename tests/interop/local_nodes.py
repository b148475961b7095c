"""The nodes of a local cluster: what each is, which process runs it, and the file about all.

    DIR/cluster.json           what the cluster consists of: see `ClusterState`
    DIR/<node>/server.pid      the process of a node, written by that process before it begins

A process is only ever signalled if it is the one that was started: the number in `server.pid` must
belong to a process whose command line names the directory of the node.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from cordwood.cluster.control.controller_setup import ControllerNode, ControllerSetup
from cordwood.format.small_files.partition_metadata import decode_topic_id

STATE: Final = "cluster.json"
HOST: Final = "127.0.0.1"
# The shell notes its own number and then becomes the node: no moment without a note.
_NOTE_AND_RUN: Final = 'echo $$ > "$0" && exec "$@"'


class ClusterFailedError(Exception):
    """The cluster cannot be started or stopped; the message says why."""


@dataclass
class Node:
    """One process. `kind` is controller, kafka or broker."""

    kind: str
    node_id: int
    port: int
    directory: str
    directory_id: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.node_id}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def data(self) -> str:
        return os.path.join(self.directory, "data")

    @property
    def log(self) -> Path:
        return Path(self.directory, "server.log")

    @property
    def _pid_file(self) -> Path:
        return Path(self.directory, "server.pid")

    @property
    def pid(self) -> int:
        """The process of this node; 0 if none runs."""
        try:
            found = int(self._pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return 0
        return found if self.directory in _command_line(found) else 0

    @property
    def is_running(self) -> bool:
        return bool(self.pid)

    @property
    def is_reachable(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self.port)) == 0

    @property
    def is_port_free(self) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self.port))
            except OSError:
                return False
            return True

    def launch(self, command: Sequence[str], output: Path) -> None:
        """Start its process, which goes on when this one ends."""
        self._pid_file.unlink(missing_ok=True)
        with open(output, "wb") as file:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", _NOTE_AND_RUN, str(self._pid_file), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the process that was launched here is gone."""
        return self._child.poll() is not None

    def tail(self) -> str:
        """The last lines that it printed."""
        files = (self.log, Path(self.directory, "console.log"))
        lines = (line for file in files if file.exists() for line in file.open(errors="replace"))
        return "".join(list(lines)[-30:])


def _command_line(pid: int) -> str:
    """The words of a process; empty if there is none, or it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists("/proc/self/cmdline"):
            return ""
    asked = ["ps", "-ww", "-o", "args=", "-p", str(pid)]  # a system without /proc
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


@dataclass
class ClusterState:
    """Everything that `status` and `stop` must know. Written to `cluster.json` at each change."""

    directory: str
    cluster_id: str
    nodes: list[Node] = field(default_factory=list)

    def of(self, *kinds: str) -> Iterator[Node]:
        return (node for node in self.nodes if node.kind in kinds)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.of("broker", "kafka"))

    def setup(self) -> ControllerSetup:
        return ControllerSetup(
            cluster_id=self.cluster_id,
            nodes=tuple(
                ControllerNode(
                    node_id=node.node_id,
                    host=HOST,
                    port=node.port,
                    directory_id=decode_topic_id(node.directory_id),
                )
                for node in self.of("controller")
            ),
        )

    def save(self) -> None:
        path = Path(self.directory, STATE)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=2) + "\n")
        new.replace(path)

    @classmethod
    def load(cls, directory: Path) -> ClusterState | None:
        """The cluster in `directory`, which may have been moved; None if there is none."""
        try:
            found = json.loads((directory / STATE).read_text())
            nodes = [
                Node(each["kind"], each["node_id"], each["port"], "", each["directory_id"])
                for each in found["nodes"]
            ]
            state = cls(str(directory), found["cluster_id"], nodes)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterFailedError(
                f"{directory / STATE} cannot be read ({error}); delete {directory} to begin again"
            ) from error
        for node in state.nodes:
            node.directory = str(directory / node.name)
        return state
