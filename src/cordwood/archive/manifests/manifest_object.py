"""The manifest of one partition in its object store: who may replace it, and how.

    a store that is alone   checks that it is the owner, then replaces the manifest
    a leader in a cluster   replaces exactly the manifest that it has read (a conditional put), with
                            its leader epoch inside

Invariant in a cluster: the leader epoch of the manifest never decreases, and every manifest is made
from the one before it. So a broker that leads no more, and does not know it yet, can add a copy of
committed records as long as no later leader has changed the manifest, and nothing afterwards. The
first change of each leadership claims the manifest: it cuts off what this leader's log does not
have, which an unclean election may have lost.

If the answer to a conditional put is lost, the put is repeated by the client library and refused.
Then the manifest is read again: if it is the one that was put, the put has succeeded.
"""

import logging
from collections.abc import Callable

from cordwood.archive.manifests.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    Manifest,
    parse_manifest,
    partition_prefix,
    render_manifest,
)
from cordwood.archive.objects.content_checksum import content_checksum
from cordwood.archive.objects.object_port import ConditionalObjects, ObjectStore, get
from cordwood.errors import FormatError, StorageError
from cordwood.log.reading.archived_segments import ArchivePlace, LedReplica
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.value_class import replace

logger = logging.getLogger(__name__)


class ManifestObject:
    """The manifest of a store that is alone. Belongs to a `PartitionArchive`, under its lock."""

    def __init__(self, objects: ObjectStore, place: ArchivePlace) -> None:
        self._objects = objects
        self._place = place
        self._prefix = partition_prefix(place.topic, place.topic_id, place.partition)
        self._seen: tuple[str, Manifest] | None = None  # its checksum in the object store

    @property
    def may_change(self) -> bool:
        """Whether this store is the one that changes it now."""
        return True

    @property
    def key(self) -> str:
        return f"{self._prefix}/{MANIFEST_NAME}"

    def read(self) -> Manifest:
        """The manifest in the object store; an empty one if there is none."""
        try:
            data = get(self._objects, self.key, limit=MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            return self._empty()
        manifest = self._parsed(data)
        self._note_seen(manifest, data)
        return manifest

    def to_change(self) -> Manifest:
        """The manifest as it is now. Raises `StorageError` if it is not for us to change."""
        manifest = self._unchanged() or self.read()
        self.check_owner(manifest, self._place.owner)
        return manifest

    def put(self, manifest: Manifest) -> Manifest:
        """Replace what `to_change` or `read` found; returns what is there now."""
        data = render_manifest(manifest)
        self._seen = None  # after an error it may be the old one or the new one
        self._objects.put(self.key, [data])
        self._note_seen(manifest, data)
        return manifest

    def check_owner(self, manifest: Manifest, owner: str | None) -> None:
        if manifest.owner != owner:
            raise StorageError(
                f"{self._objects.url}/{self._prefix} belongs to store {manifest.owner!r}, which "
                "took it over or wrote it first; set another archive.url for this topic"
            )

    def _empty(self) -> Manifest:
        place = self._place
        return Manifest(
            generation=0,
            topic=place.topic,
            topic_id=place.topic_id,
            partition=place.partition,
            owner=place.owner or "",
            allows_gaps=place.allows_gaps,
            start=Offset(0),
        )

    def _parsed(self, data: bytes) -> Manifest:
        name = f"{self._objects.url}/{self.key}"
        try:
            manifest = parse_manifest(data)
        except FormatError as error:
            raise StorageError(f"{name} is damaged: {error.reason}") from error
        if manifest.prefix != self._prefix:
            raise StorageError(f"{name} holds the manifest of {manifest.prefix}")
        return manifest

    def _note_seen(self, manifest: Manifest, data: bytes) -> None:
        part_bytes = self._objects.checksum_part_bytes
        if part_bytes is not None:
            self._seen = (content_checksum(data, part_bytes), manifest)

    def _unchanged(self) -> Manifest | None:
        """The manifest as it was read or put last, if the store says that it is still that one."""
        if self._seen is None:
            return None
        checksum, manifest = self._seen
        try:
            stored = self._objects.checksum(self.key)
        except FileNotFoundError:
            return None
        return manifest if stored == checksum else None


class LedManifestObject(ManifestObject):
    """The manifest of a partition that brokers of a cluster archive: see the head of this module.

    `when_claimed` is called after a leadership has changed the manifest for the first time.
    """

    def __init__(
        self,
        objects: ObjectStore,
        place: ArchivePlace,
        led: LedReplica,
        when_claimed: Callable[[], None],
    ) -> None:
        super().__init__(objects, place)
        self._led = led
        self._when_claimed = when_claimed
        self._tag: str | None = None  # of what was read last; None: there was nothing
        self._claimed_in: LeaderEpoch | None = None

    @property
    def may_change(self) -> bool:
        return self._led.led_in is not None

    def read(self) -> Manifest:
        try:
            data, self._tag = self._conditional.get_tagged(self.key, limit=MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            self._tag = None
            return self._empty()
        return self._parsed(data)

    def to_change(self) -> Manifest:
        epoch = self._epoch()
        manifest = self.read()
        self.check_owner(manifest, self._place.owner)
        if manifest.leader_epoch > epoch:
            raise StorageError(
                f"{self._prefix} was archived by the leader of epoch {manifest.leader_epoch}; "
                f"the leadership of epoch {epoch} is over"
            )
        if self._claimed_in != epoch:
            manifest = self._claim(manifest)
        return manifest

    def put(self, manifest: Manifest) -> Manifest:
        epoch = self._epoch()
        new = replace(manifest, leader_epoch=epoch)
        data = render_manifest(new)
        try:
            self._tag = self._conditional.put_if(self.key, data, replaces=self._tag)
        except FileExistsError as error:
            if not self._is_there(data):
                raise StorageError(
                    f"{self._objects.url}/{self.key} was changed by another broker meanwhile; "
                    "it is tried again if this one still leads"
                ) from error
        self._claimed_in = epoch
        return new

    def _claim(self, manifest: Manifest) -> Manifest:
        """Make it ours for this epoch, without what this leader's log does not have."""
        end = self._led.agreed_end(manifest.epochs, manifest.end) if manifest.segments else None
        claimed = replace(manifest, generation=manifest.generation + 1)
        if end is not None and end < manifest.end:
            claimed = manifest.kept(manifest.start, end)
            logger.warning(
                "%s: the archive ended at offset %d, but this leader has other records from %d on; "
                "the archive ends at %d now",
                self._prefix,
                manifest.end,
                end,
                claimed.end,
            )
        claimed = self.put(claimed)
        self._when_claimed()
        return claimed

    def _is_there(self, data: bytes) -> bool:
        try:
            found, tag = self._conditional.get_tagged(self.key, limit=MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            return False
        if found != data:
            return False
        self._tag = tag
        return True

    def _epoch(self) -> LeaderEpoch:
        epoch = self._led.led_in
        if epoch is None:
            raise StorageError(f"{self._prefix} is archived by the broker that leads it")
        return epoch

    @property
    def _conditional(self) -> ConditionalObjects:
        objects = self._objects
        assert isinstance(objects, ConditionalObjects), objects
        reason = objects.why_unconditional()
        if reason is not None:
            raise StorageError(f"{objects.url} cannot be the archive of a cluster: {reason}")
        return objects
