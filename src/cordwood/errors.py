"""Every exception that Cordwood raises on purpose, in families by who must act.

    CordwoodError
    ├── ConfigError(key, value, reason)                  the operator must fix a setting
    ├── FormatError(reason, position)                    bytes do not have the expected format
    │   ├── TruncatedInputError(needed, got)             read more bytes, or treat as torn
    │   ├── ChecksumMismatchError(stored, computed)
    │   ├── UnsupportedFormatError(what, found)          magic, codec, version
    │   └── LimitExceededError(what, size, limit)        the sender's fault
    ├── StorageError                                     the disk's fault; keep the evidence
    │   ├── CorruptSegmentError(name, position, reason, first_offset, next_offset)
    │   ├── DirectoryLockedError(path, owner)
    │   ├── DiskFullError(name, free_bytes_min)          free space, then try again
    │   └── LogFailedError(name, reason)                 a sync failed; reopen to continue
    ├── BrokerError                                      a remote broker, as seen by a client
    │   ├── BrokerUnreachableError(address, reason)      no answer, or not a broker's answer
    │   ├── BrokerNotTrustedError(address, reason)       its certificate is not accepted
    │   ├── AuthenticationFailedError(address, reason)   the broker does not accept the client
    │   └── BrokerRefusedError(what, code, reason)       the broker refused a request
    ├── ClusterError                                     a broker and the controllers of its cluster
    │   ├── ClusterMismatchError(cluster_id)             the controllers belong to another cluster
    │   ├── MetadataLostError(applied, end, epoch)       the controllers lost what they had decided
    │   └── RegistrationRefusedError(node_id, reason)    this broker may not join
    └── LogError                                         a well-formed request refused
        ├── OffsetOutOfRangeError(requested, start, end)
        ├── RecordNotFoundError(name, offset)            compacted away, or a marker
        ├── RecordTooLargeError(size, limit)
        ├── TooManyRecordsError(count, limit)
        ├── InvalidRecordError(reason, record_errors)
        │   └── InvalidTimestampError
        ├── UnexpectedOffsetError(expected, actual)      `expected_offset` did not match
        ├── OutOfOrderSequenceError / InvalidProducerEpochError / InvalidTransactionStateError
        ├── EarlierBatchRefusedError(producer_id, expected, got)  send it again, in order
        ├── UnverifiedTransactionError(producer_id)      the coordinator was not asked
        ├── TransactionError(transactional_id, reason)
        │   └── ProducerFencedError                      another producer has the same id
        ├── TopicExistsError / UnknownTopicError / UnknownPartitionError / InvalidTopicNameError
        ├── ReadOnlyError(what)
        ├── DataLossError(topic, partition, what)        a query needs records that were deleted
        ├── LogHeldError(name)                           try again in a moment
        ├── NotLeaderError(name, epoch)                  ask the leader of the partition
        ├── RoleChangedError(name, asked, current)       the cluster gave it another role
        ├── ReplicatedLogError(name, what)               other brokers have replicas of it
        ├── ReplicaMismatchError(name, reason)           the leader's batches do not continue it
        ├── ChangeRefusedError(kind, reason)             the store's owner refused a change
        ├── ChangeTimeoutError(path, owner, waited_s)    the store's owner did not answer
        ├── TableChangedError(table, what)               another writer changed it; run again
        ├── CatalogUnreachableError(table, where, reason)   no good answer from a table's catalog
        └── LogClosedError(name)

Facts are attributes, and the message is built here, so nobody has to parse a message. Every class
survives pickling: Spark and process pools move exceptions between processes. An `OSError` passes
through, with a note that says what was being done.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from cordwood.quantities import Offset


def _rebuild(
    cls: type["CordwoodError"], args: tuple[object, ...], facts: dict[str, object]
) -> "CordwoodError":
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(facts)
    return error


class CordwoodError(Exception):
    """Root of the tree above; catch it to catch all errors of Cordwood and no others."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is rebuilt as cls(message). That fails for every class below
        # with other arguments, and the error of a worker would arrive as an unrelated TypeError.
        return _rebuild, (type(self), self.args, self.__dict__)


# Also misspelled keys and keys of others, whose values nobody declared secret. A key that names a
# file, or says where something is, is not secret.
_SECRET_KEY: Final = re.compile(
    r"(pass|pasw|pwd|secret|ja+s+|credential|token|private|key\.?pem|keystore\.(key|cert))"
    r"(?!.*(file|location|path|url|type|class|iteration|algorithm|lifetime|\.ms$))",
    re.IGNORECASE,
)
HIDDEN: Final = "[hidden]"


def is_secret_key(name: str) -> bool:
    """Whether the value of a key is probably secret, by the name of the key."""
    return _SECRET_KEY.search(name) is not None


class ConfigError(CordwoodError, ValueError):
    """A setting has an unusable value. The key is named as the operator wrote it.

    The value of a key that is secret by its name is neither shown nor kept.
    """

    def __init__(self, key: str, value: object, reason: str) -> None:
        if is_secret_key(key) and value not in ("", None):
            value = HIDDEN
        super().__init__(f"{key} = {value}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


# --- bytes in the wrong format -------------------------------------------------------------


class FormatError(CordwoodError):
    """Bytes do not have the expected format. `position` is relative to the input."""

    def __init__(self, reason: str, *, position: int = 0) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.reason = reason
        self.position = position


class TruncatedInputError(FormatError):
    """The input ends too early."""

    def __init__(self, what: str, *, needed: int, got: int, position: int = 0) -> None:
        super().__init__(f"{what} needs {needed} bytes, got {got}", position=position)
        self.needed = needed
        self.got = got


class ChecksumMismatchError(FormatError):
    """The stored checksum does not match the bytes."""

    def __init__(self, *, stored: int, computed: int, position: int = 0) -> None:
        super().__init__(
            f"checksum mismatch: stored {stored:#010x}, computed {computed:#010x}",
            position=position,
        )
        self.stored = stored
        self.computed = computed


class UnsupportedFormatError(FormatError):
    """A version, magic or codec is not supported."""

    def __init__(self, what: str, found: object, *, position: int = 0) -> None:
        super().__init__(f"unsupported {what}: {found}", position=position)
        self.what = what
        self.found = found


class LimitExceededError(FormatError):
    """Input from outside is larger than accepted."""

    def __init__(self, what: str, *, size: int, limit: int, position: int = 0) -> None:
        super().__init__(f"{what} of {size} exceeds the limit of {limit}", position=position)
        self.what = what
        self.size = size
        self.limit = limit


# --- the disk's fault ----------------------------------------------------------------------


class StorageError(CordwoodError):
    """Files are missing, damaged or cannot be written."""


class CorruptSegmentError(StorageError):
    """Durable bytes changed. Nothing was deleted; offsets from `next_offset` on are readable.

    `next_offset` is None if no readable batch follows in this log.
    """

    def __init__(
        self,
        name: str,
        position: int,
        reason: str,
        *,
        first_offset: Offset,
        next_offset: Offset | None,
    ) -> None:
        lost = (
            f"from {first_offset} on" if next_offset is None else f"[{first_offset}, {next_offset})"
        )
        super().__init__(
            f"{name} is damaged at byte {position}: {reason}; offsets {lost} cannot be read"
        )
        self.name = name
        self.position = position
        self.reason = reason
        self.first_offset = first_offset
        self.next_offset = next_offset


class DirectoryLockedError(StorageError):
    """Another process owns the data directory."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(
            f"{path} is in use by {owner}; stop that process, or open with read_only=True"
        )
        self.path = path
        self.owner = owner


class DiskFullError(StorageError):
    """No disk space for an append or another change. Nothing was changed; reading still works."""

    def __init__(
        self, name: str, *, free_bytes_min: int | None = None, action: str = "appending to"
    ) -> None:
        space = (
            "no disk space left"
            if free_bytes_min is None
            else f"less disk space left than log.dir.free.bytes.min = {free_bytes_min}"
        )
        super().__init__(
            f"{space} while {action} {name}; nothing was changed; "
            "delete data or shorten retention, then try again"
        )
        self.name = name
        self.free_bytes_min = free_bytes_min


class LogFailedError(StorageError):
    """The last writes may not be durable, so the log accepts no appends until it is reopened."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{name} stopped accepting appends: {reason}; close and reopen the store to continue "
            "after the last durable record"
        )
        self.name = name
        self.reason = reason


# --- a remote broker ------------------------------------------------------------------------


class BrokerError(CordwoodError):
    """A request to a broker failed, or its outcome is unknown."""


class BrokerUnreachableError(BrokerError):
    """No broker answers at the address."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no broker answers at {address}: {reason}")
        self.address = address
        self.reason = reason


class BrokerNotTrustedError(BrokerError):
    """The broker's certificate is not trusted, so nothing was sent."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the broker at {address} is not trusted: {reason}")
        self.address = address
        self.reason = reason


class AuthenticationFailedError(BrokerError):
    """The client could not prove who it is, or the broker could not."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"authentication with the broker at {address} failed: {reason}")
        self.address = address
        self.reason = reason


class BrokerRefusedError(BrokerError):
    """The broker refused a request. `code` is the name of Kafka's error code."""

    def __init__(self, what: str, code: str, reason: str = "") -> None:
        said = f"{reason} ({code})" if reason else code
        super().__init__(f"the broker refused to {what}: {said}")
        self.what = what
        self.code = code
        self.reason = reason


# --- the controllers of a cluster -------------------------------------------------------------


class ClusterError(CordwoodError):
    """A broker cannot be a member of its cluster. The broker stops."""


class ClusterMismatchError(ClusterError):
    """The controllers belong to another cluster than the data of this broker."""

    def __init__(self, cluster_id: str) -> None:
        super().__init__(
            f"the controllers belong to another cluster than this broker's data, which has the "
            f"cluster id {cluster_id}: check controller.quorum.bootstrap.servers, or format new "
            "data directories with the cluster id of these controllers"
        )
        self.cluster_id = cluster_id


class MetadataLostError(ClusterError):
    """The controllers do not have records any more that they had committed."""

    def __init__(self, *, applied: int, end: int, epoch: int) -> None:
        super().__init__(
            f"the metadata log of the controllers ends at {end} in epoch {epoch}, but this broker "
            f"has applied its records below {applied}, which were committed: the controllers lost "
            "metadata. Do not delete topics; compare the data of the controllers, then restart"
        )
        self.applied = applied
        self.end = end
        self.epoch = epoch


class RegistrationRefusedError(ClusterError):
    """The controllers do not let this broker join."""

    def __init__(self, node_id: int, reason: str) -> None:
        super().__init__(f"the controllers refuse to register broker {node_id}: {reason}")
        self.node_id = node_id
        self.reason = reason


# --- a well-formed request refused ----------------------------------------------------------


class LogError(CordwoodError):
    """A request was refused; the log itself is in order."""


class OffsetOutOfRangeError(LogError, IndexError):
    """The requested offset is not in the half-open range the log holds."""

    def __init__(self, requested: Offset, *, start: Offset, end: Offset) -> None:
        super().__init__(f"offset {requested} is out of range: the log holds [{start}, {end})")
        self.requested = requested
        self.start = start
        self.end = end


class RecordNotFoundError(LogError, LookupError):
    """The log has the offset, but no record with it: compaction removed it, or it is a marker."""

    def __init__(self, name: str, offset: Offset) -> None:
        super().__init__(
            f"{name} has no record with offset {offset}: compaction removed it, or it marks the "
            "end of a transaction"
        )
        self.name = name
        self.offset = offset


class RecordTooLargeError(LogError):
    """A batch, compressed and with its header, is larger than the topic allows."""

    def __init__(self, *, size: int, limit: int, key: str = "max.message.bytes") -> None:
        super().__init__(f"batch of {size} bytes is larger than {key} = {limit}")
        self.size = size
        self.limit = limit
        self.key = key


class TooManyRecordsError(LogError):
    """A batch of a client has more records than one batch may have, however small they are."""

    def __init__(self, *, count: int, limit: int) -> None:
        super().__init__(f"batch of {count} records; one batch may have {limit}: send smaller ones")
        self.count = count
        self.limit = limit


class InvalidRecordError(LogError):
    """A batch breaks a rule of the topic. `record_errors` lists (index in batch, what is wrong)."""

    def __init__(self, reason: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp is outside the range that the topic accepts."""


class UnexpectedOffsetError(LogError):
    """`expected_offset` did not match: another append came first."""

    def __init__(self, *, expected: Offset, actual: Offset) -> None:
        super().__init__(f"expected next offset {expected}, but it is {actual}")
        self.expected = expected
        self.actual = actual


class OutOfOrderSequenceError(LogError):
    """An idempotent producer skipped or repeated a sequence number."""

    def __init__(self, producer_id: int, *, expected: int, got: int) -> None:
        super().__init__(f"producer {producer_id}: expected sequence {expected}, got {got}")
        self.producer_id = producer_id
        self.expected = expected
        self.got = got


class EarlierBatchRefusedError(LogError):
    """The batch before this one was refused for a moment, and has to come first."""

    def __init__(self, producer_id: int, *, expected: int, got: int) -> None:
        super().__init__(
            f"producer {producer_id}: sequence {got} came before {expected}, which was refused "
            "a moment ago; send both again, in order"
        )
        self.producer_id = producer_id
        self.expected = expected
        self.got = got


class InvalidProducerEpochError(LogError):
    """A newer producer with the same id has fenced this one."""

    def __init__(self, producer_id: int, *, current: int, got: int) -> None:
        super().__init__(f"producer {producer_id}: epoch {got} is older than current {current}")
        self.producer_id = producer_id
        self.current = current
        self.got = got


class InvalidTransactionStateError(LogError):
    """The batch does not fit the open transaction of its producer."""

    def __init__(self, producer_id: int, reason: str) -> None:
        super().__init__(f"producer {producer_id}: {reason}")
        self.producer_id = producer_id
        self.reason = reason


class UnverifiedTransactionError(LogError):
    """A batch would begin a transaction that its coordinator has not been asked about."""

    def __init__(self, producer_id: int) -> None:
        super().__init__(f"producer {producer_id} has no open transaction in this log")
        self.producer_id = producer_id


class TransactionError(LogError):
    """A transaction cannot do what was asked. Nothing of it is visible, unless it was committed."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(f"transaction of {transactional_id!r}: {reason}")
        self.transactional_id = transactional_id
        self.reason = reason


class ProducerFencedError(TransactionError):
    """Another producer has taken over the transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            transactional_id,
            "it was aborted: another producer has taken over the transactional id",
        )


class TransactionCoordinatorFencedError(LogError):
    """A transaction marker came from a coordinator that was replaced."""

    def __init__(self, producer_id: int, *, current: int, got: int) -> None:
        super().__init__(
            f"producer {producer_id}: coordinator epoch {got} is older than current {current}"
        )
        self.producer_id = producer_id
        self.current = current
        self.got = got


class TopicExistsError(LogError):
    """A topic of that name already exists."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} already exists")
        self.topic = topic


class UnknownTopicError(LogError, KeyError):
    """There is no topic of that name. The message suggests names among `known` that are similar."""

    def __init__(self, topic: str, *, known: Iterable[str] = ()) -> None:
        from difflib import get_close_matches  # not at the top: only a mistake needs it

        near = " or ".join(get_close_matches(topic, [*known], cutoff=0.7))
        hint = f" (did you mean {near}?)" if near else ""
        super().__init__(f"no topic named {topic!r}{hint}")
        self.topic = topic

    __str__ = Exception.__str__  # KeyError would print the repr of the message


class TopicDeletedError(UnknownTopicError):
    """The topic was deleted, and maybe created again, since the handle was opened."""

    def __init__(self, topic: str) -> None:
        Exception.__init__(
            self,
            f"topic {topic!r} was deleted, and perhaps created again, since it was opened here; "
            f"call store.topic({topic!r}) again",
        )
        self.topic = topic


class UnknownPartitionError(LogError):
    """The topic has fewer partitions."""

    def __init__(self, topic: str, partition: int, *, count: int) -> None:
        super().__init__(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        self.topic = topic
        self.partition = partition
        self.count = count


class InvalidTopicNameError(LogError, ValueError):
    """The text cannot be the name of a topic."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic name {topic!r}: {reason}")
        self.topic = topic
        self.reason = reason


class ReadOnlyError(LogError):
    """The store was opened with read_only=True."""

    def __init__(self, what: str) -> None:
        super().__init__(f"cannot {what}: the store was opened read-only")
        self.what = what


class DataLossError(LogError):
    """Records that a query needs were deleted. `partition` is None for the whole topic."""

    def __init__(self, topic: str, partition: int | None, what: str) -> None:
        name = topic if partition is None else f"{topic}-{partition}"
        super().__init__(
            f"{name}: {what}; set failOnDataLoss=false (--allow-data-loss) to continue without the "
            "lost data"
        )
        self.name = name
        self.topic = topic
        self.partition = partition
        self.what = what


class LogHeldError(LogError):
    """A batch is being published, and the caller does not wait for it to end."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a batch is being published to {name}; append again in a moment")
        self.name = name


class NotLeaderError(LogError):
    """Only the leader of a partition appends, and this replica does not lead in that epoch.

    `epoch` is that of the role it has; -1 if the cluster gave it none yet.
    """

    def __init__(self, name: str, *, epoch: int) -> None:
        super().__init__(
            f"this broker does not lead {name} (its role is of epoch {epoch}); "
            "ask the leader of the partition"
        )
        self.name = name
        self.epoch = epoch


class RoleChangedError(LogError):
    """The replica has another role since this was begun. Nothing was changed."""

    def __init__(self, name: str, *, asked: int, current: int) -> None:
        super().__init__(
            f"{name} no longer follows the leader of epoch {asked}: its role is of epoch {current}"
        )
        self.name = name
        self.asked = asked
        self.current = current


class ReplicatedLogError(LogError):
    """A change of one replica that the others would not follow."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"cannot {what} {name}: other brokers have replicas of it; use the cluster's commands"
        )
        self.name = name
        self.what = what


class ReplicaMismatchError(LogError):
    """Batches that were fetched from a leader do not continue the log. None was appended."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"batches fetched for {name} do not continue its log: {reason}")
        self.name = name
        self.reason = reason


class LongCheckError(LogError):
    """The check of a batch would take long, and the caller has no time for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the check of the batch would take long: {reason}")
        self.reason = reason


class ChangeRefusedError(LogError):
    """The owner of a store refused a change. Nothing was changed."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind} was refused by the store's owner: {reason}")
        self.kind = kind
        self.reason = reason


class ChangeTimeoutError(LogError):
    """Another process owns the store and did not answer a change request in time.

    `is_in_doubt`: the owner had accepted the request and may still make the change.
    """

    def __init__(self, path: str, owner: str, *, waited_s: float, is_in_doubt: bool) -> None:
        outcome = (
            "it accepted the request and may still make the change; a repeated request with the "
            "same id is not executed twice"
            if is_in_doubt
            else "the request was withdrawn and nothing was changed"
        )
        super().__init__(
            f"{path} is in use by {owner}, which did not answer within {waited_s:.0f} s; "
            f"{outcome}; check that the process is running with its housekeeping, or stop it"
        )
        self.path = path
        self.owner = owner
        self.waited_s = waited_s
        self.is_in_doubt = is_in_doubt


class TableChangedError(LogError):
    """Another writer changed the table while a job ran. The job wrote nothing."""

    def __init__(self, table: str, what: str) -> None:
        super().__init__(f"{table} changed while the job ran: {what}; run it again")
        self.table = table
        self.what = what


class CatalogUnreachableError(LogError):
    """The server or file with the catalog of a table does not answer, or failed.

    A commit may have taken effect before: the next run looks, and continues from there.
    """

    def __init__(self, table: str, where: str, reason: str) -> None:
        super().__init__(
            f"the catalog of {table}, {where}, gives no good answer: {reason}; "
            "check it and run the job again, which continues where the table ends"
        )
        self.table = table
        self.where = where
        self.reason = reason


class ForkedStoreError(LogError):
    """A process that was forked uses a store, archive, topic or log that its parent opened."""

    def __init__(self, name: str, *, owner_pid: int) -> None:
        super().__init__(
            f"{name} belongs to process {owner_pid}, from which this process was forked; open it "
            "here, a store with read_only=True, or start this process with spawn instead of fork"
        )
        self.name = name
        self.owner_pid = owner_pid


class LogClosedError(LogError):
    """The log, topic or store is closed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is closed")
        self.name = name
