"""How Apache Kafka's controllers are set up for a cluster of our brokers. Pure: values and texts.

    controller-3000.properties    what each controller is started with
    kafka-storage.sh format ...   run once for each controller, before its first start

Kafka's own formatting finalises features that our brokers do not have, and then they could not
register. So they are formatted at level 0 (`UNSUPPORTED_FEATURES`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from cordwood.cluster.control.membership import UNSUPPORTED_FEATURES
from cordwood.errors import ConfigError
from cordwood.format.small_files.partition_metadata import encode_topic_id, new_topic_id
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass, field

LISTENER: Final = "CONTROLLER"
_ADDRESS: Final = re.compile(r"(\d{1,10})@(\[[0-9a-fA-F:.%\w]+\]|[^\s:@,\[\]]+):(\d{1,5})")
_CLUSTER_ID: Final = re.compile(r"[\w-]{1,100}", re.ASCII)


def check_cluster_id(text: str) -> str:
    """Kafka takes any short name as a cluster id; its own ones have 22 characters."""
    if _CLUSTER_ID.fullmatch(text) is None or text.startswith("-"):
        raise ConfigError(
            "cluster id", text, "must have letters, digits, - and _ and not begin with -"
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """One controller: where it listens, and the id of its directory for metadata."""

    node_id: int
    host: str
    port: int
    directory_id: UUID = field(default_factory=new_topic_id)

    @classmethod
    def parse(cls, text: str) -> "ControllerNode":
        """``3000@host:9093``. Raises `ConfigError`."""
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found[1]) > INT32_MAX or not 0 < int(found[3]) < 65536:
            raise ConfigError("controller", text, "must be ID@HOST:PORT, such as 3000@host:9093")
        return cls(node_id=int(found[1]), host=found[2], port=int(found[3]))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def voter(self) -> str:
        """As ``--initial-controllers`` wants it."""
        return f"{self.node_id}@{self.address}:{encode_topic_id(self.directory_id)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSetup:
    """The controllers of a new cluster."""

    cluster_id: str
    nodes: tuple[ControllerNode, ...]

    def __post_init__(self) -> None:
        check_cluster_id(self.cluster_id)
        if not self.nodes:
            raise ConfigError("controllers", "", "must be at least one, ID@HOST:PORT")
        for what, values in (
            ("id", [str(node.node_id) for node in self.nodes]),
            ("address", [node.address for node in self.nodes]),
        ):
            for value in values:
                if values.count(value) > 1:
                    raise ConfigError("controllers", value, f"is the {what} of two controllers")

    @property
    def bootstrap(self) -> str:
        """The value of ``controller.quorum.bootstrap.servers``, for controllers and brokers."""
        return ",".join(node.address for node in self.nodes)

    def properties(
        self, node: ControllerNode, log_dir: str, more: Mapping[str, str] | None = None
    ) -> str:
        """The text of the file that the controller is formatted and started with."""
        keys = {
            "process.roles": "controller",
            "node.id": str(node.node_id),
            "listeners": f"{LISTENER}://{node.address}",
            "advertised.listeners": f"{LISTENER}://{node.address}",
            "controller.listener.names": LISTENER,
            "controller.quorum.bootstrap.servers": self.bootstrap,
            "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
            "log.dirs": log_dir,
            **(more or {}),
        }
        return "".join(f"{key}={value}\n" for key, value in keys.items())

    def format_arguments(
        self, config: str, without: Sequence[str] = UNSUPPORTED_FEATURES
    ) -> list[str]:
        """The arguments of ``kafka-storage.sh`` that format one controller."""
        return [
            "format",
            f"--cluster-id={self.cluster_id}",
            f"--config={config}",
            f"--initial-controllers={','.join(node.voter for node in self.nodes)}",
            *(f"--feature={name}=0" for name in without),
        ]
