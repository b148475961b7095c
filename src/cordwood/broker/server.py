"""The broker: a store, served over Kafka's protocol.

    control loop   accepts, keeps groups, answers whatever is in memory; never touches the disk
    data loop      produce and fetch; their connections live here
    workers        requests that wait for the disk

So a slow disk or a hot partition delays those who produce and fetch, and no one's heartbeat.
"""

import contextlib
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.handlers.api_versions import unsupported_version_response
from cordwood.broker.net.acceptor import Acceptor
from cordwood.broker.net.dispatch import Dispatcher
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.net.memory_budget import MemoryBudget
from cordwood.broker.observing.observed_broker import ObservedBroker
from cordwood.broker.observing.request_metrics import RequestMetrics
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.fetch_handler import FetchHandler
from cordwood.broker.records.fetch_sessions import FetchSessions
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.produce_handler import ProduceHandler
from cordwood.broker.records.produce_lanes import ProduceLanes
from cordwood.broker.services import Services
from cordwood.clock import SystemClock
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey

if TYPE_CHECKING:
    from cordwood.broker.observing.http_endpoint import HttpEndpoint

logger = logging.getLogger(__name__)

_DRAIN_CHECK_S: Final = 0.01
_SWEEP_S_MAX: Final = 10.0
_ARCHIVE_READERS: Final = 4  # segments that are brought from archives side by side
_FRAME_STALL_S: Final = 30.0  # a frame that stops arriving half-way holds memory others wait for


class BrokerServer:
    """Serves one store. `start` and `stop` are for one thread, the owner's."""

    def __init__(self, store: Store, config: BrokerConfig, *, owns_store: bool = False) -> None:
        self.store = store
        self.config = config
        self.metrics = RequestMetrics()
        self._owns_store = owns_store
        self._control = EventLoop("cordwood-control")
        self._data = EventLoop("cordwood-data")
        self._workers = ThreadPoolExecutor(
            config.num_io_threads, thread_name_prefix="cordwood-worker"
        )
        # Not the workers: a slow archive would hold up who creates a topic or looks for a time.
        self._archive_readers = ThreadPoolExecutor(
            _ARCHIVE_READERS, thread_name_prefix="cordwood-archive"
        )
        self._clock = SystemClock()
        self._endpoint: HttpEndpoint | None = None
        self._is_started = False
        self._is_stopped = False
        self._dispatcher = Dispatcher(
            control=self._control,
            data=self._data,
            workers=self._workers,
            memory=MemoryBudget(config.queued_max_request_bytes),
            metrics=self.metrics,
            frame_bytes_max=config.socket_request_max_bytes,
            unsupported_version=unsupported_version_response,
        )
        self._acceptor = Acceptor(config, self._control, self._dispatcher)
        self._table = table = PartitionTable(store)
        watch = LogWatch(self._data)
        self._syncs = DiskSyncs(self._data)
        lanes = ProduceLanes(table, watch, self._syncs, self._data, self._clock, self.metrics)
        self._dispatcher.set_quick_handler(lanes)
        self.fetches = FetchHandler(
            table=table,
            watch=watch,
            loop=self._data,
            workers=self._archive_readers,
            sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots, self._data.now_s
            ),
            bytes_max=config.fetch_max_bytes,
        )
        self._dispatcher.add_frame_handler(
            ApiKey.PRODUCE, ProduceHandler(table, watch, self._syncs, self._data, lanes)
        )
        self._dispatcher.add_frame_handler(ApiKey.FETCH, self.fetches)

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen. On return the address is known and clients are answered."""
        assert not self._is_started
        host, port = self._acceptor.listen()
        identity = ClusterIdentity(
            node_id=self.config.node_id,
            cluster_id=self.store.cluster_id,
            host=self.config.advertised_host or _reachable(host),
            port=self.config.advertised_port or port,
            rack=self.config.broker_rack,
        )
        self.services = Services(
            store=self.store,
            table=self._table,
            config=self.config,
            identity=identity,
            scheduler=self._control,
            workers=self._workers,
            clock=self._clock,
        )
        self._dispatcher.add_routes(self.services.routes())
        missing = set(API_CATALOG) - self._dispatcher.served_apis
        assert not missing, f"advertised and not served: {missing}"
        self._is_started = True
        for loop in (self._control, self._data):
            self._sweep_later(loop)
            loop.start()
        self.services.start()
        self._control.call_soon(self._acceptor.start)
        if self.config.metrics_port is not None:
            self._endpoint = self._open_endpoint(identity)
        logger.info("listening on %s:%d", host, port)

    def _open_endpoint(self, identity: ClusterIdentity) -> "HttpEndpoint":
        # Not at the top: few brokers have one, and all would wait for its imports.
        from cordwood.broker.observing.http_endpoint import open_endpoint

        return open_endpoint(
            ObservedBroker(
                store=self.store,
                config=self.config,
                address=(identity.host, identity.port),
                requests=self.metrics,
                is_responsive=self.is_responsive,
                groups=self.services.census.take,
                connection_count=lambda: self.connection_count,
                is_coordinator_loaded=self.services.census.is_loaded,
            )
        )

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where metrics and health are served; None where they are not."""
        return None if self._endpoint is None else self._endpoint.address

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that are listened on."""
        return self._acceptor.address

    def stop(self, timeout_s: float | None = None) -> None:
        """Finish the requests under way, at most `timeout_s`, then let go. Safe to repeat."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._endpoint is not None:
            self._endpoint.stop()
        if self._is_started:
            self._stop_serving(
                self.config.shutdown_timeout_ms / 1000 if timeout_s is None else timeout_s
            )
        else:
            self._acceptor.stop()
            for loop in (self._control, self._data):
                loop.stop()
        self._syncs.stop()
        self._workers.shutdown()
        self._archive_readers.shutdown(cancel_futures=True)
        if self._owns_store:
            self.store.close()

    def _stop_serving(self, timeout_s: float) -> None:
        self._control.call_soon(self._acceptor.stop)
        self._dispatcher.is_stopping = True
        self._data.call_soon(self.fetches.finish_all)
        self._control.call_soon(self.services.release_waiting)
        for loop in (self._control, self._data):
            drained = threading.Event()
            self._await_idle(loop, drained)
            if not drained.wait(timeout_s):
                logger.warning("requests were still under way after %.1f s", timeout_s)
        self.services.stop()
        for loop in (self._control, self._data):
            loop.call_soon(lambda loop=loop: self._close_all(loop))  # type: ignore[misc]
            loop.stop()

    def abandon(self) -> None:
        """Drop everything as a crash would: nothing is finished, synced or marked. For tests."""
        self._is_stopped = True
        self._dispatcher.is_stopping = True
        if self._is_started:
            self._control.call_soon(self._acceptor.stop)
            for loop in (self._control, self._data):
                loop.call_soon(lambda loop=loop: self._close_all(loop))  # type: ignore[misc]
                loop.stop()
            self.services.stop()
        if self._endpoint is not None:
            self._endpoint.stop()
        self._syncs.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._archive_readers.shutdown(wait=False, cancel_futures=True)

    # --- connections -------------------------------------------------------------------------

    def _await_idle(self, loop: EventLoop, drained: threading.Event) -> None:
        """Set `drained` once no connection of `loop` has a request or an answer under way."""

        def look() -> None:
            if all(connection.is_idle for connection in self._dispatcher.connections(loop)):
                drained.set()
            else:
                loop.call_later(_DRAIN_CHECK_S, look)

        loop.call_soon(look)

    def _close_all(self, loop: EventLoop) -> None:
        for connection in self._dispatcher.connections(loop):
            connection.close("")

    def _sweep_later(self, loop: EventLoop) -> None:
        idle_s = self.config.connections_max_idle_ms / 1000

        def sweep() -> None:
            now_s = loop.now_s()
            for connection in self._dispatcher.connections(loop):
                quiet_s = now_s - connection.last_active_s
                if quiet_s >= _FRAME_STALL_S and connection.is_receiving:
                    connection.close(f"a request stopped arriving {quiet_s:.0f} s ago")
                elif quiet_s >= idle_s and not connection.is_owed:
                    connection.close("")
            loop.call_later(min(idle_s / 4, _SWEEP_S_MAX), sweep)

        loop.call_soon(sweep)

    @property
    def connection_count(self) -> int:
        return self._dispatcher.connection_count

    @property
    def loop_turns(self) -> tuple[int, int]:
        """How often the loops have turned: two numbers that move while they live."""
        return self._control.turns, self._data.turns

    def is_responsive(self, timeout_s: float) -> bool:
        """Whether both loops answer within the time."""
        for loop in (self._control, self._data):
            answered = threading.Event()
            loop.call_soon(answered.set)
            if not answered.wait(timeout_s):
                return False
        return True


def _reachable(host: str) -> str:
    """A name under which other machines find this one, where it listens on all addresses."""
    if host not in {"0.0.0.0", "::"}:
        return host
    with contextlib.suppress(OSError):
        return socket.getfqdn()
    return "localhost"
