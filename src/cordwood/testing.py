"""`cordwood.Broker`: a real broker inside a program or a test, up in milliseconds.

    with cordwood.Broker(topics=["orders"]) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers}).produce("orders", b"paid")

It is the broker that `cordwood serve` runs, in threads of this process. Without a directory it
uses a temporary one, which is removed when it stops, and the settings in `TEST_CONFIG`.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from cordwood.broker.config.broker_config import ANY_ADDRESS
from cordwood.broker.config.security_config import refuse_insecure_listeners
from cordwood.broker.server import BrokerServer
from cordwood.errors import LogClosedError
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.settings import settings_from

if TYPE_CHECKING:
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.store.store import Store
    from cordwood.log.topics.topic import Topic

# The defaults of a broker in a temporary directory. Its data does not outlive the process, so
# syncing each append would be wasted; short intervals keep tests of groups fast.
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
    """A broker over a directory, started and stopped by `with` or by its methods.

    data_dir    the directory of the data; None: a temporary directory, removed by `stop`
    port        0 takes any free port; it stays the same over restarts
    config      keys of `cordwood config show`, such as {"log.retention.ms": "1h"}; neither files
                nor the environment are read
    topics      topics to create if they are missing: names, or names with the number of their
                partitions, {"orders": 3}
    durability  when appends are acknowledged, "disk" or "os"; None: "disk" with a `data_dir`,
                "os" in a temporary directory

    Any number of brokers may run in one process. `start`, `stop`, `restart` and `kill` are for
    one thread at a time.
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
        # A wrong setting is reported here, not by `start`.
        settings = settings_from(self._config)
        refuse_insecure_listeners(settings.broker, settings.security)

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self.is_running else "stopped"
        return f"<cordwood.Broker {where}>"

    # --- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the store and listen. Clients are answered on return. Safe to repeat."""
        if self._server is not None:
            return self
        settings = settings_from(self._config | {"log.dirs": self._data_dirs()})
        store = settings.store.open(settings.topic_defaults)
        server = BrokerServer(store, settings.broker, security=settings.security, owns_store=True)
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
        refuse_after_fork(self, "the broker")
        return self

    def stop(self) -> None:
        """Finish requests, sync, close, and remove a temporary directory. Safe to repeat.

        In a forked child it does nothing: the broker is its parent's.
        """
        if is_forked(self):
            return
        try:
            self._stop_server()
        finally:
            self._remove_temporary_dir()

    def restart(self) -> None:
        """Stop and start again, with the same directory, port, topics and groups."""
        self._stop_server()
        self.start()

    def kill(self) -> None:
        """End like a crash of the process: nothing is answered, synced or marked clean.

        The next `start` recovers; `stop` removes a temporary directory.
        """
        if is_forked(self):
            return
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
        """The value of ``bootstrap.servers`` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        """An address of this machine on which the broker listens."""
        host = self._running().address[0]
        return "127.0.0.1" if host in ANY_ADDRESS else host

    @property
    def port(self) -> int:
        return self._running().address[1]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The address of /metrics, /healthz and /readyz, if `config` has ``metrics.port``."""
        return self._running().metrics_address

    @property
    def store(self) -> "Store":
        """The broker's store, for appending and reading beside the clients."""
        return self._running().store

    @property
    def data_dir(self) -> str:
        """The directory of the data. A temporary one exists from `start` to `stop`."""
        directory = self._given_dir or self._temporary_dir
        if directory is None:
            raise LogClosedError("the broker")
        return directory

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> "Topic[PartitionLog]":
        """Create a topic. Clients can use it on return."""
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
        raise TypeError(f"topics must be a list of names or a mapping, not the string {topics!r}")
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, 1)
