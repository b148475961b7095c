"""The logs of the partitions that this broker has: made, opened and removed as the image says.

Disk work is done by one thread, in the order of the images. Roles change at once, in the data
loop: a leader need not wait until another topic is made.

    1  data loop   apply the image to the replicas; drop those that are assigned elsewhere
    2  thread      follow the settings of brokers; make, open and remove partitions
    3  data loop   host the replicas that are new; the newest image gives them their role

Only an image that has this life of the broker counts: an older one may lack topics that are here.

A topic that the first image lacks was deleted while the broker was away, or its controllers have
lost their metadata. Nobody can tell, so its files are kept, as Kafka does (``-stray``).
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from uuid import UUID

from cordwood.broker.cluster.replicas.replica_places import ReplicaPlaces
from cordwood.broker.cluster.replicas.topic_settings import broker_settings, topic_settings
from cordwood.broker.config.dynamic_keys import ConfigLayers
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.log_watch import LogWatch
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage, TopicImage
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.errors import CordwoodError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

_DISK: Final = "disk"
_DEFAULT_DURABILITY: Final = "log.durability"
_RETRY_S: Final = 2.0  # after a disk was full, for example


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What one image changes on the disk.

    `refillable` are replicas that others have, too. `strays` are topics that the cluster lacks.

    `settings` are those of brokers, if they changed: defaults of topics, such as
    ``min.insync.replicas``, are in force before a log gets a role.
    """

    settings: ConfigLayers | None = None
    hosted: Sequence[HostedTopic]
    refillable: frozenset[tuple[UUID, int]]
    deleted: Sequence[tuple[str, UUID]]
    strays: Sequence[tuple[str, UUID]] = ()


class HostedLogs:
    """Belongs to the data loop, except for `replica_of`, which any thread may call.

    `log_moved` is called in the loop whenever a hosted log has moved.
    """

    def __init__(
        self,
        store: Store,
        replicas: NodeReplicas,
        *,
        node_id: int,
        loop: EventLoop,
        watch: LogWatch,
        log_moved: Callable[[PartitionReplica], None],
        places: ReplicaPlaces,
        follow_settings: Callable[[ConfigLayers], None],
        note_unsynced: Callable[[], None] = lambda: None,
        keeps_strays: bool = True,
    ) -> None:
        """`follow_settings` is called in the thread with the settings of brokers.

        `note_unsynced` is called there before a topic promises less than the disk; it may raise
        `OSError`. Without `keeps_strays`, topics that the first image lacks are deleted. So it is
        with several processes of one node: who decides has the same directory.
        """
        self._note_unsynced = note_unsynced
        self._keeps_strays = keeps_strays
        self._places = places
        self._follow_settings = follow_settings
        self._store = store
        self._replicas = replicas
        self._node_id = node_id
        self._loop = loop
        self._watch = watch
        self._log_moved = log_moved
        self._image = NO_METADATA
        self._by_log: dict[PartitionLog, PartitionReplica] = {}
        self._troubles: dict[str, str] = {}  # topics and partitions that cannot be opened yet
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cordwood-hosting")
        self.steps = 0  # grows with each topic and partition that the thread has looked after

    def replica_of(self, log: PartitionLog) -> PartitionReplica | None:
        return self._by_log.get(log)

    def replicas(self) -> list[PartitionReplica]:
        """All replicas of this broker. Any thread may call it."""
        return list(self._by_log.values())

    def stop(self) -> None:
        """Finish what was begun. Called when the loop has ended, from another thread."""
        self._thread.shutdown()

    # --- images ------------------------------------------------------------------------------

    def apply(self, image: MetadataImage, when_hosted: Callable[[], None] | None = None) -> None:
        """Have what `image` says here. It has this life of the broker.

        `when_hosted` is called in the loop after the disk work that it causes.
        """
        before, self._image = self._image, image
        self._replicas.apply(image)
        for replica in list(self._replicas):
            place = replica.site.place
            partition = image.partition(*place)
            if partition is None or self._node_id not in partition.replicas:
                self._drop(replica)
        work = self._work(before, image)
        has_work = work.hosted or work.deleted or work.settings is not None
        if has_work or when_hosted is not None:
            self._thread.submit(self._carry_out, work, when_hosted)

    def _drop(self, replica: PartitionReplica) -> None:
        self._replicas.drop(replica.site.place)
        self._by_log.pop(replica.site.log, None)

    def fail_directory(self, path: str) -> UUID | None:
        """A disk failed: give up all replicas in its directory, and no others.

        Its id; None if it was given up before.
        """
        directory_id = self._places.fail(path)
        if directory_id is None:
            return None
        for replica in list(self._replicas):
            if self._places.directory_of(replica.site.log) == path:
                place = replica.site.place
                self._places.lost(place, path, self._image.partition(*place))
                self._drop(replica)
        return directory_id

    def _work(self, before: MetadataImage, image: MetadataImage) -> _Work:
        """What has to be done for the topics that changed; for all of them at first."""
        is_first = before is NO_METADATA
        hosted: list[HostedTopic] = []
        has_other_configs = image.configs is not before.configs
        for topic_id, topic in image.topics.items():
            is_changed = topic is not before.topics.get(topic_id)
            if is_first or is_changed or has_other_configs:
                here = self._here(topic)
                if here or self._here(before.topics.get(topic_id)) or is_first:
                    hosted.append(self._hosted(image, topic, here))
        deleted = [
            (topic.name, topic_id)
            for topic_id, topic in before.topics.items()
            if topic_id not in image.topics
        ]
        strays = [
            (name, topic_id)
            for topic_id, name in self._store.registry.names_by_id().items()
            if is_first and topic_id not in image.topics
        ]
        if not self._keeps_strays:
            deleted, strays = deleted + strays, []
        settings = None
        if is_first or has_other_configs:
            now = broker_settings(image, self._node_id)
            if is_first or now != broker_settings(before, self._node_id):
                settings = now
        return _Work(
            settings=settings,
            hosted=hosted,
            refillable=self._refillable(image, hosted),
            deleted=deleted,
            strays=strays,
        )

    def _refillable(
        self, image: MetadataImage, hosted: Iterable[HostedTopic]
    ) -> frozenset[tuple[UUID, int]]:
        return frozenset(
            (topic.topic_id, number)
            for topic in hosted
            for number in topic.here
            if self._is_refillable(image.topics[topic.topic_id].partitions[number])
        )

    def _is_refillable(self, partition: PartitionImage) -> bool:
        """Whether nothing that was acknowledged may be on this replica alone."""
        me = self._node_id
        others_have = partition.has_leader and partition.leader != me
        return others_have and not any(
            me in some for some in (partition.in_sync, partition.eligible, partition.last_known)
        )

    def _here(self, topic: TopicImage | None) -> frozenset[int]:
        if topic is None:
            return frozenset()
        return frozenset(
            number
            for number, partition in topic.partitions.items()
            if self._node_id in partition.replicas
        )

    def _hosted(self, image: MetadataImage, topic: TopicImage, here: frozenset[int]) -> HostedTopic:
        return HostedTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=max(topic.partitions, default=-1) + 1,
            here=here,
            config=topic_settings(image, topic.name),
        )

    # --- the thread --------------------------------------------------------------------------

    def _carry_out(self, work: _Work, when_hosted: Callable[[], None] | None) -> None:
        """Whatever goes wrong with one topic does not concern the others."""
        if work.settings is not None:
            try:
                if work.settings.merged.get(_DEFAULT_DURABILITY, _DISK) != _DISK:
                    self._note_unsynced()
                self._follow_settings(work.settings)
            except Exception:
                logger.exception("settings of the cluster are not in force")
        for name, topic_id in work.deleted:
            self.steps += 1
            try:
                self._store.hosting.unhost(name, topic_id)
            except Exception:
                logger.exception("topic %s could not be removed", name)
        for name, topic_id in work.strays:
            self._set_aside(name, topic_id)
        for wanted in work.hosted:
            self.steps += 1
            try:
                logs = self._open(wanted, work.refillable)
            except Exception as error:
                self._failed(wanted, wanted.name, error)
            else:
                self._troubles.pop(wanted.name, None)
                self._loop.call_soon(partial(self._host, wanted.topic_id, logs))
        if when_hosted is not None:
            self._loop.call_soon(when_hosted)

    def _set_aside(self, name: str, topic_id: UUID) -> None:
        try:
            kept = self._store.hosting.set_aside(name, topic_id)
        except (CordwoodError, OSError):
            logger.exception("topic %s, which the cluster does not have, stays as it is", name)
            return
        logger.warning(
            "the cluster does not have topic %s (id %s): it was deleted while this broker was "
            "away, or the controllers have lost it. Its files are kept: %s. Remove them if nobody "
            "needs them",
            name,
            topic_id,
            ", ".join(kept) or "there are none",
        )

    def _failed(self, wanted: HostedTopic, what: str, error: Exception) -> None:
        """In the thread: say so once, and try again later."""
        if self._troubles.get(what) != str(error):
            self._troubles[what] = str(error)
            is_ours = not isinstance(error, (CordwoodError, OSError))
            logger.error(
                "%s cannot be made, opened or changed yet: %s", what, error, exc_info=is_ours
            )
        self._loop.call_soon(partial(self._try_later, wanted.topic_id))

    def _try_later(self, topic_id: UUID) -> None:
        self._loop.call_later(_RETRY_S, partial(self._try_again, topic_id))

    def _try_again(self, topic_id: UUID) -> None:
        image = self._image
        topic = image.topics.get(topic_id)
        if topic is not None:
            hosted = [self._hosted(image, topic, self._here(topic))]
            work = _Work(hosted=hosted, refillable=self._refillable(image, hosted), deleted=[])
            with contextlib.suppress(RuntimeError):  # the broker stops
                self._thread.submit(self._carry_out, work, None)

    def _open(
        self, wanted: HostedTopic, refillable: frozenset[tuple[UUID, int]]
    ) -> list[PartitionLog]:
        hosting = self._store.hosting
        if not wanted.here:
            hosting.unhost(wanted.name, wanted.topic_id)
            return []
        defaults = self._store.registry.defaults
        if wanted.config.get("durability", defaults.durability) != _DISK:
            self._note_unsynced()
        topic = hosting.host(wanted)
        logs: list[PartitionLog] = []
        for number in sorted(wanted.here):
            what = f"{wanted.name}-{number}"
            self.steps += 1
            try:
                if (wanted.topic_id, number) in refillable and hosting.is_gone(wanted.name, number):
                    topic = hosting.host_again(wanted, number)
                logs.append(topic.partition(number))
            except Exception as error:
                self._failed(wanted, what, error)
            else:
                self._troubles.pop(what, None)
        return logs

    def replaced(self, place: PartitionPlace, log: PartitionLog) -> None:
        """In the data loop: `log` took the place of the log of a replica."""
        self._host(place.topic_id, [log])

    def _host(self, topic_id: UUID, logs: Iterable[PartitionLog]) -> None:
        """In the data loop: the logs are open."""
        for log in logs:
            place = PartitionPlace(topic_id, log.partition)
            partition = self._image.partition(*place)
            if log.is_closed or partition is None or self._node_id not in partition.replicas:
                continue  # a newer image took it away
            if self._places.has_failed(log):
                continue
            self._places.hosted(place, log, partition)
            known = self._replicas.get(place)
            if known is not None:
                if known.site.log is log:
                    continue
                self._drop(known)
            replica = self._replicas.host(place, log)
            self._by_log[log] = replica
            self._watch.await_moves(log, partial(self._log_moved, replica))
            self._log_moved(replica)
