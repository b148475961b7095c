"""Error codes: each of our exceptions has one, and messages are fit to be sent."""

from __future__ import annotations

import logging

import pytest

from cordwood import errors
from cordwood.broker.error_codes import (
    ErrorCode,
    RefusedError,
    error_code,
    error_message,
    refusal,
)
from cordwood.errors import (
    ConfigError,
    CordwoodError,
    DiskFullError,
    InvalidTimestampError,
    LogClosedError,
    StorageError,
    UnknownTopicError,
)


def families() -> list[type[CordwoodError]]:
    return [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, CordwoodError)
    ]


# Never raised over a request: a root, what another process asks of a store's owner, what a
# job says that reads a store by itself, what a client says of a broker.
NOT_ON_THE_WIRE = {
    "CordwoodError",
    "LongCheckError",  # the check moves to another thread
    "LogError",
    "BrokerError",
    "BrokerUnreachableError",
    "BrokerNotTrustedError",
    "AuthenticationFailedError",
    "BrokerRefusedError",
    "ChangeRefusedError",
    "ChangeTimeoutError",
    "DataLossError",
    "TableChangedError",
    "CatalogUnreachableError",
    "RecordNotFoundError",  # the library's: on the wire, offsets without a record are skipped
    # Between a broker, the controllers and other replicas: they end the broker or a fetch of its.
    "ClusterError",
    "ClusterMismatchError",
    "MetadataLostError",
    "RegistrationRefusedError",
    "ReplicaMismatchError",
}


@pytest.mark.parametrize("family", families(), ids=lambda family: family.__name__)
def test_every_exception_of_ours_has_a_code(family: type[CordwoodError]) -> None:
    code = error_code(family.__new__(family))

    is_known = code != ErrorCode.unknown_server_error
    assert is_known == (family.__name__ not in NOT_ON_THE_WIRE)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("retention.ms", "x", "must be a number"), ErrorCode.invalid_config),
        (UnknownTopicError("orders"), ErrorCode.unknown_topic_or_partition),
        (InvalidTimestampError("too old"), ErrorCode.invalid_timestamp),
        (DiskFullError("orders-0"), ErrorCode.kafka_storage_error),
        (LogClosedError("orders-0"), ErrorCode.not_leader_or_follower),
        (StorageError("offline"), ErrorCode.kafka_storage_error),
        (OSError(5, "broken"), ErrorCode.kafka_storage_error),
        (TimeoutError(), ErrorCode.request_timed_out),
        (RefusedError(ErrorCode.fenced_leader_epoch, "old"), ErrorCode.fenced_leader_epoch),
        (ZeroDivisionError(), ErrorCode.unknown_server_error),
    ],
)
def test_the_nearest_class_decides(error: Exception, code: ErrorCode) -> None:
    assert error_code(error) == code


def test_a_message_says_what_was_wrong() -> None:
    error = ConfigError("retention.ms", "soon", "must be a number")

    assert error_message(error) == "retention.ms = soon: must be a number"


def test_what_a_client_sent_does_not_come_back_at_any_length() -> None:
    message = error_message(UnknownTopicError("x" * 30_000))

    assert len(message) < 2000


def test_what_we_did_not_expect_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        told = refusal(ZeroDivisionError("secret"))

    assert told.code == ErrorCode.unknown_server_error
    assert "secret" not in told.message
    assert "secret" in caplog.text
