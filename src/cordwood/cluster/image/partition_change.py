"""One partition, and what a record of the metadata log makes of it. Pure."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from cordwood.cluster.image.partition_image import LeaderRecovery, PartitionImage
from cordwood.errors import FormatError
from cordwood.protocol.message_codec import Fields
from cordwood.quantities import LeaderEpoch
from cordwood.value_class import replace

MIGRATING: Final = UUID(int=0)  # Kafka's word for a directory that is not known yet

_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1
_SHARED_MAX: Final = 10_000


class SharedTuples:
    """Equal tuples as one object: thousands of partitions have the same replicas. Bounded."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def __call__(self, values: Sequence[Any]) -> tuple[Any, ...]:
        found = tuple(values)
        if not found:
            return ()
        if len(self._known) >= _SHARED_MAX:
            self._known.clear()
        return self._known.setdefault(found, found)


def new_partition(record: Fields, shared: SharedTuples) -> PartitionImage:
    """The partition that a PARTITION record describes."""
    _check_directories(record.directories, record.replicas)
    return PartitionImage(
        replicas=shared(record.replicas),
        in_sync=shared(record.isr),
        leader=record.leader,
        leader_epoch=LeaderEpoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
        recovery=_recovery(record.leader_recovery_state),
        eligible=shared(record.eligible_leader_replicas or ()),
        last_known=shared(record.last_known_elr or ()),
        adding=shared(record.adding_replicas),
        removing=shared(record.removing_replicas),
        directories=shared(record.directories),
    )


def changed_partition(
    known: PartitionImage, record: Fields, shared: SharedTuples
) -> PartitionImage:
    """What a PARTITION_CHANGE record makes of a partition: fields that are null stay."""

    def chosen(value: Sequence[Any] | None, old: tuple[Any, ...]) -> tuple[Any, ...]:
        return old if value is None else shared(value)

    replicas = chosen(record.replicas, known.replicas)
    directories = known.directories
    if record.directories is not None:
        _check_directories(record.directories, replicas)
        directories = shared(record.directories)
    elif len(directories) != len(replicas):
        directories = ()  # another number of replicas, and nothing is known of where they are
    has_election = record.leader != _NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        in_sync=chosen(record.isr, known.in_sync),
        leader=record.leader if has_election else known.leader,
        leader_epoch=LeaderEpoch(known.leader_epoch + has_election),
        partition_epoch=known.partition_epoch + 1,
        recovery=known.recovery if recovery == _NO_RECOVERY_CHANGE else _recovery(recovery),
        eligible=chosen(record.eligible_leader_replicas, known.eligible),
        last_known=chosen(record.last_known_elr, known.last_known),
        adding=chosen(record.adding_replicas, known.adding),
        removing=chosen(record.removing_replicas, known.removing),
        directories=directories,
    )


def without_eligible(known: PartitionImage) -> PartitionImage:
    """The partition after its eligible leader replicas were cleared."""
    return replace(known, eligible=(), last_known=(), partition_epoch=known.partition_epoch + 1)


def _recovery(number: int) -> LeaderRecovery:
    try:
        return LeaderRecovery(number)
    except ValueError:
        raise FormatError(f"leader recovery state {number} means nothing") from None


def _check_directories(directories: Sequence[UUID], replicas: Sequence[int]) -> None:
    if directories and len(directories) != len(replicas):
        raise FormatError(
            f"a partition has {len(replicas)} replicas but {len(directories)} directories"
        )
