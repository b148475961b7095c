"""What a worker process is started with, and how the processes of a node differ."""

import pickle
from typing import Self

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.listeners import Listener, SecurityProtocol
from cordwood.broker.config.security_config import ListenerConfig, SecurityConfig
from cordwood.broker.config.store_config import StoreConfig
from cordwood.broker.observing.log_output import LogOutputConfig
from cordwood.errors import ConfigError
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.value_class import dataclass, field, replace

PROCESSES_MAX = 64
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The configuration of the node, which its processes share."""

    broker: BrokerConfig
    security: SecurityConfig
    store: StoreConfig
    topic_defaults: TopicConfig
    log_output: LogOutputConfig

    @property
    def peer_listener(self) -> str | None:
        """The listener that workers use among each other, to end transactions.

        None: they have no right to, or would have to authenticate; then transactions are not
        served.
        """
        if self.security.access.has_authorizer:
            return None
        plain = (
            each.name
            for each in self.security.listeners
            if each.protocol is SecurityProtocol.PLAINTEXT
        )
        return next(plain, None)

    def of_worker(self, index: int) -> Self:
        """The configuration of one process: its id and its ports are `index` above the node's."""
        broker = self.broker
        metrics_port = broker.metrics_port
        return replace(
            self,
            broker=replace(
                broker,
                node_id=broker.node_id + index,
                metrics_port=metrics_port + index if metrics_port else metrics_port,
            ),
            security=replace(
                self.security,
                listeners=tuple(_moved(each, index) for each in self.security.listeners),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTask:
    """`listening` has the descriptors of the sockets of its listeners, by name.

    `security` is what the keeper has of users, access rules and quotas.
    """

    config: NodeConfig
    index: int
    count: int
    epoch: int
    listening: dict[str, int]
    security: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        return pickle.dumps(self)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Only for what `encode` of the parent process has made: see `keeper_link`."""
        task = pickle.loads(body)
        assert isinstance(task, cls), task
        return task


def _moved(config: ListenerConfig, index: int) -> ListenerConfig:
    return replace(
        config,
        listener=_at(config.listener, index),
        advertised=_at(config.advertised, index),
    )


def _at(listener: Listener, index: int) -> Listener:
    return listener._replace(port=listener.port + index if listener.port else 0)


def check_ports(config: NodeConfig, count: int) -> None:
    """Raise `ConfigError` if the ports of two processes or listeners would be the same."""
    taken: dict[int, str] = {}
    for index in range(count):
        mine = config.of_worker(index)
        wanted = [(each.listener.port, each.name) for each in mine.security.listeners]
        if mine.broker.metrics_port:
            wanted.append((mine.broker.metrics_port, "metrics.port"))
        for port, name in wanted:
            if not port:
                continue
            if port > _PORT_MAX:
                raise ConfigError("--processes", count, f"{name} would need port {port}")
            if port in taken:
                raise ConfigError(
                    "--processes",
                    count,
                    f"process {index} would need port {port} for {name}, which {taken[port]} has. "
                    f"Each listener takes {count} ports in a row: choose ports that far apart",
                )
            taken[port] = f"{name} of process {index}"
