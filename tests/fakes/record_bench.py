"""Produce and fetch over a real store and real sockets, in loops that are turned by hand."""

import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.broker.handlers.api_versions import unsupported_version_response
from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.connections.connection_registry import ConnectionRegistry
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.memory.memory_budget import MemoryBudget
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.net.requests.session import UNLIMITED, Access
from cordwood.broker.net.routing.request_router import RequestRouter
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.fetch_handler import FetchHandler
from cordwood.broker.records.fetch_sessions import FetchSessions
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.pending_produces import PendingProduces
from cordwood.broker.records.produce_handler import ProduceHandler
from cordwood.broker.records.produce_lanes import ProduceLanes
from cordwood.broker.security.client_quotas import ClientQuotas
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from cordwood.protocol.api_catalog import ApiKey
from fakes.client_batches import NOW
from fakes.connection_bench import InlineExecutor
from fakes.manual_clock import ManualClock
from fakes.sessions import LOCAL_SESSION

TURNS = 8
FRAME_BYTES_MAX = 1 << 20


class _NoReaders:
    def submit(self, archive: str, read: object) -> None:
        raise AssertionError("nothing is archived here")


class RecordBench:
    """A broker's way of records, with any number of clients.

    Without `has_short_ways` every request takes the long way, which says what is right.
    """

    def __init__(
        self,
        directory: Path,
        topics: Mapping[str, Mapping[str, object]],
        *,
        clients: int = 1,
        has_short_ways: bool = True,
        durability: str = "os",
    ) -> None:
        clock = ManualClock(NOW)
        self.store = Store(
            [str(directory)],
            StoreSetup(
                defaults=TopicConfig(durability=durability),
                has_housekeeping=False,
                free_bytes_min=0,
                clock=clock,
            ),
        )
        for name, config in topics.items():
            self.store.create_topic(name, config=config)
        self.loop = EventLoop("data")
        self.loop._thread_id = threading.get_ident()
        self.quotas = ClientQuotas()
        self.watch = LogWatch(self.loop)
        self.syncs = DiskSyncs(self.loop, self.watch.tell_early)
        table = PartitionTable(self.store)
        pending = PendingProduces(self.loop, self.watch, table)
        self.fetches = FetchHandler(
            table=table,
            watch=self.watch,
            loop=self.loop,
            readers=_NoReaders(),
            sessions=FetchSessions(10, self.loop.now_s),
            bytes_max=1 << 20,
            quotas=self.quotas,
        )
        self.lanes = ProduceLanes(
            table=table,
            watch=self.watch,
            syncs=self.syncs,
            pending=pending,
            loop=self.loop,
            clock=clock,
            appended=self.fetches.soles.appended,
            transactions=self.store.transactions,
        )
        self.produces = ProduceHandler(
            table=table,
            syncs=self.syncs,
            pending=pending,
            lanes=self.lanes,
            loop=self.loop,
            long_work=InlineExecutor(),
            transactions=self.store.transactions,
            quotas=self.quotas,
        )
        if not has_short_ways:
            self.lanes.take = lambda *_: False  # type: ignore[method-assign]
            self.fetches.soles.take = lambda *_: False  # type: ignore[method-assign]
        self.metrics = RequestMetrics()
        self.router = RequestRouter(
            control=self.loop,
            data=self.loop,
            workers=InlineExecutor(),
            long_work=InlineExecutor(),
            metrics=self.metrics,
            unsupported_version=unsupported_version_response,
            quotas=self.quotas,
        )
        self.router.add_frame_handler(ApiKey.PRODUCE, self.produces)
        self.router.add_frame_handler(ApiKey.FETCH, self.fetches)
        if has_short_ways:
            self.router.gather_frames(self.lanes.take, self.lanes.take_all)
        self._host = ConnectionHost(
            router=self.router,
            registry=ConnectionRegistry([self.loop]),
            memory=MemoryBudget(1 << 20),
            metrics=self.metrics,
            frame_bytes_max=FRAME_BYTES_MAX,
            access_of=lambda _principal, _host: UNLIMITED,
        )
        self.clients: list[socket.socket] = []
        self.connections: list[ClientConnection] = []
        self.connect(clients)

    def connect(self, count: int) -> None:
        """So many new clients."""
        for _ in range(count):
            self._connect()

    def disconnect(self) -> None:
        """All clients leave."""
        for connection, client in zip(self.connections, self.clients, strict=True):
            connection.close("")
            client.close()
        self.connections.clear()
        self.clients.clear()

    def _connect(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        session = replace(LOCAL_SESSION, frame_bytes_max=FRAME_BYTES_MAX)
        connection = ClientConnection(ours, session, self.loop, self._host)
        self._host.registry.add(connection)
        connection.attach()
        self.clients.append(theirs)
        self.connections.append(connection)

    def restrict(self, client: int, access: Access) -> None:
        """What the client may do from now on."""
        connection = self.connections[client]
        connection.session = replace(connection.session, access=access)

    def exchange(self, *sends: tuple[int, bytes]) -> list[bytes]:
        """Send these bytes, each by its client, and turn the loop; what each client has got."""
        for client, data in sends:
            if not self.connections[client].is_closed:
                self.clients[client].sendall(data)
        self.turn()
        return [self._received(client) for client in self.clients]

    def turn(self) -> None:
        for _ in range(TURNS):
            self.loop.call_soon(lambda: None)  # so that it does not wait
            self.loop._turn()

    @staticmethod
    def _received(client: socket.socket) -> bytes:
        try:
            return client.recv(1 << 20)
        except BlockingIOError:
            return b""

    @property
    def closed(self) -> Sequence[bool]:
        return [connection.is_closed for connection in self.connections]

    def log_bytes(self) -> dict[str, bytes]:
        """The content of every log file, by topic and partition."""
        found: dict[str, bytes] = {}
        for topic in self.store.topics():
            for log in self.store.topic(topic).partitions:
                for path in sorted(Path(log.directory).glob("*.log")):
                    found[f"{log.name}/{path.name}"] = path.read_bytes()
        return found

    def close(self) -> None:
        self.disconnect()
        self.loop._close()
        self.syncs.stop()
        self.store.close()
