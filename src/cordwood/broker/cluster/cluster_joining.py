"""How a broker joins its cluster: what it registers with, and in which order it becomes ready.

1  logs are open; no log has a role
2  register; the epoch of this life is synced before anything relies on it
3  the first image that has this life: host what it assigns, remove what it does not
4  serve clients: before, the broker would tell them that their topics do not exist
5  ask to be unfenced: from here on the controllers elect this broker
"""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from cordwood.broker.cluster.cluster_member import ClusterMember, directory_ids
from cordwood.broker.cluster.cluster_security import ClusterSecurity
from cordwood.broker.cluster.control.control_channel import ControlEvents, KraftControl
from cordwood.broker.cluster.control.control_config import ControlConfig, ControllerAddress
from cordwood.broker.cluster.replicas.topic_settings import check_cluster_archive
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.config.listeners import SecurityProtocol
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.security.peer_tls import PeerTls
from cordwood.cluster.control.broker_lifecycle import Phase, SessionTimes
from cordwood.cluster.control.membership import Membership
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.replication.vouching import BrokerEpochFile, vouched_epoch
from cordwood.errors import ConfigError, CordwoodError
from cordwood.format.file_names import META_PROPERTIES
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store
from cordwood.security.clients.client_security import ClientSecurity

logger = logging.getLogger(__name__)

_SAVE_PAUSE_S: Final = 1.0
_PROTOCOLS: Final = {
    SecurityProtocol.PLAINTEXT: 0,
    SecurityProtocol.SSL: 1,
    SecurityProtocol.SASL_PLAINTEXT: 2,
    SecurityProtocol.SASL_SSL: 3,
}


def check_directories(directories: Sequence[str]) -> None:
    """Raise `ConfigError` unless the data directories of a member were formatted for its cluster.

    To be called before the store is opened, which would make up a cluster id. One of several that
    cannot be listed is offline: its disk is broken, and the others are served.
    """
    for directory in directories:
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            names = []
        except OSError as error:
            if len(directories) == 1:
                raise ConfigError("log.dirs", directory, f"cannot be read: {error}") from error
            logger.error("data directory %s is offline: %s", directory, error)
            continue
        if META_PROPERTIES not in names:
            raise ConfigError(
                "log.dirs",
                directory,
                "is not formatted for a cluster. If its disk is not mounted, mount it. If it is "
                f"new, run: cordwood cluster format --dir {directory} with the cluster id and the "
                "node.id of this broker",
            )


def check_archive(defaults: TopicConfig) -> None:
    """Raise `ConfigError` if the archive of all topics is none that brokers can share."""
    if defaults.archive_url is not None:
        check_cluster_archive(defaults.archive_url, key="log.archive.url")


class ControllerAccess(NamedTuple):
    """How the controllers are connected to."""

    security: ClientSecurity
    tls: PeerTls | None


class ClusterJoining:
    """Joins, stays, and leaves. Owned by the broker's server.

    `when_failed` is called, in the control loop, if the controllers do not want this broker.
    """

    def __init__(
        self,
        *,
        store: Store,
        broker: BrokerConfig,
        cluster: ClusterConfig,
        security: SecurityConfig,
        access: ClusterSecurity,
        controllers: ControllerAccess,
        loop: EventLoop,
        listeners: Sequence[ClientListener],
        when_failed: Callable[[CordwoodError], None],
    ) -> None:
        self._loop = loop
        self._when_failed = when_failed
        self._access = access
        access.when_failed = lambda error: loop.call_soon(partial(self._failed, error))
        self._member: ClusterMember | None = None
        self._epochs = BrokerEpochFile(store.file_system, *store.directories.paths)
        self._saved_epoch = -1
        self._has_told_of_saving = False
        self._has_lost_disk = False
        self._has_hosted = False
        self._when_ready: Callable[[], None] = lambda: None
        self._files = ThreadPoolExecutor(1, thread_name_prefix="cordwood-epoch")
        self.control = KraftControl(
            loop,
            ControlConfig(
                member=_membership(store, broker, security, listeners, self._epochs),
                bootstrap=tuple(
                    ControllerAddress(host, port) for host, port in cluster.controllers
                ),
                listener=next(iter(broker.controller_listener_names), "CONTROLLER"),
                security=controllers.security,
                tls=controllers.tls,
                times=SessionTimes(
                    heartbeat_s=cluster.broker_heartbeat_interval_ms / 1000,
                    session_s=cluster.broker_session_timeout_ms / 1000,
                    registration_s=cluster.initial_broker_registration_timeout_ms / 1000,
                ),
            ),
            ControlEvents(
                changed=self._changed,
                registered=self._registered,
                phase=self._phase,
                failed=self._failed,
            ),
        )

    def start(self, member: ClusterMember, when_ready: Callable[[], None]) -> None:
        """The loops turn.

        `when_ready` is called once, by another thread, when clients can be served: the replicas
        are open, and everything that the cluster had decided before this broker registered is in
        force here, users and access rules too.
        """
        self._member = member
        self._when_ready = when_ready
        self._loop.call_soon(self.control.start)

    # --- events of the control channel ---------------------------------------------------------

    def _registered(self, epoch: int) -> None:
        def save() -> None:
            try:
                if not self._has_lost_disk:
                    self._epochs.save(epoch)
            except OSError as error:
                if not self._has_told_of_saving:
                    self._has_told_of_saving = True
                    logger.error(
                        "the epoch of this broker cannot be saved; it stays fenced and tries "
                        "again: %s",
                        error,
                    )
                self._loop.call_soon(partial(self._save_again, epoch))
                return
            self._loop.call_soon(partial(self._saved, epoch))

        self._submit(save)

    def _save_again(self, epoch: int) -> None:
        """On a full disk, for example. Until then this broker stays fenced."""
        self._loop.call_later(_SAVE_PAUSE_S, partial(self._registered, epoch))

    def _submit(self, job: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the broker stops
            self._files.submit(job)

    def _saved(self, epoch: int) -> None:
        self._saved_epoch = epoch
        self._apply()

    def _changed(self, change: ImageChange) -> None:
        self._access.apply(change)
        self._apply()

    def _apply(self) -> None:
        """Apply the newest image, if this life of the broker is in it and is synced."""
        image, epoch = self.control.image, self.control.broker_epoch
        if self._member is None or epoch < 0 or epoch != self._saved_epoch:
            return
        own = image.brokers.get(self._member.view.node_id)
        if own is None or own.epoch != epoch:
            return
        self._member.apply(image, None if self._has_hosted else self._hosted)
        self._has_hosted = True

    def _hosted(self) -> None:
        """In the control loop: what the first image assigns is open."""
        self._access.when_in_force(self._ready)

    def _ready(self) -> None:
        """In another thread: what the first image decides about clients is in force."""
        logger.info("the replicas of this broker are open; it asks to be unfenced")
        self._when_ready()
        self._loop.call_soon(self.control.unfence)

    def _phase(self, phase: Phase) -> None:
        logger.info("this broker is %s", phase.name.lower())

    def _failed(self, error: CordwoodError) -> None:
        logger.error("this broker cannot be a member of its cluster: %s", error)
        self._when_failed(error)

    def disk_failed(self, directory_id: UUID, error: CordwoodError, *, is_last: bool) -> None:
        """A log failed: vouch for nothing any more. Any thread.

        Other brokers lead what is in that directory. If it is the last one, leave the cluster. A
        start after the repair opens what the disk has.
        """

        def withdraw() -> None:
            self._has_lost_disk = True
            try:
                self._epochs.withdraw()
            except OSError as failure:
                logger.error("the epoch of this broker could not be withdrawn: %s", failure)
            if is_last:
                self._loop.call_soon(partial(self._failed, error))

        if not is_last:
            logger.error("a data directory is offline, and the others are served: %s", error)
            self._loop.call_soon(partial(self.control.set_offline, [directory_id]))
        self._submit(withdraw)

    def note_unsynced(self) -> None:
        """A topic is about to count records that are not on the disk. Raises `OSError`.

        For a thread that may wait for the disk.
        """
        self._epochs.note_unsynced()

    # --- the end -----------------------------------------------------------------------------

    def leave(self, when_left: Callable[[], None]) -> None:
        """Begin a controlled shutdown. Any thread may call it."""
        self._loop.call_soon(lambda: self.control.leave(when_left))

    def stop(self) -> None:
        """Close the connections to the controllers, soon. Any thread may call it."""
        self._loop.call_soon(self.control.stop)
        self._access.stop()
        self._files.shutdown(wait=False)


def _membership(
    store: Store,
    broker: BrokerConfig,
    security: SecurityConfig,
    listeners: Sequence[ClientListener],
    epochs: BrokerEpochFile,
) -> Membership:
    was_orderly = all(directory.was_clean for directory in store.directories)
    for directory in store.directories:
        meta = directory.meta
        if meta is not None and meta.node_id not in (None, broker.node_id):
            raise ConfigError(
                "node.id",
                broker.node_id,
                f"but {directory.path} was formatted for node {meta.node_id}",
            )
    protocols = {each.name: each.protocol for each in security.listeners}
    return Membership(
        node_id=broker.node_id,
        cluster_id=store.cluster_id,
        incarnation=uuid4(),
        endpoints=tuple(
            Endpoint(each.name, each.host, each.port, _PROTOCOLS[protocols[each.name]])
            for each in listeners
        ),
        directories=tuple(directory_ids(store).values()),
        rack=broker.broker_rack,
        previous_epoch=vouched_epoch(
            epochs.read(was_orderly=was_orderly),
            store.directories.logs(),
            was_orderly=was_orderly,
            is_complete=store.directories.are_all_usable and not store.hosting.missing(),
        ),
    )
