"""Runs the processes of a node: starts them, starts them again, and ends them.

    1  lock the data directories; recover the store as a single process does; split its state
    2  open the keeper's store; bind the sockets of all listeners
    3  start the workers, and wait until each is ready
    4  a worker that ends is started again: at once, then after longer and longer pauses
    5  a worker that answers nothing for a minute is killed, and then 4 happens. So is one that is
       not ready yet and makes no progress for five minutes
    6  at the end: stop the workers, close the keeper's store, merge the state, release the locks

The sockets stay open here, so clients that connect while a worker starts wait for it. If this
process is killed, its workers end by themselves, and their locks keep others out until then.
"""

import logging
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final, Self

from cordwood.broker.cluster.control.keeper_link import FrameKind
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.listeners import SecurityProtocol
from cordwood.broker.net.accepting.acceptor import bound_socket
from cordwood.broker.processes.directory_preparation import HeldDirectories, prepare_store
from cordwood.broker.processes.keeper import COORDINATOR_PARTITIONS, Keeper
from cordwood.broker.processes.process_task import (
    PROCESSES_MAX,
    NodeConfig,
    ProcessTask,
    check_ports,
)
from cordwood.broker.processes.worker_process import BEAT_S, WorkerProcess
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.local.process_cluster import (
    FEATURES,
    TRANSACTION_FEATURES,
    ProcessCluster,
    ProcessMember,
)
from cordwood.errors import ConfigError, StorageError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.log.partition.state.replica_role import OWNED
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.offsets_topic import OFFSETS_CONFIG
from cordwood.log.topics.store_share import StoreShare, owner_of
from cordwood.log.transactions.transaction_topic import TRANSACTIONS_CONFIG

logger = logging.getLogger(__name__)

_PROTOCOLS: Final = {protocol: number for number, protocol in enumerate(SecurityProtocol)}
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 10.0
_SOUND_S: Final = 30.0  # a worker that lived so long is started again at once
_KILL_S: Final = 10.0  # how much longer than shutdown.timeout.ms a worker may take to end


def check_processes(config: NodeConfig, count: int) -> None:
    """Raise `ConfigError` for what several processes do not serve yet."""
    if not 1 <= count <= PROCESSES_MAX:
        raise ConfigError("--processes", count, f"must be 1 to {PROCESSES_MAX}")
    if config.security.audit.audit_topic is not None:
        raise ConfigError(
            "audit.topic",
            config.security.audit.audit_topic,
            "is not available with --processes; use audit.file",
        )
    check_ports(config, count)


class Supervisor:
    """The processes of one node. `start` and `stop` are for one thread, the owner's."""

    def __init__(self, config: NodeConfig, count: int) -> None:
        check_processes(config, count)
        self._config = config
        self._count = count
        self._changing = threading.Condition()
        self._workers: dict[int, WorkerProcess] = {}
        self._ready: set[int] = set()
        self._started_s: dict[int, float] = {}
        self._pauses_s: dict[int, float] = {}
        self._is_stopping = False
        self._failure = ""
        self._resources = ExitStack()
        self._listening: list[dict[str, socket.socket]] = []
        self._keeper: Keeper | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- beginning ---------------------------------------------------------------------------

    def start(self) -> None:
        """Return once every worker serves. Raises `StorageError` if one cannot."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        config, count = self._config, self._count
        self._bind()
        directories = self._resources.enter_context(HeldDirectories(config.store))
        has_transactions = config.peer_listener is not None
        epoch, topics = prepare_store(
            directories, config.store, config.topic_defaults, has_transactions=has_transactions
        )
        directories.share(count, topics)
        self._resources.callback(directories.take_back)
        self.store = Store(
            directories.paths,
            StoreSetup(
                fs=directories.fs,
                defaults=config.topic_defaults,
                free_bytes_min=config.store.log_dir_free_bytes_min,
                role=OWNED,
                share=StoreShare(count=count),
            ),
        )
        self._resources.callback(self.store.close)
        self._create_internal_topics(has_transactions=has_transactions)
        self._keeper = Keeper(
            self.store,
            config,
            ProcessCluster(
                [self._member(index) for index in range(count)],
                owner_of=lambda topic, number: owner_of(topic, number, count),
                first_epoch=epoch,
                features={**FEATURES, **(TRANSACTION_FEATURES if has_transactions else {})},
            ),
            self._broadcast,
        )
        for index in range(count):
            self._launch(index)
        threading.Thread(target=self._watch, name="cordwood-watching", daemon=True).start()
        self._await_ready()

    def _bind(self) -> None:
        for index in range(self._count):
            worker = self._config.of_worker(index)
            bound: dict[str, socket.socket] = {}
            self._listening.append(bound)
            for listener in worker.security.listeners:
                bound[listener.name] = bound_socket(listener, worker.broker)

    def _close_sockets(self) -> None:
        for bound in self._listening:
            for listening in bound.values():
                listening.close()

    def _create_internal_topics(self, *, has_transactions: bool) -> None:
        """Before they are needed: only the keeper creates topics."""
        broker, defaults = self._config.broker, BrokerConfig()
        self._create(
            CONSUMER_OFFSETS_TOPIC,
            broker.offsets_topic_num_partitions,
            defaults.offsets_topic_num_partitions,
            OFFSETS_CONFIG,
        )
        if has_transactions:
            self._create(
                TRANSACTION_STATE_TOPIC,
                broker.transaction_state_log_num_partitions,
                defaults.transaction_state_log_num_partitions,
                {
                    **TRANSACTIONS_CONFIG,
                    "segment.bytes": str(broker.transaction_state_log_segment_bytes),
                },
            )

    def _create(
        self, topic: str, partitions: int, default: int, config: Mapping[str, object]
    ) -> None:
        if self.store.registry.find(topic) is None:
            count = COORDINATOR_PARTITIONS if partitions == default else partitions
            self.store.registry.create(topic, partitions=count, config=config)

    def _member(self, index: int) -> ProcessMember:
        worker = self._config.of_worker(index)
        endpoints = []
        for listener in worker.security.listeners:
            port = self._listening[index][listener.name].getsockname()[1]
            known_as = ClientListener.of_config(listener, port)
            protocol = _PROTOCOLS[listener.protocol]
            endpoints.append(Endpoint(known_as.name, known_as.host, known_as.port, protocol))
        return ProcessMember(
            node_id=worker.broker.node_id,
            endpoints=tuple(endpoints),
            rack=worker.broker.broker_rack,
        )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the first listener of each worker listens."""
        first = self._config.security.listeners[0]
        return [
            (first.listener.host, bound[first.name].getsockname()[1]) for bound in self._listening
        ]

    def pids(self) -> list[int]:
        """The processes of the workers that run, in their order."""
        with self._changing:
            return [worker.pid for _, worker in sorted(self._workers.items())]

    def signal(self, number: int) -> None:
        """Pass a signal on to all workers."""
        with self._changing:
            for worker in self._workers.values():
                worker.signal(number)

    def _await_ready(self) -> None:
        with self._changing:
            while len(self._ready) < self._count:
                if self._is_stopping:
                    raise StorageError(f"{self._failure}; see the log above")
                self._changing.wait()

    # --- workers -----------------------------------------------------------------------------

    def _launch(self, index: int) -> None:
        assert self._keeper is not None
        with self._changing:
            if self._is_stopping:
                return
            self._started_s[index] = time.monotonic()
            task = ProcessTask(
                config=self._config.of_worker(index),
                index=index,
                count=self._count,
                epoch=self._keeper.begins(index),
                security=self._keeper.encoded_security,
                listening={
                    name: listening.fileno() for name, listening in self._listening[index].items()
                },
            )
            worker = WorkerProcess(
                task, self._keeper, when_ready=self._is_ready, when_ended=self._ended
            )
            self._workers[index] = worker
            try:
                worker.start()
            except OSError:
                del self._workers[index]
                raise

    def _is_ready(self, index: int) -> None:
        assert self._keeper is not None
        self._keeper.is_ready(index)
        with self._changing:
            self._ready.add(index)
            self._changing.notify_all()

    def _ended(self, worker: WorkerProcess, code: int) -> None:
        """A worker is gone. Called by its own thread."""
        index = worker.index
        assert self._keeper is not None
        self._keeper.ends(index)
        with self._changing:
            self._workers.pop(index, None)
            was_ready = index in self._ready
            self._ready.discard(index)
            self._changing.notify_all()
            if self._is_stopping:
                return
            if not was_ready and self._pauses_s.get(index) is None and not worker.has_hung:
                # Not once: what is wrong will not pass.
                self._is_stopping = True
                self._failure = f"process {index} ended with code {code} before it was ready"
                return
            lived_s = time.monotonic() - self._started_s[index]
            before_s = self._pauses_s.get(index, 0.0)
            pause_s = min(max(2 * before_s, _PAUSE_S), _PAUSE_S_MAX) if lived_s < _SOUND_S else 0.0
            self._pauses_s[index] = pause_s
        logger.error(
            "process %d (pid %d) ended with code %d; it is started again in %.1f s",
            index,
            worker.pid,
            code,
            pause_s,
            extra={"facts": {"event": "process ended", "process": index, "code": code}},
        )
        self._start_again(index, pause_s)

    def _watch(self) -> None:
        """Notice workers that hang, until the end."""
        while True:
            with self._changing:
                if self._changing.wait_for(lambda: self._is_stopping, BEAT_S):
                    return
                workers = list(self._workers.values())
            for worker in workers:
                worker.beat()

    def _start_again(self, index: int, pause_s: float) -> None:
        """After a pause; and again if the system has no process, thread or descriptor to give."""
        while True:
            with self._changing:
                self._changing.wait_for(lambda: self._is_stopping, pause_s)
            try:
                self._launch(index)
            except OSError as error:
                pause_s = min(max(2 * pause_s, _PAUSE_S), _PAUSE_S_MAX)
                logger.error(
                    "process %d cannot be started, next attempt in %.1f s: %s",
                    index,
                    pause_s,
                    error,
                    extra={"facts": {"event": "process not started", "process": index}},
                )
            else:
                return

    def _broadcast(self, kind: FrameKind, body: bytes) -> None:
        for worker in list(self._workers.values()):
            worker.tell(kind, body)

    # --- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        """End all workers in order, then merge what they left. Safe to repeat."""
        with self._changing:
            self._is_stopping = True
            self._changing.notify_all()
        self._close_sockets()
        self._stop_workers()
        self._resources.close()

    def _stop_workers(self) -> None:
        with self._changing:
            for worker in self._workers.values():
                worker.stop()
            timeout_s = self._config.broker.shutdown_timeout_ms / 1000 + _KILL_S
            if self._changing.wait_for(lambda: not self._workers, timeout_s):
                return
            for worker in self._workers.values():
                logger.error("process %d does not end; killing it", worker.index)
                worker.kill()
            self._changing.wait_for(lambda: not self._workers)
