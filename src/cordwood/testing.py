"""`cordwood.Broker`: a real broker inside a program or a test, up in milliseconds.

    with cordwood.Broker(topics=["orders"]) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers}).produce("orders", b"paid")

It is the broker that `cordwood serve` runs, in threads of this process. Without a directory it
uses a temporary one, which is removed when it stops, and the settings in `TEST_CONFIG`.

    with cordwood.Broker(security="sasl_ssl", users={"alice": "secret"}) as broker:
        Producer(broker.client_config(user="alice")).produce("orders", b"paid")

With `security` it has TLS, users and access rules, and says how its clients connect.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from cordwood.broker.config.broker_config import ANY_ADDRESS
from cordwood.broker.config.security_config import refuse_insecure_listeners
from cordwood.broker.server import BrokerServer
from cordwood.errors import ConfigError, LogClosedError
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.settings import settings_from

if TYPE_CHECKING:
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.store.store import Store
    from cordwood.log.topics.topic import Topic
    from cordwood.security.clients.client_security import ClientSecurity
    from cordwood.security.setup.local_security import BrokerSecurity, Rules, allow, deny

__all__ = ["TEST_CONFIG", "Broker", "BrokerSecurity", "Topics", "allow", "deny"]

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

_OF_SECURITY: Final = ("BrokerSecurity", "allow", "deny")


def __getattr__(name: str) -> object:
    """Names of secured brokers, loaded when first used: few tests have one."""
    if name not in _OF_SECURITY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cordwood.security.setup import local_security

    return getattr(local_security, name)


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

    security    "SASL_SSL", "SASL_PLAINTEXT" or "SSL", or a `BrokerSecurity`; None: PLAINTEXT
    users       with `security` as text: names with their passwords
    acls        with `security` as text: access rules, as `allow` and `deny` make them

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
        security: "str | BrokerSecurity | None" = None,
        users: Mapping[str, str] | None = None,
        acls: "Rules | None" = None,
    ) -> None:
        self._given_dir = None if data_dir is None else os.fspath(data_dir)
        self._temporary_dir: str | None = None
        self._topics = _partition_counts(topics)
        self._security = _security(security, users, acls)
        self._security_dir: str | None = None
        self._config: dict[str, object] = dict(TEST_CONFIG) if data_dir is None else {}
        if self._security is not None:
            self._config["listeners"] = f"{self._security.kind}://127.0.0.1:0"
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
        protection: dict[str, object] = {}
        if self._security is not None:
            protection = self._security.config(self._certificates())
        settings = settings_from({**protection, **self._config, "log.dirs": self._data_dirs()})
        store = settings.store.open(settings.topic_defaults)
        server = BrokerServer(store, settings.broker, security=settings.security, owns_store=True)
        try:
            if self._security is not None:
                server.security_file.change(self._security.apply)
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
        """Whether the broker accepts connections."""
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
        """The port of the first listener."""
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

    # --- how clients connect -----------------------------------------------------------------

    @property
    def ca_file(self) -> str:
        """The certificate that clients trust, as PEM. It exists from `start` to `stop`."""
        if self._security is None or not self._security.kind.has_tls:
            raise ConfigError("security", "", "this broker has no TLS")
        self._running()
        from cordwood.security.setup.local_security import ca_file

        return ca_file(self._certificates())

    def client_security(
        self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> "ClientSecurity":
        """How a client of ours connects as `user`, by default the first one."""
        from cordwood.security.clients.client_security import PLAINTEXT

        self._running()
        if self._security is None:
            return PLAINTEXT
        return self._security.client_security(self._certificates(), user, mechanism=mechanism)

    def client_config(
        self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """The settings of a client of confluent-kafka, with ``bootstrap.servers``."""
        from cordwood.security.clients.client_settings import librdkafka_settings

        settings = librdkafka_settings(self.client_security(user, mechanism=mechanism))
        return {"bootstrap.servers": self.bootstrap_servers, **settings}

    def kafka_python_config(
        self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """The arguments of a client of kafka-python, with ``bootstrap_servers``."""
        from cordwood.security.clients.client_settings import kafka_python_settings

        settings = kafka_python_settings(self.client_security(user, mechanism=mechanism))
        return {"bootstrap_servers": self.bootstrap_servers, **settings}

    def aiokafka_config(
        self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """The arguments of a client of aiokafka, with ``bootstrap_servers``."""
        from cordwood.security.clients.client_settings import aiokafka_settings
        from cordwood.security.clients.client_tls import tls_context

        security = self.client_security(user, mechanism=mechanism)
        context = tls_context(security) if security.protocol.has_tls else None
        return {"bootstrap_servers": self.bootstrap_servers, **aiokafka_settings(security, context)}

    def java_config(
        self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, str]:
        """The properties of a client in Java, and of Spark's Kafka source, without ``kafka.``."""
        from cordwood.security.clients.client_settings import java_properties

        settings = java_properties(self.client_security(user, mechanism=mechanism))
        return {"bootstrap.servers": self.bootstrap_servers, **settings}

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

    def _certificates(self) -> str:
        """The directory of certificates and keys, which is temporary in any case."""
        if self._security_dir is None:
            self._security_dir = tempfile.mkdtemp(prefix="cordwood-security-")
        return self._security_dir

    def _remove_temporary_dir(self) -> None:
        directories = [self._temporary_dir, self._security_dir]
        self._temporary_dir = self._security_dir = None
        for directory in directories:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)


def _security(
    given: "str | BrokerSecurity | None",
    users: Mapping[str, str] | None,
    acls: "Rules | None",
) -> "BrokerSecurity | None":
    if isinstance(given, str):
        from cordwood.security.setup.local_security import BrokerSecurity

        return BrokerSecurity(protocol=given, users=users or {}, acls=acls)
    if users is not None or acls is not None:
        raise TypeError('users and acls need security as text, such as security="sasl_ssl"')
    return given


def _partition_counts(topics: Topics) -> dict[str, int]:
    if isinstance(topics, str):
        raise TypeError(f"topics must be a list of names or a mapping, not the string {topics!r}")
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, 1)
