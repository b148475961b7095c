"""Every exception Cordwood raises on purpose, in families by who must act.

    CordwoodError
    ├── ConfigError(key, value, reason)                  the operator's to fix
    ├── FormatError(reason, position)                    bytes are not what they claim
    │   ├── TruncatedInputError(needed, got)             ask for more bytes, or call it torn
    │   ├── ChecksumMismatchError(stored, computed)
    │   ├── UnsupportedFormatError(what, found)          magic, codec, version
    │   └── LimitExceededError(what, size, limit)        the sender's fault
    ├── StorageError                                     the disk's fault; keep the evidence
    │   ├── CorruptSegmentError(name, position, reason, first_offset, next_offset)
    │   ├── DirectoryLockedError(path, owner)
    │   ├── DiskFullError(name, free_bytes_min)          make room, then append again
    │   └── LogFailedError(name, reason)                 a sync failed: reopen to go on
    ├── BrokerError                                      a broker elsewhere, asked as a client
    │   ├── BrokerUnreachableError(address, reason)      it does not answer, or not as a broker
    │   └── BrokerRefusedError(what, code, reason)       it answers that it will not
    └── LogError                                         a well-formed request refused
        ├── OffsetOutOfRangeError(requested, start, end)
        ├── RecordTooLargeError(size, limit)
        ├── InvalidRecordError(reason, record_errors)
        │   └── InvalidTimestampError
        ├── UnexpectedOffsetError(expected, actual)      `expected_offset` did not match
        ├── OutOfOrderSequenceError / InvalidProducerEpochError / InvalidTransactionStateError
        ├── TopicExistsError / UnknownTopicError / UnknownPartitionError / InvalidTopicNameError
        ├── ReadOnlyError(what)
        ├── DataLossError(topic, partition, what)        a query asked for records that are gone
        ├── LogHeldError(name)                           append again in a moment
        ├── ChangeRefusedError(kind, reason)             the store's owner would not make a change
        ├── ChangeTimeoutError(path, owner, waited_s)    its owner did not answer
        ├── TableChangedError(table, what)               someone else wrote to it: run again
        └── LogClosedError(name)

Facts are attributes and the message is built here, so nobody parses a message. Every class
survives pickling: Spark and process pools move exceptions between processes. An `OSError`
that is nobody's fault but the machine's passes through, with a note saying what was going on.
"""

from collections.abc import Sequence

from cordwood.quantities import Offset


def _rebuild(
    cls: type["CordwoodError"], args: tuple[object, ...], facts: dict[str, object]
) -> "CordwoodError":
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(facts)
    return error


class CordwoodError(Exception):
    """Root of the tree above; catch this to catch us and nothing else."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is rebuilt as cls(message), which fails for every class
        # below that takes facts; then a worker's error arrives as an unrelated TypeError.
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(CordwoodError, ValueError):
    """A setting that cannot be used, named as the operator wrote it."""

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(f"{key} = {value}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


# --- bytes that are not what they claim ----------------------------------------------------


class FormatError(CordwoodError):
    """Bytes are not what they claim to be. `position` is where, in the input given."""

    def __init__(self, reason: str, *, position: int = 0) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.reason = reason
        self.position = position


class TruncatedInputError(FormatError):
    """The input ends before what it announces."""

    def __init__(self, what: str, *, needed: int, got: int, position: int = 0) -> None:
        super().__init__(f"{what} needs {needed} bytes, got {got}", position=position)
        self.needed = needed
        self.got = got


class ChecksumMismatchError(FormatError):
    """The stored checksum is not that of the bytes."""

    def __init__(self, *, stored: int, computed: int, position: int = 0) -> None:
        super().__init__(
            f"checksum is {computed:#010x}, stored is {stored:#010x}", position=position
        )
        self.stored = stored
        self.computed = computed


class UnsupportedFormatError(FormatError):
    """A version, magic or codec that this code does not know."""

    def __init__(self, what: str, found: object, *, position: int = 0) -> None:
        super().__init__(f"unsupported {what}: {found}", position=position)
        self.what = what
        self.found = found


class LimitExceededError(FormatError):
    """Something from outside is larger than we accept."""

    def __init__(self, what: str, *, size: int, limit: int, position: int = 0) -> None:
        super().__init__(f"{what} of {size} exceeds the limit of {limit}", position=position)
        self.what = what
        self.size = size
        self.limit = limit


# --- the disk's fault ----------------------------------------------------------------------


class StorageError(CordwoodError):
    """Files are missing, damaged or cannot be written."""


class CorruptSegmentError(StorageError):
    """Promised bytes changed. Nothing was deleted; offsets from `next_offset` on are readable.

    `next_offset` is None when nothing sound follows in this log.
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
        until = "the end" if next_offset is None else f"offset {next_offset}"
        super().__init__(
            f"{name} is damaged at byte {position}: {reason}; "
            f"offsets from {first_offset} to {until} cannot be read"
        )
        self.name = name
        self.position = position
        self.reason = reason
        self.first_offset = first_offset
        self.next_offset = next_offset


class DirectoryLockedError(StorageError):
    """Another writer holds the data directory."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(
            f"{path} is in use by {owner}; stop it, or open the directory with read_only=True"
        )
        self.path = path
        self.owner = owner


class DiskFullError(StorageError):
    """No room for the append. Nothing of it is visible; reading goes on; try again with room."""

    def __init__(self, name: str, *, free_bytes_min: int | None = None) -> None:
        room = (
            "no space left"
            if free_bytes_min is None
            else f"less than log.dir.free.bytes.min = {free_bytes_min} bytes free"
        )
        super().__init__(
            f"{room} while appending to {name}: nothing was written; "
            "delete data or shorten retention, then append again"
        )
        self.name = name
        self.free_bytes_min = free_bytes_min


class LogFailedError(StorageError):
    """The log cannot vouch for what it wrote last, so it acknowledges nothing until reopened."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{name} stopped accepting appends: {reason}; close and reopen the store to go on "
            "from the last durable record"
        )
        self.name = name
        self.reason = reason


# --- a broker elsewhere ---------------------------------------------------------------------


class BrokerError(CordwoodError):
    """What was asked of a broker over the network did not happen, or may not have."""


class BrokerUnreachableError(BrokerError):
    """No answer from that address, or none that a broker gives."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no broker answers at {address}: {reason}")
        self.address = address
        self.reason = reason


class BrokerRefusedError(BrokerError):
    """The broker said no. `code` is what Kafka calls the reason."""

    def __init__(self, what: str, code: str, reason: str = "") -> None:
        said = f"{reason} ({code})" if reason else code
        super().__init__(f"the broker refused to {what}: {said}")
        self.what = what
        self.code = code
        self.reason = reason


# --- a well-formed request refused ----------------------------------------------------------


class LogError(CordwoodError):
    """The log is fine and the request is not."""


class OffsetOutOfRangeError(LogError):
    """The requested offset is not in the half-open range the log holds."""

    def __init__(self, requested: Offset, *, start: Offset, end: Offset) -> None:
        super().__init__(f"asked for offset {requested}, the log holds [{start}, {end})")
        self.requested = requested
        self.start = start
        self.end = end


class RecordTooLargeError(LogError):
    """A batch, after compression and with its header, is larger than the topic allows."""

    def __init__(self, *, size: int, limit: int, key: str = "max.message.bytes") -> None:
        super().__init__(f"batch of {size} bytes is larger than {key} = {limit}")
        self.size = size
        self.limit = limit
        self.key = key


class InvalidRecordError(LogError):
    """A batch breaks a rule of the topic. `record_errors` lists (index in batch, what is wrong)."""

    def __init__(self, reason: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp is outside what the topic accepts."""


class UnexpectedOffsetError(LogError):
    """`expected_offset` was given and another append came first."""

    def __init__(self, *, expected: Offset, actual: Offset) -> None:
        super().__init__(f"expected the next offset to be {expected}, it is {actual}")
        self.expected = expected
        self.actual = actual


class OutOfOrderSequenceError(LogError):
    """An idempotent producer skipped or repeated a sequence number."""

    def __init__(self, producer_id: int, *, expected: int, got: int) -> None:
        super().__init__(f"producer {producer_id}: expected sequence {expected}, got {got}")
        self.producer_id = producer_id
        self.expected = expected
        self.got = got


class InvalidProducerEpochError(LogError):
    """The producer was fenced by a newer one with the same id."""

    def __init__(self, producer_id: int, *, current: int, got: int) -> None:
        super().__init__(f"producer {producer_id}: epoch {got} is older than {current}")
        self.producer_id = producer_id
        self.current = current
        self.got = got


class InvalidTransactionStateError(LogError):
    """The batch does not fit the transaction its producer has open."""

    def __init__(self, producer_id: int, reason: str) -> None:
        super().__init__(f"producer {producer_id}: {reason}")
        self.producer_id = producer_id
        self.reason = reason


class TransactionCoordinatorFencedError(LogError):
    """A marker from a coordinator that has been replaced."""

    def __init__(self, producer_id: int, *, current: int, got: int) -> None:
        super().__init__(f"producer {producer_id}: coordinator epoch {got} is older than {current}")
        self.producer_id = producer_id
        self.current = current
        self.got = got


class TopicExistsError(LogError):
    """A topic of that name is already there."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} already exists")
        self.topic = topic


class UnknownTopicError(LogError, KeyError):
    """No topic of that name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"no topic named {topic!r}")
        self.topic = topic

    __str__ = Exception.__str__  # KeyError would print the repr of the message


class UnknownPartitionError(LogError):
    """The topic has fewer partitions."""

    def __init__(self, topic: str, partition: int, *, count: int) -> None:
        super().__init__(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        self.topic = topic
        self.partition = partition
        self.count = count


class InvalidTopicNameError(LogError, ValueError):
    """The name cannot be a topic's."""

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
    """A query was to read records that are not there any more. `partition` is None: all of them."""

    def __init__(self, topic: str, partition: int | None, what: str) -> None:
        name = topic if partition is None else f"{topic}-{partition}"
        super().__init__(f"{name}: {what}; set failOnDataLoss=false to read on without it")
        self.topic = topic
        self.partition = partition
        self.what = what


class LogHeldError(LogError):
    """A publication is under way: appends wait for its end, and this one was not to wait."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a batch is being published to {name}: append again in a moment")
        self.name = name


class ChangeRefusedError(LogError):
    """The owner of a store was asked for a change and refused it. Nothing was changed."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind} was refused by the store's owner: {reason}")
        self.kind = kind
        self.reason = reason


class ChangeTimeoutError(LogError):
    """Another process owns the store and did not answer a request for a change.

    `is_in_doubt`: it had taken the request up, and may make the change yet.
    """

    def __init__(self, path: str, owner: str, *, waited_s: float, is_in_doubt: bool) -> None:
        outcome = (
            "it has taken the request up, so the change may be made yet; a repeated request with "
            "the same id is not made twice"
            if is_in_doubt
            else "the request was withdrawn and nothing was changed"
        )
        super().__init__(
            f"{path} is in use by {owner}, which did not answer within {waited_s:.0f} s: "
            f"{outcome}; see whether that process is alive and does its housekeeping, or stop it"
        )
        self.path = path
        self.owner = owner
        self.waited_s = waited_s
        self.is_in_doubt = is_in_doubt


class TableChangedError(LogError):
    """Someone else wrote to the table that a job was about to write to. Nothing was written."""

    def __init__(self, table: str, what: str) -> None:
        super().__init__(f"{table} changed while the job ran: {what}; run it again")
        self.table = table
        self.what = what


class LogClosedError(LogError):
    """The log, topic or store was closed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is closed")
        self.name = name
