"""Takes a snapshot per interval, for all viewers together, in a thread of its own.

A snapshot never takes more than a twentieth of the time: if one takes long, the next comes later.
"""

import logging
import threading
import time
from collections import deque
from typing import Final

from cordwood.clock import Clock
from cordwood.console.facts.broker_access import BrokerAccess
from cordwood.console.facts.broker_census import BrokerCensus
from cordwood.console.facts.cluster_facts import BrokerFacts, GroupFacts, Snapshot, TopicFacts
from cordwood.console.facts.directory_census import DirectoryCensus
from cordwood.console.facts.events import EVENTS_MAX, Event, events_between
from cordwood.console.facts.replica_census import cluster_picture
from cordwood.console.facts.replica_facts import ClusterPicture
from cordwood.console.facts.series import Series, SeriesKeeper, rates_between
from cordwood.errors import BrokerRefusedError, CordwoodError, StorageError
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

_SHARE_MAX: Final = 0.05  # of the time of one processor
_FIRST_TIMEOUT_S: Final = 30.0
_FRESH_MS: Final = 200

Topics = dict[str, TopicFacts]
Groups = dict[str, GroupFacts]


class SnapshotKeeper:
    """`snapshot`, `series` and `events` are replaced as a whole; any thread may read them."""

    def __init__(
        self,
        *,
        census: DirectoryCensus | None,
        broker: BrokerAccess | None,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._census = census
        self._access = broker
        self._clock = clock
        self._interval_s = interval_s
        self._cluster: RemoteCluster | None = None
        self._broker_census: BrokerCensus | None = None
        self._series_keeper = SeriesKeeper()
        self._snapshot: Snapshot | None = None
        self._failure: Exception | None = None
        self._is_stopped = threading.Event()
        self._is_wanted = threading.Event()
        self._has_first = threading.Event()
        self._has_new = threading.Condition()
        self._begun = 0
        self._finished = 0
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._thread = threading.Thread(target=self._run, name="cordwood-console", daemon=True)
        self.series = Series()

    # --- for viewers -------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot. Waits for the first one."""
        if self._snapshot is None and not self._has_first.wait(_FIRST_TIMEOUT_S):
            raise TimeoutError("the store could not be read within 30 seconds")
        if self._snapshot is None:
            raise StorageError(f"the store cannot be read: {self._failure}")
        return self._snapshot

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot; None before the first one."""
        return self._snapshot

    @property
    def events(self) -> tuple[Event, ...]:
        """The newest last."""
        return tuple(self._events)

    def note(self, event: Event) -> None:
        """Add an event that the console knows of itself."""
        self._events.append(event)

    def take_soon(self) -> None:
        """Take the next snapshot now: something was changed."""
        self._is_wanted.set()

    def take_now(self, timeout_s: float = 10.0, *, after_change: bool = False) -> Snapshot:
        """Wait for a snapshot that was begun after this call, or shortly before it.

        With `after_change` it must have begun after the call.
        """
        known = self.snapshot
        if not after_change and self._clock.now_ms() - known.taken_ms < _FRESH_MS:
            return known  # whoever asks often does not make more work
        with self._has_new:
            wanted = self._begun + 1  # the one under way may have begun too early
            self.take_soon()
            self._has_new.wait_for(lambda: self._finished >= wanted, timeout=timeout_s)
        return self.snapshot

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._is_wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout=20)
        if self._cluster is not None:
            self._cluster.close()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            self._is_wanted.clear()
            started_s = time.process_time()
            try:
                self.step()
                self._failure = None
            except Exception as error:  # a console that shows old figures is better than none
                if str(error) != str(self._failure):
                    logger.exception("cannot take a snapshot")
                self._failure = error
                self._has_first.set()
            used_s = time.process_time() - started_s
            pause_s = max(self._interval_s, used_s / _SHARE_MAX)
            self._is_wanted.wait(pause_s)

    def step(self) -> Snapshot:
        """Take one snapshot. Only the thread of the keeper calls it, or a test without one."""
        started_s = time.perf_counter()
        with self._has_new:
            self._begun += 1
        before = self._snapshot
        broker, told = self._ask(before)
        replicas = self._replicas(broker, before)
        taken_ms = self._clock.now_ms()
        topics: Topics = {}
        groups: Groups = {}
        problems: list[str] = []
        if told is not None:
            topics, groups = told
        elif before is not None:
            topics, groups = dict(before.topics), dict(before.groups)
        census = self._census
        if census is not None:
            try:
                # Files know sizes and segments; the broker knows states of groups.
                topics = census.topics()
                groups = census.groups() if told is None else groups
            except (CordwoodError, OSError) as error:
                problems.append(f"The files cannot be read: {error}")
        taken = Snapshot(
            taken_ms=taken_ms,
            took_ms=(time.perf_counter() - started_s) * 1000,
            topics=topics,
            groups=groups,
            disks=() if census is None else census.disks(),
            damages=() if census is None else census.damages(),
            broker=broker,
            replicas=replicas,
            has_files=census is not None,
            problems=tuple(problems),
            sequence=0 if before is None else before.sequence + 1,
        )
        if before is not None:
            taken = replace(taken, rates=rates_between(before, taken))
            self.series = self._series_keeper.add(before, taken)
            self._events.extend(events_between(before, taken))
        with self._has_new:
            self._snapshot = taken
            self._finished = self._begun
            self._has_new.notify_all()
        self._has_first.set()
        return taken

    # --- the broker --------------------------------------------------------------------------

    def _ask(
        self, before: Snapshot | None
    ) -> tuple[BrokerFacts | None, tuple[Topics, Groups] | None]:
        """What the broker says of itself, and of topics and groups; None if it does not."""
        if self._access is None:
            return None, None
        address = self._access.shown_address
        try:
            cluster = self._connected()
            assert self._broker_census is not None
            topics = {} if self._census is not None else self._broker_census.topics()
            if self._census is not None:
                cluster.forget()
                cluster.describe([])
            groups = self._groups(before)
            broker = BrokerFacts(
                address=address,
                cluster_id=cluster.cluster_id,
                broker_count=len(cluster.everyone()),
            )
        except (CordwoodError, OSError) as error:
            self._disconnect()
            known = None if before is None else before.broker
            since = known.since_ms if known is not None and known.problem else None
            return BrokerFacts(
                address=address,
                cluster_id="" if known is None else known.cluster_id,
                problem=str(error),
                since_ms=self._clock.now_ms() if since is None else since,
            ), None
        return broker, (topics, groups)

    def _groups(self, before: Snapshot | None) -> Groups:
        """The groups; the last ones known if their coordinator is not ready yet."""
        assert self._broker_census is not None
        try:
            return self._broker_census.groups()
        except BrokerRefusedError as error:
            logger.info("the broker does not tell its groups: %s", error)
            return {} if before is None else dict(before.groups)

    def _replicas(
        self, broker: BrokerFacts | None, before: Snapshot | None
    ) -> ClusterPicture | None:
        """Of a cluster that answers; its last picture if it does not; None of a single broker."""
        if broker is None:
            return None
        if broker.problem is not None or self._cluster is None:
            return None if before is None else before.replicas
        if broker.broker_count <= 1 and (before is None or before.replicas is None):
            return None
        try:
            return cluster_picture(self._cluster)
        except (CordwoodError, OSError) as error:
            logger.info("the cluster does not tell where its replicas are: %s", error)
            return None if before is None else before.replicas

    def _connected(self) -> RemoteCluster:
        assert self._access is not None
        if self._cluster is None:
            self._cluster = self._access.connect()
            self._broker_census = BrokerCensus(self._cluster)
        return self._cluster

    def _disconnect(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
