"""`cordwood.Broker`: a real broker inside a program or a test, up in milliseconds.

    with cordwood.Broker(topics=["orders"]) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers}).produce("orders", b"paid")

It is the broker that `cordwood serve` runs, in threads of this process. Without a directory it
lives in a temporary one, which goes when it stops, and is set up for tests: see `TEST_CONFIG`.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from cordwood.broker.config.broker_config import ANY_ADDRESS
from cordwood.broker.server import BrokerServer
from cordwood.errors import LogClosedError
from cordwood.settings import settings_from

if TYPE_CHECKING:
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.store.store import Store
    from cordwood.log.topics.topic import Topic

# What a broker in a temporary directory has unless told otherwise. Nothing in it outlives the
# process, so a sync per append buys nothing; and nobody wants to wait for heartbeats.
TEST_CONFIG: Final[Mapping[str, object]] = MappingProxyType(
    {
        "log.durability": "os",
        "log.dir.free.bytes.min": 0,
        "group.min.session.timeout.ms": 100,
        "group.consumer.heartbeat.interval.ms": 250,
    }
)

Topics = Iterable[str] | Mapping[str, int]


class Broker:
    """A broker over a directory, started and stopped by `with` or by hand.

    data_dir    where the data is, and stays; None: a temporary directory, removed by `stop`
    port        0 takes any that is free; it stays the same over restarts
    config      keys of `cordwood config show`, such as {"log.retention.ms": "1h"}; neither files
                nor the environment are read
    topics      created at the first start where they are missing: names, or names with the
                number of their partitions, {"orders": 3}
    durability  when appends are acknowledged, "disk" or "os"; None: "disk" in a directory of
                yours, "os" in a temporary one

    Any number of them may run in one process. `start`, `stop`, `restart` and `kill` are for one
    thread at a time.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        config: Mapping[str, object] | None = None,
        topics: Topics = (),
        durability: str | None = None,
    ) -> None:
        self._given_dir = None if data_dir is None else os.fspath(data_dir)
        self._temporary_dir: str | None = None
        self._topics = _partition_counts(topics)
        self._config: dict[str, object] = dict(TEST_CONFIG) if data_dir is None else {}
        self._config |= {"port": port, **(config or {})}
        if durability is not None:
            self._config["log.durability"] = durability
        self._server: BrokerServer | None = None
        settings_from(self._config)  # what is wrong is said here, not at the start

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self.is_running else "stopped"
        return f"<cordwood.Broker {where}>"

    # --- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the store and listen. On return clients are answered. Safe to repeat."""
        if self._server is not None:
            return self
        settings = settings_from(self._config | {"log.dirs": self._data_dirs()})
        store = settings.store.open(settings.topic_defaults)
        server = BrokerServer(store, settings.broker, owns_store=True)
        try:
            for name, partitions in self._topics.items():
                if store.registry.find(name) is None:
                    store.create_topic(name, partitions=partitions)
            server.start()
        except BaseException:
            server.stop()
            self._remove_temporary_dir()
            raise
        self._config["port"] = server.address[1]
        self._server = server
        return self

    def stop(self) -> None:
        """Answer what is under way, sync, close; a temporary directory is removed. Repeatable."""
        try:
            self._stop_server()
        finally:
            self._remove_temporary_dir()

    def restart(self) -> None:
        """Stop in order and start again: same directory, same port, same topics and groups."""
        self._stop_server()
        self.start()

    def kill(self) -> None:
        """End as a crash of the process would: nothing is answered, synced or marked clean.

        `start` then recovers, as after a crash; `stop` removes a temporary directory.
        """
        server, self._server = self._server, None
        if server is not None:
            server.abandon()
            server.store.abandon()

    def _stop_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- facts -------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given as ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        """An address of this machine at which the broker answers."""
        host = self._running().address[0]
        return "127.0.0.1" if host in ANY_ADDRESS else host

    @property
    def port(self) -> int:
        return self._running().address[1]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where /metrics, /healthz and /readyz are, with ``metrics.port`` in `config`."""
        return self._running().metrics_address

    @property
    def store(self) -> "Store":
        """The store that is served: append to it and read from it beside the clients."""
        return self._running().store

    @property
    def data_dir(self) -> str:
        """Where the data is; a temporary directory is there from `start` to `stop`."""
        directory = self._given_dir or self._temporary_dir
        if directory is None:
            raise LogClosedError("the broker")
        return directory

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> "Topic[PartitionLog]":
        """A new topic, there for clients on return."""
        return self.store.create_topic(name, partitions=partitions, config=config)

    def _running(self) -> "BrokerServer":
        if self._server is None:
            raise LogClosedError("the broker")
        return self._server

    # --- its directory -----------------------------------------------------------------------

    def _data_dirs(self) -> list[str]:
        if self._given_dir is not None:
            return [self._given_dir]
        if self._temporary_dir is None:
            self._temporary_dir = tempfile.mkdtemp(prefix="cordwood-")
        return [self._temporary_dir]

    def _remove_temporary_dir(self) -> None:
        directory, self._temporary_dir = self._temporary_dir, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def _partition_counts(topics: Topics) -> dict[str, int]:
    if isinstance(topics, str):
        raise TypeError(f"topics must be names or a mapping, not the text {topics!r}")
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, 1)
