"""Who looks at the console: the viewer behind a request, and what the broker lets them see.

Without a login there is one viewer, who sees everything. With a login each viewer is a user of the
broker. The broker decides what they may see and do: names of topics and groups by what it lists for
them, records by whether it lets them fetch, changes by their requests.
"""

import secrets
import threading
import time
from collections import OrderedDict
from typing import Final

from cordwood.console.facts.broker_access import BrokerAccess
from cordwood.console.facts.cluster_facts import Snapshot
from cordwood.errors import BrokerRefusedError, CordwoodError
from cordwood.remote.refusals import is_forbidden
from cordwood.remote.remote_consumer import LATEST, RemoteConsumer
from cordwood.remote.remote_groups import RemoteGroups
from cordwood.remote.remote_topics import RemoteTopics
from cordwood.security.clients.client_security import PLAINTEXT, ClientProtocol, ClientSecurity
from cordwood.security.secret import Secret
from cordwood.value_class import replace

SESSIONS_MAX: Final = 100
_IDLE_S: Final = 8 * 3600.0
_KNOWN_S: Final = 15.0  # how long the broker's answers about rights are believed


class Viewer:
    """Everybody, on a console without a login. Any thread may use it."""

    user: str | None = None

    def __init__(self, access: BrokerAccess | None, *, may_change: bool) -> None:
        self.access = access
        self.may_change = may_change

    def visible(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without what the viewer may not see."""
        return snapshot

    def may_see_topic(self, name: str) -> bool:
        return True

    def may_read(self, topic: str) -> bool:
        """Whether the viewer may read records."""
        return True

    @property
    def sees_cluster(self) -> bool:
        """Whether the viewer may see what belongs to the whole cluster: disks, settings, events."""
        return True

    def close(self) -> None:
        """The access belongs to the console."""


class UserViewer(Viewer):
    """A user of the broker. What they may do is asked of the broker, as them. Any thread."""

    access: BrokerAccess

    def __init__(self, user: str, access: BrokerAccess, *, may_change: bool) -> None:
        super().__init__(access, may_change=may_change)
        self.user = user
        self._lock = threading.Lock()
        self._asked_s = -_KNOWN_S
        self._topics: frozenset[str] = frozenset()
        self._groups: frozenset[str] = frozenset()
        self._sees_cluster = False
        self._readable: dict[str, tuple[float, bool]] = {}

    def _ask(self) -> None:
        with self._lock:
            if time.monotonic() - self._asked_s < _KNOWN_S:
                return
            with self.access.connected() as cluster:
                self._topics = frozenset(cluster.describe())
                try:
                    self._groups = frozenset(g.name for g in RemoteGroups(cluster).listed())
                except BrokerRefusedError as error:
                    if not is_forbidden(error):
                        raise
                    self._groups = frozenset()
                try:
                    self._sees_cluster = bool(RemoteTopics(cluster).log_dirs())
                except BrokerRefusedError as error:
                    if not is_forbidden(error):
                        raise
                    self._sees_cluster = False
            self._asked_s = time.monotonic()

    def visible(self, snapshot: Snapshot) -> Snapshot:
        self._ask()
        topics, groups = self._topics, self._groups
        return replace(
            snapshot,
            topics={name: topic for name, topic in snapshot.topics.items() if name in topics},
            groups={
                name: replace(
                    group, committed=tuple(c for c in group.committed if c.topic in topics)
                )
                for name, group in snapshot.groups.items()
                if name in groups
            },
            damages=tuple(damage for damage in snapshot.damages if damage.topic in topics),
            rates={place: rate for place, rate in snapshot.rates.items() if place[0] in topics},
            disks=snapshot.disks if self._sees_cluster else (),
            replicas=None if snapshot.replicas is None else snapshot.replicas.of_topics(topics),
        )

    def may_see_topic(self, name: str) -> bool:
        self._ask()
        return name in self._topics

    def may_read(self, topic: str) -> bool:
        """Whether the broker lets the user fetch from the topic: it is asked."""
        now_s = time.monotonic()
        known = self._readable.get(topic)
        if known is not None and now_s - known[0] < _KNOWN_S:
            return known[1]
        may = self._may_fetch(topic)
        if len(self._readable) > 10_000:
            self._readable.clear()
        self._readable[topic] = (now_s, may)
        return may

    def _may_fetch(self, topic: str) -> bool:
        try:
            with self.access.connected() as cluster:
                consumer = RemoteConsumer(cluster, topic, [0])
                consumer.news({0: consumer.offsets_at(LATEST)[0]}, wait_ms=0)
        except BrokerRefusedError as error:
            if is_forbidden(error):
                return False
            raise
        return True

    @property
    def sees_cluster(self) -> bool:
        self._ask()
        return self._sees_cluster

    def close(self) -> None:
        self.access.close()


class LoginFailedError(Exception):
    """The broker did not accept the user, or could not be asked."""


def log_in(base: BrokerAccess, user: str, password: str, *, may_change: bool) -> UserViewer:
    """A viewer who is that user. Raises `LoginFailedError` if the broker refuses."""
    known = base.security or PLAINTEXT
    protocol = ClientProtocol.of(tls=known.protocol.has_tls, sasl=True)
    try:
        security: ClientSecurity = replace(
            known,
            protocol=protocol,
            user=user,
            password=Secret(password),
            password_file=None,
            token=None,
            token_file=None,
            mechanism=known.mechanism if known.protocol.has_sasl else "SCRAM-SHA-256",
        )
        access = BrokerAccess(base.addresses, security)
        access.connect().close()
    except CordwoodError as error:
        raise LoginFailedError(str(error)) from error
    return UserViewer(user, access, may_change=may_change)


class Sessions:
    """The viewers who are logged in, by the random id in their cookie. Any thread."""

    def __init__(self, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._viewers: OrderedDict[str, tuple[float, UserViewer]] = OrderedDict()

    def add(self, viewer: UserViewer) -> str:
        """A new session. If there are too many, the one that was idle longest ends."""
        session = new_session_id()
        with self._lock:
            self._viewers[session] = (time.monotonic(), viewer)
            ended = [
                self._viewers.popitem(last=False)[1][1]
                for _ in range(len(self._viewers) - self._sessions_max)
            ]
        for old in ended:
            old.close()
        return session

    def find(self, session: str) -> UserViewer | None:
        now_s = time.monotonic()
        with self._lock:
            known = self._viewers.get(session)
            if known is None:
                return None
            if now_s - known[0] <= _IDLE_S:
                self._viewers[session] = (now_s, known[1])
                self._viewers.move_to_end(session)
                return known[1]
            del self._viewers[session]
        known[1].close()
        return None

    def end(self, session: str) -> None:
        with self._lock:
            known = self._viewers.pop(session, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        with self._lock:
            viewers, self._viewers = list(self._viewers.values()), OrderedDict()
        for _, viewer in viewers:
            viewer.close()


def new_session_id() -> str:
    return secrets.token_urlsafe(32)
