"""Errors carry their facts, say them, and keep them from one process to another."""

import copy
import pickle

import pytest

from cordwood import errors
from cordwood.errors import CordwoodError
from cordwood.quantities import Offset

# An error, and what its message must name.
EXAMPLES: list[tuple[CordwoodError, tuple[str, ...]]] = [
    (errors.CordwoodError("something"), ("something",)),
    (
        errors.ConfigError("segment.bytes", 12, "must be more"),
        ("segment.bytes = 12: must be more",),
    ),
    (errors.FormatError("no such thing", position=7), ("byte 7", "no such thing")),
    (
        errors.TruncatedInputError("batch", needed=61, got=60, position=5),
        ("byte 5", "batch needs 61 bytes, got 60"),
    ),
    (errors.ChecksumMismatchError(stored=1, computed=255), ("0x00000001", "0x000000ff")),
    (errors.UnsupportedFormatError("magic", 9), ("magic", "9")),
    (errors.LimitExceededError("frame", size=11, limit=10), ("frame of 11", "limit of 10")),
    (errors.StorageError("disk"), ("disk",)),
    (errors.LongCheckError("9 records"), ("would take long", "9 records")),
    (
        errors.CorruptSegmentError(
            "t-0/0.log", 64, "bad crc", first_offset=Offset(3), next_offset=Offset(9)
        ),
        ("t-0/0.log", "byte 64", "bad crc", "offsets [3, 9)"),
    ),
    (
        errors.CorruptSegmentError(
            "t-0/0.log", 64, "bad crc", first_offset=Offset(3), next_offset=None
        ),
        ("offsets from 3 on",),
    ),
    (errors.DirectoryLockedError("/data", "pid 5"), ("/data", "pid 5", "read_only=True")),
    (errors.DiskFullError("t-0"), ("t-0", "no disk space left")),
    (errors.LogFailedError("t-0", "fsync failed"), ("t-0", "fsync failed", "reopen")),
    (errors.BrokerError("no"), ("no",)),
    (errors.BrokerUnreachableError("h:9092", "refused"), ("h:9092", "refused")),
    (errors.BrokerNotTrustedError("h:9092", "it expired"), ("h:9092", "not trusted: it expired")),
    (
        errors.AuthenticationFailedError("h:9092", "wrong password"),
        ("authentication", "h:9092", "wrong password"),
    ),
    (
        errors.BrokerRefusedError("delete topic 'a'", "policy_violation", "it is internal"),
        ("delete topic 'a'", "it is internal", "policy_violation"),
    ),
    (errors.ClusterError("no"), ("no",)),
    (errors.ClusterMismatchError("abc"), ("abc", "controller.quorum.bootstrap.servers")),
    (errors.MetadataLostError(applied=9, end=5, epoch=2), ("at 5", "epoch 2", "below 9")),
    (errors.RegistrationRefusedError(3, "too old"), ("broker 3", "too old")),
    (errors.LogError("refused"), ("refused",)),
    (
        errors.OffsetOutOfRangeError(Offset(9), start=Offset(1), end=Offset(5)),
        ("offset 9", "[1, 5)"),
    ),
    (errors.RecordNotFoundError("orders-0", Offset(9)), ("orders-0", "offset 9")),
    (errors.RecordTooLargeError(size=11, limit=10), ("11 bytes", "max.message.bytes = 10")),
    (errors.TooManyRecordsError(count=12, limit=10), ("12 records", "may have 10")),
    (errors.InvalidRecordError("no key", [(3, "key is null")]), ("no key",)),
    (errors.InvalidTimestampError("too old", [(0, "timestamp 1")]), ("too old",)),
    (
        errors.UnexpectedOffsetError(expected=Offset(4), actual=Offset(6)),
        ("next offset 4", "is 6"),
    ),
    (
        errors.EarlierBatchRefusedError(7, expected=3, got=5),
        ("7", "3", "5", "again"),
    ),
    (
        errors.OutOfOrderSequenceError(7, expected=3, got=5),
        ("producer 7", "expected sequence 3", "got 5"),
    ),
    (
        errors.InvalidProducerEpochError(7, current=3, got=2),
        ("producer 7", "epoch 2 is older than current 3"),
    ),
    (errors.InvalidTransactionStateError(7, "none is open"), ("producer 7", "none is open")),
    (errors.UnverifiedTransactionError(7), ("producer 7", "no open transaction")),
    (errors.TransactionError("billing", "it is not open"), ("'billing'", "it is not open")),
    (errors.ProducerFencedError("billing"), ("'billing'", "another producer")),
    (
        errors.TransactionCoordinatorFencedError(7, current=3, got=2),
        ("producer 7", "coordinator epoch 2 is older than current 3"),
    ),
    (errors.TopicExistsError("orders"), ("'orders' already exists",)),
    (errors.UnknownTopicError("orders"), ("no topic named 'orders'",)),
    (errors.TopicDeletedError("orders"), ("topic 'orders' was deleted", "store.topic('orders')")),
    (
        errors.UnknownPartitionError("orders", 3, count=3),
        ("'orders'", "partitions 0 to 2", "not 3"),
    ),
    (errors.InvalidTopicNameError("a/b", "no slash"), ("'a/b'", "no slash")),
    (errors.ReadOnlyError("append"), ("cannot append", "read-only")),
    (
        errors.TableChangedError("lake.orders", "another run was faster"),
        ("lake.orders", "another run was faster", "run it again"),
    ),
    (
        errors.CatalogUnreachableError("lake.orders", "http://host:8181", "connection refused"),
        ("lake.orders", "http://host:8181", "connection refused", "run the job again"),
    ),
    (errors.LogClosedError("orders-0"), ("orders-0 is closed",)),
    (
        errors.ForkedStoreError("orders-0", owner_pid=7),
        ("orders-0 belongs to process 7", "forked", "read_only=True", "spawn"),
    ),
    (
        errors.DataLossError("orders", 0, "offsets from 3 to 9 were deleted"),
        ("orders-0", "from 3 to 9", "failOnDataLoss=false"),
    ),
    (errors.DataLossError("orders", None, "was deleted"), ("orders: was deleted",)),
    (errors.LogHeldError("orders-0"), ("orders-0", "published")),
    (errors.NotLeaderError("orders-0", epoch=3), ("orders-0", "epoch 3", "ask the leader")),
    (errors.RoleChangedError("orders-0", asked=3, current=4), ("orders-0", "epoch 3", "epoch 4")),
    (errors.ReplicatedLogError("orders-0", "truncate"), ("truncate orders-0", "replicas")),
    (errors.ReplicaMismatchError("orders-0", "a gap"), ("orders-0", "a gap")),
    (errors.ChangeRefusedError("publish", "no topic"), ("publish", "no topic")),
    (
        errors.ChangeTimeoutError("/data", "pid 5", waited_s=60.0, is_in_doubt=False),
        ("/data", "pid 5", "60 s", "nothing was changed"),
    ),
    (
        errors.ChangeTimeoutError("/data", "pid 5", waited_s=60.0, is_in_doubt=True),
        ("may still make the change",),
    ),
]


def every_class(root: type[CordwoodError] = CordwoodError) -> set[type[CordwoodError]]:
    return {root}.union(
        *(every_class(subclass) for subclass in root.__subclasses__()),
    )


def test_every_error_has_an_example_here() -> None:
    defined = {cls for cls in every_class() if cls.__module__ == errors.__name__}

    assert defined == {type(error) for error, _ in EXAMPLES}


@pytest.mark.parametrize("error", [error for error, _ in EXAMPLES], ids=lambda e: type(e).__name__)
def test_an_error_survives_pickling_with_its_facts(error: CordwoodError) -> None:
    moved = pickle.loads(pickle.dumps(error))

    assert type(moved) is type(error)
    assert str(moved) == str(error)
    assert vars(moved) == vars(error)


@pytest.mark.parametrize(
    ("error", "facts"), EXAMPLES, ids=[type(error).__name__ for error, _ in EXAMPLES]
)
def test_an_errors_message_names_its_facts(error: CordwoodError, facts: tuple[str, ...]) -> None:
    message = str(error)

    assert all(fact in message for fact in facts), message


def test_notes_travel_with_the_error() -> None:
    error = errors.LogClosedError("orders-0")
    error.add_note("while appending")

    assert copy.copy(error).__notes__ == ["while appending"]


def test_some_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.UnknownTopicError, KeyError)
    assert issubclass(errors.InvalidTopicNameError, ValueError)


@pytest.mark.parametrize(
    "key", ["ssl.keystore.password", "sasl.jaas.config", "listener.name.x.ssl.keystore.pasword"]
)
def test_a_config_error_neither_shows_nor_keeps_a_secret(key: str) -> None:
    error = errors.ConfigError(key, "hunter2", "is wrong")

    assert str(error) == f"{key} = [hidden]: is wrong"
    assert "hunter2" not in repr(vars(error))


def test_a_config_error_shows_where_a_secret_is() -> None:
    assert "/run/x" in str(errors.ConfigError("password.file", "/run/x", "does not exist"))
    assert "a.p12" in str(errors.ConfigError("ssl.keystore.location", "a.p12", "does not exist"))
