"""Follows the metadata log of the controllers, and knows the image at the high watermark.

    request() -> what to ask next, and of whom
    receive() -> what to do after the answer
    advance(n) -> applies up to n records; the change, once all that is committed was applied

Invariants
    * The image has exactly the records below `image.end`, and all of these are committed: a record
      at or above the high watermark waits in `_pending` and may be taken back by a new leader.
    * The epoch of the leader never decreases. An answer of an older leader changes nothing.
    * A leader that does not have what was applied has lost committed records. That is an error that
      no broker can repair, so `MetadataLostError` ends the broker.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from cordwood.cluster.control.metadata_batches import (
    BATCH_BYTES_MAX,
    BatchQueue,
    split_batches,
)
from cordwood.cluster.image.image_builder import ImageBuilder
from cordwood.cluster.image.image_change import ImageChange, whole_change
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.errors import ClusterMismatchError, FormatError, MetadataLostError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.replica_fetch import (
    CurrentLeader,
    EpochEnd,
    NodeEndpoint,
    ReplicaFetched,
    ReplicaFetchPart,
    SnapshotId,
    decode_replica_fetch,
    encode_replica_fetch,
)
from cordwood.quantities import GIB, MIB, Offset
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
MAX_WAIT_MS: Final = 500

NOBODY: Final = -1

_FETCH_BYTES: Final = 8 * MIB
_SNAPSHOT_BYTES: Final = 1 * MIB
_SNAPSHOT_VERSION: Final = 1
# A snapshot has about 100 bytes for a partition. This is a cluster of millions of them.
_SNAPSHOT_SIZE_MAX: Final = 4 * GIB
# Records that no majority has yet. Controllers stop writing when nobody follows.
_PENDING_BATCHES_MAX: Final = 100_000


class Next(Enum):
    """What to do after an answer.

    ASK         ask again at once, whom `request` names now
    WAIT        nobody can answer now: ask after a pause, and another controller
    """

    ASK = auto()
    WAIT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverRequest:
    """What to ask of the leader; of any controller if `leader_id` is -1."""

    leader_id: int
    api: ApiKey
    version: int
    body: bytes


@dataclass(slots=True)
class _Download:
    """A snapshot while it is fetched. `rest` is a batch that was cut off."""

    id: SnapshotId
    builder: ImageBuilder
    batches: BatchQueue
    position: int = 0
    rest: bytes = b""
    is_complete: bool = False


class MetadataObserver:
    """The metadata log as one broker follows it. For one thread. Pure: no sockets, no clock."""

    def __init__(self, *, node_id: int, cluster_id: str, directory_id: UUID) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self.image: MetadataImage = NO_METADATA
        self.leader = CurrentLeader(NOBODY, 0)
        self.endpoints: dict[int, NodeEndpoint] = {}
        self.high_watermark = Offset(0)
        self._builder = ImageBuilder(NO_METADATA)
        self._applied = Offset(0)  # records below were given to `_builder`
        self._applied_epoch = 0
        self._consistent = (Offset(0), 0)  # end and epoch of the image that `_builder` has
        self._pending = BatchQueue()
        self._end = Offset(0)
        self._end_epoch = 0
        self._download: _Download | None = None

    # --- asking --------------------------------------------------------------------------------

    def request(self, fetch_version: int) -> ObserverRequest:
        """What to ask next. `advance` must have applied everything that it can."""
        if self._download is not None:
            return self._snapshot_request(self._download)
        part = ReplicaFetchPart(
            topic_id=METADATA_TOPIC_ID,
            partition=0,
            offset=self._end,
            max_bytes=_FETCH_BYTES,
            leader_epoch=self.leader.leader_epoch,
            last_fetched_epoch=self._end_epoch,
            log_start_offset=0,
            directory_id=self._directory_id,
            high_watermark=self.high_watermark,
        )
        body = encode_replica_fetch(
            fetch_version,
            [part],
            replica_id=self._node_id,
            replica_epoch=-1,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            cluster_id=self._cluster_id,
        )
        return ObserverRequest(
            leader_id=self.leader.leader_id, api=ApiKey.FETCH, version=fetch_version, body=body
        )

    def _snapshot_request(self, download: _Download) -> ObserverRequest:
        partition: messages.FetchSnapshotRequestPartitionsDict = {
            "partition": 0,
            "current_leader_epoch": self.leader.leader_epoch,
            "snapshot_id": {"end_offset": download.id.end_offset, "epoch": download.id.epoch},
            "position": download.position,
            "replica_directory_id": self._directory_id,
        }
        request: messages.FetchSnapshotRequestDict = {
            "cluster_id": self._cluster_id,
            "replica_id": self._node_id,
            "max_bytes": _SNAPSHOT_BYTES,
            "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
        }
        return ObserverRequest(
            leader_id=self.leader.leader_id,
            api=ApiKey.FETCH_SNAPSHOT,
            version=_SNAPSHOT_VERSION,
            body=encode_request(ApiKey.FETCH_SNAPSHOT, _SNAPSHOT_VERSION, request),
        )

    def leader_is_unreachable(self) -> None:
        """Nobody answers there. Another controller may know a newer leader."""
        self.leader = CurrentLeader(NOBODY, self.leader.leader_epoch)

    # --- answers -------------------------------------------------------------------------------

    def receive(self, request: ObserverRequest, body: memoryview) -> Next:
        """What an answer to `request` changes. Raises `FormatError` if it cannot be read."""
        if request.api is ApiKey.FETCH:
            return self._receive_fetch(request.version, body)
        return self._receive_snapshot(body)

    def _receive_fetch(self, version: int, body: memoryview) -> Next:
        answer = decode_replica_fetch(version, body)
        if answer.error_code:
            return self._refused(answer.error_code)
        if len(answer.parts) != 1 or answer.parts[0].topic_id != METADATA_TOPIC_ID:
            raise FormatError(f"an answer has {len(answer.parts)} partitions instead of 1")
        self._learn_endpoints(answer.endpoints)
        part = answer.parts[0]
        has_changed = self._learn_leader(part.current_leader)
        if part.error_code:
            return self._refused(part.error_code, has_changed=has_changed)
        if self._download is not None or has_changed:
            return Next.ASK  # the answer of another leader, or to an older question
        if part.diverging is not None and part.diverging.epoch >= 0:
            self._truncate(part.diverging)
        elif part.snapshot is not None and part.snapshot.end_offset >= 0:
            self._begin_download(part.snapshot)
        else:
            self._append(part)
        return Next.ASK

    def _refused(self, code: int, *, has_changed: bool = False) -> Next:
        if code == ErrorCode.inconsistent_cluster_id:
            raise ClusterMismatchError(self._cluster_id)
        if has_changed and self.leader.leader_id != NOBODY:
            return Next.ASK
        if code in _ABOUT_LEADERSHIP:
            self.leader_is_unreachable()
        return Next.WAIT

    def _learn_endpoints(self, endpoints: list[NodeEndpoint]) -> None:
        for endpoint in endpoints:
            self.endpoints[endpoint.node_id] = endpoint

    def _learn_leader(self, leader: CurrentLeader | None) -> bool:
        """Whether another leader or epoch is known now."""
        if leader is None or leader.leader_epoch < self.leader.leader_epoch:
            return False
        if leader.leader_epoch == self.leader.leader_epoch and leader.leader_id == NOBODY:
            return False
        if leader == self.leader:
            return False
        is_same_epoch = leader.leader_epoch == self.leader.leader_epoch
        if is_same_epoch and self.leader.leader_id not in (NOBODY, leader.leader_id):
            raise FormatError(
                f"epoch {leader.leader_epoch} of the controllers has two leaders, "
                f"{self.leader.leader_id} and {leader.leader_id}"
            )
        self.leader = leader
        return True

    # --- the log -------------------------------------------------------------------------------

    def _append(self, part: ReplicaFetched) -> None:
        batches, size = split_batches(part.records)
        if not batches and size < len(part.records):
            raise FormatError(f"an answer has {len(part.records)} bytes and no whole batch")
        for batch in batches:
            if batch.next_offset <= self._end:
                continue
            if batch.base_offset > self._end or batch.epoch < self._end_epoch:
                raise FormatError(
                    f"a batch of the metadata log has offset {batch.base_offset} and epoch "
                    f"{batch.epoch}; offset {self._end} and epoch {self._end_epoch} or later "
                    "were expected"
                )
            if len(self._pending) >= _PENDING_BATCHES_MAX:
                break  # they are fetched again
            self._pending.append(batch)
            self._end, self._end_epoch = batch.next_offset, batch.epoch
        if part.high_watermark > self.high_watermark:
            self.high_watermark = Offset(part.high_watermark)

    def _truncate(self, diverging: EpochEnd) -> None:
        """Drop what the leader does not have. Everything that was applied is committed."""
        end, epoch = self._applied, self._applied_epoch
        for batch in self._pending:
            if batch.epoch > diverging.epoch or batch.next_offset > diverging.end_offset:
                break
            end, epoch = batch.next_offset, batch.epoch
        if diverging.end_offset < self._applied or diverging.epoch < self._applied_epoch:
            raise MetadataLostError(
                applied=self._applied, end=diverging.end_offset, epoch=diverging.epoch
            )
        self._pending.drop_from(end)
        self._end, self._end_epoch = end, epoch

    # --- snapshots -----------------------------------------------------------------------------

    def _begin_download(self, snapshot: SnapshotId) -> None:
        if snapshot.end_offset < self._applied:
            raise MetadataLostError(
                applied=self._applied, end=snapshot.end_offset, epoch=snapshot.epoch
            )
        self._download = _Download(snapshot, ImageBuilder(NO_METADATA), BatchQueue())

    def _receive_snapshot(self, body: memoryview) -> Next:
        answer = cast(
            "messages.FetchSnapshotResponse",
            decode_response(ApiKey.FETCH_SNAPSHOT, _SNAPSHOT_VERSION, body),
        )
        if answer.error_code:
            return self._refused(answer.error_code)
        self._learn_endpoints(
            [NodeEndpoint(each.node_id, each.host, each.port) for each in answer.node_endpoints]
        )
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            raise FormatError("an answer with a part of a snapshot has not one partition")
        part = answer.topics[0].partitions[0]
        has_changed = self._learn_leader(
            CurrentLeader(part.current_leader.leader_id, part.current_leader.leader_epoch)
        )
        if part.error_code in _SNAPSHOT_IS_GONE:
            self._download = None
            return Next.ASK
        if part.error_code:
            return self._refused(part.error_code, has_changed=has_changed)
        download = self._download
        found = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        if download is None or found != download.id or part.position != download.position:
            return Next.ASK  # an answer to an older question
        self._take_part(download, part.size, part.unaligned_records)
        return Next.ASK

    def _take_part(self, download: _Download, size: int, records: bytes) -> None:
        if not records or not 0 < size <= _SNAPSHOT_SIZE_MAX:
            raise FormatError(
                f"a part of a snapshot has {len(records)} of {size} bytes; "
                f"the limit is {_SNAPSHOT_SIZE_MAX}"
            )
        download.position += len(records)
        data = download.rest + records
        batches, used = split_batches(memoryview(data))
        for batch in batches:
            download.batches.append(batch)
        download.rest = data[used:]
        download.is_complete = download.position >= size
        if download.position > size or (download.is_complete and download.rest):
            raise FormatError(
                f"a snapshot of {size} bytes ends in the middle of a batch, "
                f"{len(download.rest)} bytes before its end"
            )
        if len(download.rest) > BATCH_BYTES_MAX:
            raise FormatError(f"a batch of a snapshot has more than {BATCH_BYTES_MAX} bytes")

    # --- applying ------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `advance` would apply anything."""
        if self._download is not None:
            return bool(len(self._download.batches)) or self._download.is_complete
        return self._pending.first_below(self.high_watermark) is not None

    def advance(self, count: int) -> ImageChange | None:
        """Apply up to `count` records. Returns the change once nothing is left to apply.

        Raises `FormatError` if a record cannot be applied. The broker cannot go on after that.
        """
        if self._download is not None:
            return self._advance_download(self._download, count)
        while count > 0:
            batch = self._pending.first_below(self.high_watermark)
            if batch is None:
                break
            count -= 1  # a batch without records counts too, so that this ends
            for offset, record in self._pending.take(max(count, 1), start=self._applied):
                self._builder.apply(record)
                count -= 1
                if not self._builder.is_in_transaction:
                    self._consistent = (Offset(offset + 1), batch.epoch)
            if self._pending.is_between:
                self._applied, self._applied_epoch = batch.next_offset, batch.epoch
                if not self._builder.is_in_transaction:
                    self._consistent = (batch.next_offset, batch.epoch)
        end, epoch = self._consistent
        if self.has_work or end == self.image.end:
            return None
        change = self._builder.finish(end=end, epoch=epoch)
        self.image = change.new
        return change

    def _advance_download(self, download: _Download, count: int) -> ImageChange | None:
        while count > 0 and len(download.batches):
            count -= 1
            for _, record in download.batches.take(max(count, 1), start=0):
                download.builder.apply(record)
                count -= 1
        if len(download.batches) or not download.is_complete:
            return None
        if download.builder.is_in_transaction:
            raise FormatError("a snapshot ends inside a metadata transaction")
        end, epoch = Offset(download.id.end_offset), download.id.epoch
        old = self.image
        loaded = download.builder.finish(end=end, epoch=epoch)
        self.image = loaded.new
        self._builder = download.builder
        self._applied = self._end = end
        self._applied_epoch = self._end_epoch = epoch
        self._consistent = (end, epoch)
        self.high_watermark = max(self.high_watermark, end)
        self._pending.clear()
        self._download = None
        return whole_change(old, loaded)


_ABOUT_LEADERSHIP: Final = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.broker_not_available,
    }
)
_SNAPSHOT_IS_GONE: Final = frozenset(
    {ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range}
)
