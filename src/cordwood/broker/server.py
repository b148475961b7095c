"""The broker: a store, served over Kafka's protocol.

    control loop   accepts clients, keeps groups, answers from memory; never touches the disk
    data loop      produce and fetch; their connections live here
    workers        requests that wait for the disk
    long work      one thread: large requests are read, batches that inflate a lot are checked
    TLS loop       handshakes, if a listener has TLS; then connections go to the control loop

So a slow disk or a busy partition delays produce and fetch requests, but no heartbeat.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.cluster_view import ClusterView, SoleBroker
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.handlers.api_versions import unsupported_version_response
from cordwood.broker.handlers.transaction_frames import TransactionFrames
from cordwood.broker.net.accepting.acceptor import Acceptor
from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.connections.connection_registry import ConnectionRegistry
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.memory.memory_budget import MemoryBudget
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.net.routing.request_router import RequestRouter
from cordwood.broker.net.routing.workers import Workers
from cordwood.broker.observing.observed_broker import ObservedBroker, ObservedLimits
from cordwood.broker.records.archive_reads import ArchiveReaders
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.early_answers import EarlyAnswers
from cordwood.broker.records.fetch_handler import FetchHandler
from cordwood.broker.records.fetch_sessions import FetchSessions
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.pending_produces import PendingProduces
from cordwood.broker.records.produce_handler import ProduceHandler
from cordwood.broker.records.produce_lanes import ProduceLanes
from cordwood.broker.records.transaction_rounds import TransactionRounds
from cordwood.broker.security.audit_log import AuditLog, AuditTarget, audit_targets
from cordwood.broker.security.audit_topic import AuditTopic
from cordwood.broker.security.audited_decisions import AuditedDecisions
from cordwood.broker.security.authentication import Authentications
from cordwood.broker.security.broker_security import BrokerSecurity
from cordwood.broker.security.certificate_watch import CertificateWatch
from cordwood.broker.security.client_quotas import ClientQuotas
from cordwood.broker.security.connection_rates import ConnectionRates
from cordwood.broker.services import Services
from cordwood.broker.telemetry.client_metrics import ClientMetrics
from cordwood.clock import SystemClock
from cordwood.errors import ConfigError, CordwoodError
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.security.access.access_event import AccessEvents
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_source import SecuritySource
from cordwood.security.security_state import SecurityState

if TYPE_CHECKING:
    from cordwood.broker.cluster.cluster_assembly import MemberSurroundings
    from cordwood.broker.cluster.cluster_audit_topic import ClusterAuditTopic
    from cordwood.broker.cluster.cluster_member import ClusterMember
    from cordwood.broker.cluster.cluster_security import ClusterSecurity
    from cordwood.broker.cluster.cluster_services import ClusterServices
    from cordwood.broker.net.accepting.tls_handshakes import TlsHandshakes
    from cordwood.broker.observing.http_server import HttpServer
    from cordwood.broker.observing.otel_export import OtelExport
    from cordwood.broker.security.peer_tls import PeerTls
    from cordwood.broker.security.tls_listener import TlsListener

logger = logging.getLogger(__name__)

# How long the steps after the last request may take in all, if the requests took all the time.
_STOP_S_MIN: Final = 0.5


class Joining(Protocol):
    """How a member joins the others, and leaves them."""

    def start(self, member: "ClusterMember", accept: Callable[[], None]) -> None: ...

    def leave(self, when_left: Callable[[], None]) -> None: ...

    def stop(self) -> None: ...


MemberAssembly = Callable[["MemberSurroundings"], "tuple[Joining, ClusterMember, ClusterServices]"]


class BrokerServer:
    """Serves one store. `start` and `stop` are for one thread, the owner's."""

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        *,
        security: SecurityConfig | None = None,
        owns_store: bool = False,
        cluster: ClusterConfig | None = None,
        assemble: MemberAssembly | None = None,
        listening: Mapping[str, socket.socket] | None = None,
        when_failed: Callable[[CordwoodError], None] = lambda _error: None,
    ) -> None:
        """With `cluster` it is a member of one; the store then has the role `AMONG_OTHERS`.

        `assemble` makes it a member in another way. `listening` are sockets of listeners, by
        name, that are bound already.

        `when_failed` is called, by another thread, if it cannot be a member any more.
        """
        self._cluster = cluster if cluster is not None and cluster.is_member else None
        self._when_failed = when_failed
        self._assemble = assemble
        self._joining: Joining | None = None
        self._transactions: TransactionRounds | None = None
        self.member: ClusterMember | None = None
        self.store = store
        self.config = config
        self.security = (
            SecurityConfig.assemble(config, cluster=self._cluster) if security is None else security
        )
        self.metrics = RequestMetrics()
        try:
            self.security_file = self._open_security()
        except BaseException:
            if owns_store:
                store.close()
            raise
        self.quotas = ClientQuotas(self.security.quotas)
        self._rates = ConnectionRates(self.security.quotas)
        self._clock = SystemClock()
        self._audit_topic: ClusterAuditTopic | None = None
        self.audit = AuditLog(
            self.security.audit,
            self._clock,
            audit_targets(self.security.audit, self._new_audit_topic),
        )
        decisions = AuditedDecisions(self.audit)
        self.access_events = AccessEvents(decisions.decided)
        self._access = BrokerSecurity(self.security, self.security_file, self.access_events)
        self._owns_store = owns_store
        try:
            self.authentications = Authentications(
                self.security.listeners, self.security_file, self._clock
            )
        except BaseException:
            if owns_store:
                store.close()
            raise
        self.authentications.watch(decisions)
        self._control = EventLoop("cordwood-control")
        self._data = EventLoop("cordwood-data")
        self._dynamic = DynamicConfigs(store, config)
        self._dynamic.restore()
        self._workers = Workers(self._dynamic.broker.num_io_threads)
        self._archive_readers = ArchiveReaders()
        # One thread: what takes long, such as a request with a million items, delays only its like.
        self._long_work = ThreadPoolExecutor(1, thread_name_prefix="cordwood-long")
        self._endpoint: HttpServer | None = None
        self._otel: OtelExport | None = None
        self._clients: ClientMetrics | None = None
        is_shown = config.metrics_port is not None or config.otel_endpoint is not None
        if is_shown:
            self._clients = ClientMetrics(bytes_max=config.telemetry_max_bytes, new_id=uuid.uuid4)
        self._is_started = False
        self._is_stopped = False
        self._router = RequestRouter(
            control=self._control,
            data=self._data,
            workers=self._workers,
            long_work=self._long_work,
            metrics=self.metrics,
            unsupported_version=unsupported_version_response,
            events=self.audit,
            quotas=self.quotas,
        )
        self._tls: EventLoop | None = None
        if any(listener.tls is not None for listener in self.security.listeners):
            self._tls = EventLoop("cordwood-tls")
        self._connections = ConnectionRegistry(
            loop for loop in (self._control, self._data, self._tls) if loop is not None
        )
        self._host = ConnectionHost(
            router=self._router,
            registry=self._connections,
            memory=MemoryBudget(config.queued_max_request_bytes),
            metrics=self.metrics,
            frame_bytes_max=config.socket_request_max_bytes,
            access_of=self._access.access_of,
            authentications=self.authentications.by_listener,
            certificate_events=self.authentications.certificate_events,
        )
        self._handshakes = None if self._tls is None else self._new_handshakes(self._tls)
        self._acceptors = [
            Acceptor(
                listener,
                self._dynamic.broker,
                self._control,
                self._host,
                self._handshakes,
                self._rates,
                None if listening is None else listening[listener.name],
            )
            for listener in self.security.listeners
        ]
        self._certificates = CertificateWatch(())
        self._peer_tls: list[PeerTls] = []  # of connections that the broker opens
        self._dynamic.when_changed(self._reconfigure)
        self._table = PartitionTable(store)
        self._watch = watch = LogWatch(self._data)
        self._syncs = DiskSyncs(self._data, watch.tell_early)
        self._early = EarlyAnswers(self._data, watch, self._workers)
        self._route_records(watch)
        self.security_file.when_changed(self._apply_quotas)

    def _new_handshakes(self, loop: EventLoop) -> "TlsHandshakes":
        # Not at the top: a broker without TLS does not load it.
        from cordwood.broker.net.accepting.tls_handshakes import TlsHandshakes

        return TlsHandshakes(loop, self._control, self._host)

    def _open_security(self) -> SecuritySource:
        """The users, rules and quotas in force: those of the store, or of the cluster."""
        self._cluster_access: ClusterSecurity | None = None
        self._own_security: SecurityFile | None = None
        if self._cluster is None:
            self._own_security = self.store.open_security()
            return self._own_security
        # Not at the top: a broker that is alone does not load it.
        from cordwood.broker.cluster.cluster_assembly import member_access

        self._cluster_access = member_access(self.store, self.security)
        return self._cluster_access

    def _new_audit_topic(self, name: str) -> AuditTarget:
        if self._cluster is None:
            return AuditTopic(self.store, name)
        # Not at the top: a broker that is alone does not load it.
        from cordwood.broker.cluster.cluster_audit_topic import ClusterAuditTopic

        self._audit_topic = ClusterAuditTopic(name, self._clock)
        return self._audit_topic

    def _apply_quotas(self, state: SecurityState) -> None:
        """Quotas have changed: clients that are muted because of the old ones are read again."""
        self._rates.apply(state)
        if self.quotas.apply(state):
            for loop in (self._control, self._data):
                self._connections.unmute_all(loop)

    def _reconfigure(self, config: BrokerConfig) -> None:
        self._workers.resize(config.num_io_threads)
        for acceptor in self._acceptors:
            self._control.call_soon(partial(acceptor.reconfigure, config))

    @property
    def _is_member(self) -> bool:
        return self._cluster is not None or self._assemble is not None

    def _route_records(self, watch: LogWatch) -> None:
        table, syncs, config = self._table, self._syncs, self.config
        pending = PendingProduces(self._data, watch, table)
        self.fetches = FetchHandler(
            table=table,
            watch=watch,
            loop=self._data,
            readers=self._archive_readers,
            sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots, self._data.now_s
            ),
            bytes_max=config.fetch_max_bytes,
            quotas=self.quotas,
        )
        lanes = ProduceLanes(
            table=table,
            watch=watch,
            syncs=syncs,
            pending=pending,
            loop=self._data,
            clock=self._clock,
            appended=self.fetches.soles.appended,
            transactions=None if self._is_member else self.store.transactions,
            closed_topics=self.security.audit.closed_topics,
        )
        self._produces = ProduceHandler(
            table=table,
            syncs=syncs,
            pending=pending,
            lanes=lanes,
            loop=self._data,
            long_work=self._long_work,
            transactions=self.store.transactions,
            quotas=self.quotas,
            closed_topics=self.security.audit.closed_topics,
        )
        self._router.add_frame_handler(ApiKey.PRODUCE, self._produces)
        self._router.gather_frames(lanes.take, lanes.take_all)
        self._router.add_frame_handler(ApiKey.FETCH, self.fetches)

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen. On return the address is known, and clients are answered.

        A member of a cluster answers them once it knows the cluster; until then they wait.
        """
        assert not self._is_started
        for acceptor in self._acceptors:
            acceptor.load_certificates()
        for acceptor in self._acceptors:
            acceptor.listen()
        identity = ClusterIdentity.of_broker(
            self.config,
            self.store.cluster_id,
            [acceptor.known_as for acceptor in self._acceptors],
        )
        view: ClusterView = SoleBroker(identity, self.store)
        cluster = self._join()
        if cluster is not None:
            view = cluster.member.view
        self.services = Services(
            store=self.store,
            security_file=self.security_file,
            table=self._table,
            dynamic=self._dynamic,
            identity=identity,
            view=view,
            scheduler=self._control,
            workers=self._workers,
            clock=self._clock,
            when_visible=self._early.when_visible,
            security=self._access,
            cluster=cluster,
            events=self.audit,
            clients=self._clients,
        )
        self._router.add_routes(self.services.routes())
        if cluster is None:
            self._shorten_transactions(view)
        missing = set(API_CATALOG) - self._router.served_apis
        assert not missing, f"advertised and not served: {missing}"
        self._is_started = True
        refuse_after_fork(self, "the broker")
        for loop in (self._control, self._data):
            self._connections.sweep(loop, self.config.connections_max_idle_ms / 1000)
            loop.start()
        self.services.start()
        self.authentications.start()
        self._start_tls()
        if self._joining is not None and self.member is not None:
            self._joining.start(self.member, self._start_accepting)
        else:
            self._start_accepting()
        if self.config.metrics_port is not None:
            self._endpoint = self._open_endpoint(identity)
        if self.config.otel_endpoint is not None:
            self._otel = self._open_otel(self.config.otel_endpoint, identity)
        for acceptor in self._acceptors:
            logger.info("%s listens on %s:%d", acceptor.known_as.name, *acceptor.address)

    def _shorten_transactions(self, view: ClusterView) -> None:
        """The data loop does the work of the coordinator, and answers its usual requests."""
        coordinator = self.store.transactions
        frames = TransactionFrames(
            coordinator,
            view,
            self._router,
            self.metrics,
            closed_topics=self.security.audit.closed_topics,
        )
        for api in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
            self._router.add_frame_handler(api, frames)
            self._router.take_frames[api] = frames.take
        self._transactions = TransactionRounds(
            self._data, self._watch, self._syncs, coordinator.work
        )
        self._transactions.start()

    def _join(self) -> "ClusterServices | None":
        """Everything of a member of a cluster. It joins once the loops turn."""
        assemble = self._assemble
        if not self._is_member:
            return None
        # Not at the top: a broker that is alone does not load it.
        from cordwood.broker.cluster.cluster_assembly import (
            MemberSurroundings,
            MemberTls,
            assemble_member,
        )

        tls: MemberTls | None = None
        if assemble is None:
            assert self._cluster is not None
            assert self.security.peers is not None, "a member knows how to connect to others"
            tls = MemberTls.of_config(self.security.peers)
            self._peer_tls = tls.watched()
            assemble = partial(assemble_member, self._cluster)
        self._joining, self.member, services = assemble(
            MemberSurroundings(
                store=self.store,
                broker=self.config,
                security=self.security,
                listeners=[acceptor.known_as for acceptor in self._acceptors],
                control_loop=self._control,
                data_loop=self._data,
                watch=self._watch,
                syncs=self._syncs,
                table=self._table,
                workers=self._workers,
                clock=self._clock,
                when_failed=self._when_failed,
                dynamic=self._dynamic,
                access=self._cluster_access,
                tls=tls,
                security_file=self._own_security,
            ),
        )
        if self._audit_topic is not None:
            self._audit_topic.serve(services.audit_ways(self._control))
        self._table.cluster = self.member
        self._produces.transactions = services.transactions.verification
        return services

    def _start_tls(self) -> None:
        if self._tls is not None:
            self._tls.start()
        self._certificates = CertificateWatch([*self._tls_listeners(), *self._peer_tls])
        self._certificates.start()

    def _tls_listeners(self) -> "list[TlsListener]":
        return [acceptor.tls for acceptor in self._acceptors if acceptor.tls is not None]

    def _open_endpoint(self, identity: ClusterIdentity) -> "HttpServer":
        # Not at the top: its imports would delay the start of every broker, and few have one.
        from cordwood.broker.observing.http_endpoint import open_endpoint

        return open_endpoint(self._observed(identity))

    def _open_otel(self, endpoint: str, identity: ClusterIdentity) -> "OtelExport":
        # Not at the top, for the same reason.
        try:
            from cordwood.broker.observing.metrics import BrokerMetrics
            from cordwood.broker.observing.otel_export import OtelExport
        except ModuleNotFoundError as error:
            raise ConfigError(
                "otel.endpoint",
                endpoint,
                f"needs the package {error.name}: pip install 'cordwood[otel]'",
            ) from error
        export = OtelExport(
            BrokerMetrics(self._observed(identity)),
            endpoint,
            interval_s=self.config.otel_interval_ms / 1000,
            instance=f"{identity.host}:{identity.port}",
        )
        export.start()
        return export

    def _observed(self, identity: ClusterIdentity) -> ObservedBroker:
        return ObservedBroker(
            store=self.store,
            config=self.config,
            address=(identity.host, identity.port),
            requests=self.metrics,
            authentications=self.authentications.counts,
            is_responsive=self.is_responsive,
            groups=self.services.census.take,
            connection_count=lambda: self.connection_count,
            is_coordinator_loaded=self.services.census.is_loaded,
            tls={listener.name: listener for listener in self._tls_listeners()},
            hosts=frozenset(acceptor.known_as.host for acceptor in self._acceptors),
            limits=ObservedLimits(
                quotas=self.quotas.view,
                muted_connections=lambda: self._connections.muted_count,
                delayed_connections=lambda: self._rates.delayed,
            ),
            audit=self.audit.counts,
            insecure_listeners=tuple(
                str(each.listener) for each in self.security.insecure_listeners
            ),
            lost_fetch_count=lambda: self.fetches.lost_records.fetch_count,
            cluster=None if self.member is None else self.member.facts,
            clients=self._clients,
            transactions=self.services.transactions,
        )

    @property
    def has_tls(self) -> bool:
        """Whether a listener has TLS, or connections to other brokers or controllers."""
        return self._tls is not None or bool(self._peer_tls)

    def reload_certificates(self) -> None:
        """Load the files of all TLS listeners again, soon. Safe in a signal handler.

        New connections use them, if they are sound; see the log.
        """
        self._certificates.look_now()

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where metrics and health are served; None if they are not."""
        return None if self._endpoint is None else self._endpoint.address

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that the first listener listens on."""
        return self._acceptors[0].address

    def stop(self, timeout_s: float | None = None) -> None:
        """Finish the requests under way, for at most `timeout_s`, then stop. Safe to repeat.

        All steps share one deadline. What waits for the data directories alone is not cut off:
        syncs that were begun, queued group records, and the closing of the store.
        In a forked child it does nothing: the broker is its parent's.
        """
        if is_forked(self) or self._is_stopped:
            return
        self._is_stopped = True
        if timeout_s is None:
            timeout_s = self.config.shutdown_timeout_ms / 1000
        deadline_s = time.monotonic() + timeout_s
        if self._endpoint is not None:
            self._endpoint.stop()
        if self._otel is not None:
            self._otel.stop(min(_STOP_S_MIN, timeout_s))
        if self._is_started:
            self._stop_serving(deadline_s)
        else:
            for acceptor in self._acceptors:
                acceptor.stop()
            for loop in self._loops():
                loop.stop()
        self.authentications.stop()
        self._syncs.stop()
        if self._transactions is not None:
            self._transactions.stop()
        self._archive_readers.stop()
        deadline_s = max(deadline_s, time.monotonic() + _STOP_S_MIN)
        _stop_pool(self._workers, deadline_s)
        _stop_pool(self._long_work, deadline_s)
        self.audit.stop()  # before the store, which may have its topic
        if self._owns_store:
            self.store.close(archive_timeout_s=_left_s(deadline_s))

    def _loops(self) -> list[EventLoop]:
        """All loops. Handshakes first: connections leave their loop for the others."""
        return [loop for loop in (self._tls, self._control, self._data) if loop is not None]

    def _stop_handshakes(self) -> None:
        """So that no connection comes to the other loops any more."""
        self._certificates.stop()
        if self._tls is not None:
            is_stopped = threading.Event()
            self._control.call_soon(is_stopped.set)  # after the acceptors were
            is_stopped.wait(_STOP_S_MIN)
            self._connections.close_all(self._tls)
            self._tls.stop()

    def _leave_cluster(self, deadline_s: float) -> None:
        """Let other brokers lead, if the controllers can be reached. Clients are still served."""
        joining = self._joining
        if joining is None:
            return
        if self._cluster is not None and self._cluster.controlled_shutdown_enable:
            has_left = threading.Event()
            joining.leave(has_left.set)
            if not has_left.wait(_left_s(deadline_s)):
                logger.warning("the controllers did not move all leaders in time; stopping")
        joining.stop()

    def _end_roles(self) -> None:
        """Lead and follow no more: what is appended from here on would be lost."""
        if self.member is not None:
            is_ended = threading.Event()

            def end(member: "ClusterMember") -> None:
                member.end_roles()
                is_ended.set()

            self._data.call_soon(partial(end, self.member))
            is_ended.wait(_STOP_S_MIN)

    def _stop_serving(self, deadline_s: float) -> None:
        self._leave_cluster(deadline_s)
        self._stop_accepting()
        self._stop_handshakes()
        self._router.is_stopping = True
        self._data.call_soon(self.fetches.finish_all)
        self._control.call_soon(self.services.release_waiting)
        draining = [(loop, self._connections.drain(loop)) for loop in (self._control, self._data)]
        for loop, drained in draining:
            if not drained.wait(_left_s(deadline_s)):
                logger.warning("%s: requests are still under way; stopping without them", loop.name)
        self.services.stop()
        if self._audit_topic is not None:
            self.audit.stop()  # while the leaders of its topic can be reached
        self._end_roles()
        for loop in (self._control, self._data):
            self._connections.close_all(loop)
            loop.stop()
        self._syncs.stop()  # before the member, whose jobs may wait for a sync under way
        if self.member is not None:
            self.member.stop()

    def _start_accepting(self) -> None:
        """Let clients in. Any thread may call it."""
        for acceptor in self._acceptors:
            self._control.call_soon(acceptor.start)

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            self._control.call_soon(acceptor.stop)

    def abandon(self) -> None:
        """Stop as in a crash: nothing is finished, synced or marked. For tests."""
        if is_forked(self):
            return
        self._is_stopped = True
        self._router.is_stopping = True
        if self._is_started:
            self._stop_accepting()
            self._stop_handshakes()
            if self._joining is not None:
                self._joining.stop()
            self._end_roles()
            for loop in (self._control, self._data):
                self._connections.close_all(loop)
                loop.stop()
            self.services.stop()
            self._syncs.stop()
            if self.member is not None:
                self.member.stop()
        if self._endpoint is not None:
            self._endpoint.stop()
        self.authentications.stop()
        self._syncs.stop()
        if self._transactions is not None:
            self._transactions.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._archive_readers.stop()
        self._long_work.shutdown(wait=False, cancel_futures=True)
        self.audit.stop()

    def close_inherited(self) -> None:
        """In a forked child, stop listening: see `fork_refusal`."""
        for acceptor in self._acceptors:
            acceptor.close_inherited()

    # --- state -------------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        return self._connections.count

    def is_responsive(self, timeout_s: float) -> bool:
        """Whether both loops answer within `timeout_s`."""
        for loop in (self._control, self._data):
            answered = threading.Event()
            loop.call_soon(answered.set)
            if not answered.wait(timeout_s):
                return False
        return True


def _left_s(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.0)


def _stop_pool(pool: Workers | ThreadPoolExecutor, deadline_s: float) -> None:
    """Wait for the threads of a pool, but not for one that waits for a silent archive."""
    stopping = threading.Thread(target=pool.shutdown, name="cordwood-stop", daemon=True)
    stopping.start()
    stopping.join(_left_s(deadline_s))
    if stopping.is_alive():
        pool.shutdown(wait=False, cancel_futures=True)
        logger.warning("a request still runs in a thread; stopping without it")
