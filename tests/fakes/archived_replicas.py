"""Replicas of one partition on one simulated disk, with one archive. Roles change by hand."""

from __future__ import annotations

from random import Random
from uuid import UUID

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.manifests.manifest import Manifest
from cordwood.archive.objects.object_store import LocalObjects
from cordwood.archive.store_archives import StoreArchives
from cordwood.archive.topics.partition_archive import PartitionArchive
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.directory_format import format_directories
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.disk.flusher import InlineFlusher
from fakes.archived_store import ARCHIVE, SMALL_SEGMENTS, URL
from fakes.client_batches import client_batch
from fakes.failing_objects import FailingObjects
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC

TOPIC_ID = UUID(int=9)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class ArchivedReplica:
    """One replica. Its segments have `segment_records` records."""

    def __init__(
        self,
        fs: SimulatedFileSystem,
        node_id: int,
        *,
        segment_records: int = 3,
        config: dict[str, object] | None = None,
    ) -> None:
        self.fs = fs
        self.data = f"/data{node_id}"
        self.clock = ManualClock()
        self.objects = FailingObjects(LocalObjects(fs, ARCHIVE))
        if not fs.exists(self.data):
            format_directories(
                fs, [self.data], node_id=node_id, cluster_id=CLUSTER_ID, clock=self.clock
            )
        cache = SegmentCache(fs, f"{self.data}/remote-log-index-cache")
        self.archives = StoreArchives(
            fs=fs, clock=self.clock, cache=cache, open_objects=lambda _url, _fs: self.objects
        )
        self.store = Store(
            [self.data],
            StoreSetup(
                fs=fs,
                clock=self.clock,
                random=Random(node_id),
                flusher=InlineFlusher(),
                has_housekeeping=False,
                opening_threads=1,
                archives=self.archives,
                role=AMONG_OTHERS,
            ),
        )
        settings = {**SMALL_SEGMENTS, "segment.records": segment_records, **(config or {})}
        self.store.hosting.host(
            HostedTopic(
                name=TOPIC,
                topic_id=TOPIC_ID,
                partitions=1,
                here=frozenset({0}),
                config={key: str(value) for key, value in settings.items()},
            )
        )
        assert settings["archive.url"] == URL

    @property
    def log(self) -> PartitionLog:
        return self.store.topic(TOPIC).partition(0)

    @property
    def archive(self) -> PartitionArchive:
        archive = self.archives.archive_of(self.log, TOPIC_ID)
        assert archive is not None
        return archive

    @property
    def manifest(self) -> Manifest:
        self.archive.refresh()
        return self.archive.manifest

    def lead(self, epoch: int) -> None:
        self.log.replica.lead(LeaderEpoch(epoch))

    def append(self, count: int, *, prefix: bytes = b"v") -> None:
        """As the leader: records `v<offset>`."""
        epoch = self.log.replica.led_in
        for _ in range(count):
            value = prefix + b"%d" % self.log.end_offset
            self.log.batches.append_batch(client_batch(value), wait=False, led_in=epoch)
        self.log.syncing.sync_pending()

    def follow(self, leader: ArchivedReplica, epoch: int) -> None:
        """Fetch everything from the leader; both then have the same high watermark."""
        self.log.replica.follow(LeaderEpoch(epoch))
        start = leader.log.state.start
        if self.log.end_offset < start:
            self.log.replica.restart_at(start, leader_epoch=LeaderEpoch(epoch))
        while self.log.end_offset < leader.log.end_offset:
            found = leader.log.replica.read(self.log.end_offset, max_bytes=1 << 20)
            assert found is not None
            data = found.file.read_at(found.position, found.length)
            self.log.replica.append(data, leader_epoch=LeaderEpoch(epoch))
        self.log.syncing.sync_pending()
        for each in (self, leader):
            each.log.replica.raise_high_watermark(Offset(leader.log.end_offset))
        announced = leader.log.archive.announced_start
        if announced > self.log.state.start:
            self.log.replica.adopt_start(announced, leader_epoch=LeaderEpoch(epoch))

    def run(self) -> str | None:
        """One pass of the archiver; its error."""
        [status] = self.store.archive_now()
        return status.last_error

    def drop_local(self) -> None:
        self.log.upkeep.apply_retention(self.clock.now_ms())

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.log.read(self.log.start_offset)]
