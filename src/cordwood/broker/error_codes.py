"""Kafka's error codes for our exceptions: the only table of them.

A handler that refuses a part of a request for a reason of the protocol raises `RefusedError`. So
every refusal becomes a code and a message here.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from cordwood.errors import (
    ChecksumMismatchError,
    ConfigError,
    CordwoodError,
    CorruptSegmentError,
    EarlierBatchRefusedError,
    ForkedStoreError,
    FormatError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicNameError,
    InvalidTransactionStateError,
    LimitExceededError,
    LogClosedError,
    LogHeldError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ReadOnlyError,
    RecordTooLargeError,
    ReplicatedLogError,
    RoleChangedError,
    StorageError,
    TooManyRecordsError,
    TopicExistsError,
    TransactionCoordinatorFencedError,
    TransactionError,
    TruncatedInputError,
    UnexpectedOffsetError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedFormatError,
    UnverifiedTransactionError,
)
from cordwood.log.transactions.transaction_machine import Refusal as TransactionRefusal
from cordwood.protocol.error_code import ErrorCode

__all__ = [
    "ErrorCode",
    "RefusedError",
    "error_code",
    "error_message",
    "refusal",
    "transaction_code",
]

logger = logging.getLogger(__name__)

_MESSAGE_CHARACTERS_MAX: Final = 1000  # a message may quote up to 32 KiB that the client sent

_CODES: Final[Mapping[type[BaseException], ErrorCode]] = {
    ConfigError: ErrorCode.invalid_config,
    # Clients resend a corrupt message, which helps only against damage on the way.
    FormatError: ErrorCode.invalid_record,
    ChecksumMismatchError: ErrorCode.corrupt_message,
    TruncatedInputError: ErrorCode.corrupt_message,
    UnsupportedFormatError: ErrorCode.unsupported_compression_type,
    LimitExceededError: ErrorCode.invalid_record,
    InvalidRecordError: ErrorCode.invalid_record,
    InvalidTimestampError: ErrorCode.invalid_timestamp,
    RecordTooLargeError: ErrorCode.message_too_large,
    TooManyRecordsError: ErrorCode.message_too_large,  # Java's producer splits the batch
    OutOfOrderSequenceError: ErrorCode.out_of_order_sequence_number,
    InvalidProducerEpochError: ErrorCode.invalid_producer_epoch,
    InvalidTransactionStateError: ErrorCode.invalid_txn_state,
    UnverifiedTransactionError: ErrorCode.invalid_txn_state,
    TransactionError: ErrorCode.invalid_txn_state,
    ProducerFencedError: ErrorCode.producer_fenced,
    TransactionCoordinatorFencedError: ErrorCode.transaction_coordinator_fenced,
    OffsetOutOfRangeError: ErrorCode.offset_out_of_range,
    UnexpectedOffsetError: ErrorCode.invalid_request,
    UnknownTopicError: ErrorCode.unknown_topic_or_partition,
    UnknownPartitionError: ErrorCode.unknown_topic_or_partition,
    TopicExistsError: ErrorCode.topic_already_exists,
    InvalidTopicNameError: ErrorCode.invalid_topic_exception,
    ReadOnlyError: ErrorCode.policy_violation,
    # The topic was deleted or the broker stops: clients look for the leader again.
    LogClosedError: ErrorCode.not_leader_or_follower,
    ForkedStoreError: ErrorCode.not_leader_or_follower,
    NotLeaderError: ErrorCode.not_leader_or_follower,
    RoleChangedError: ErrorCode.not_leader_or_follower,
    ReplicatedLogError: ErrorCode.policy_violation,
    # Clients retry soon, without looking for another leader.
    LogHeldError: ErrorCode.not_enough_replicas,
    EarlierBatchRefusedError: ErrorCode.not_enough_replicas,
    # Damage does not go away: clients retry storage errors, but report this one.
    CorruptSegmentError: ErrorCode.corrupt_message,
    StorageError: ErrorCode.kafka_storage_error,
    TimeoutError: ErrorCode.request_timed_out,
    OSError: ErrorCode.kafka_storage_error,
}


_TRANSACTION_CODES: Final = {
    TransactionRefusal.CONCURRENT_TRANSACTIONS: ErrorCode.concurrent_transactions,
    TransactionRefusal.PRODUCER_FENCED: ErrorCode.producer_fenced,
    TransactionRefusal.INVALID_PRODUCER_ID_MAPPING: ErrorCode.invalid_producer_id_mapping,
    TransactionRefusal.INVALID_TXN_STATE: ErrorCode.invalid_txn_state,
    TransactionRefusal.TRANSACTION_ABORTABLE: ErrorCode.transaction_abortable,
    TransactionRefusal.INVALID_TRANSACTION_TIMEOUT: ErrorCode.invalid_transaction_timeout,
    TransactionRefusal.COORDINATOR_NOT_AVAILABLE: ErrorCode.coordinator_not_available,
    TransactionRefusal.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.coordinator_load_in_progress,
    TransactionRefusal.NOT_COORDINATOR: ErrorCode.not_coordinator,
    TransactionRefusal.UNKNOWN_SERVER_ERROR: ErrorCode.unknown_server_error,
    TransactionRefusal.TOO_MANY_PARTITIONS: ErrorCode.policy_violation,
    TransactionRefusal.TOO_MANY_IDS: ErrorCode.policy_violation,
}


class RefusedError(CordwoodError):
    """A request, or a part of it, is refused with a code of the protocol."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def transaction_code(reason: TransactionRefusal, *, knows_fencing: bool = True) -> ErrorCode:
    """The code for a refusal of the coordinator of transactions.

    Clients that do not know PRODUCER_FENCED get its older name.
    """
    code = _TRANSACTION_CODES[reason]
    if code is ErrorCode.producer_fenced and not knows_fencing:
        return ErrorCode.invalid_producer_epoch
    return code


def error_code(error: BaseException) -> ErrorCode:
    """The code of an exception: its own, or that of its nearest base class in the table."""
    if isinstance(error, RefusedError):
        return error.code
    for family in type(error).__mro__:
        if family in _CODES:
            return _CODES[family]
    return ErrorCode.unknown_server_error


def error_message(error: BaseException) -> str:
    """The text for a client. Unexpected errors are described in our log only."""
    if error_code(error) == ErrorCode.unknown_server_error and not isinstance(error, RefusedError):
        return "unexpected error; see the log of the broker"
    text = str(error)
    if len(text) > _MESSAGE_CHARACTERS_MAX:
        return text[:_MESSAGE_CHARACTERS_MAX] + "..."
    return text


class Refusal(NamedTuple):
    """An error as a response reports it."""

    code: ErrorCode
    message: str


def refusal(error: Exception) -> Refusal:
    """How a response reports `error`. Unexpected errors are logged with their traceback."""
    code = error_code(error)
    if code == ErrorCode.unknown_server_error:
        logger.error("part of a request failed", exc_info=error)
    elif isinstance(error, OSError):
        logger.warning("part of a request failed: %s", error)
    return Refusal(code, error_message(error))
