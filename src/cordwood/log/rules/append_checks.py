"""Whether a batch from outside may be appended, and which bytes are then written.

Everything a client can get wrong is found here, before the log is touched. Most batches pass
through unchanged. A batch is rebuilt only if the topic wants another codec or the client
numbered its records wrongly.
"""

from array import array
from typing import Final

from cordwood.errors import (
    FormatError,
    InvalidRecordError,
    InvalidTimestampError,
    LimitExceededError,
    LongCheckError,
    RecordTooLargeError,
    TooManyRecordsError,
    TruncatedInputError,
)
from cordwood.format import kernel_tables as tables
from cordwood.format import record_scan, record_table
from cordwood.format.batch import DAMAGE_STOPS, BatchDecoder, RecordRun, describe_stop
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch, seal
from cordwood.format.batch_header import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    decode_batch_header,
    pack_batch_header_into,
)
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import (
    INT64_MAX,
    KIB,
    MIB,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Offset,
    TimestampMs,
)
from cordwood.value_class import dataclass, replace

_FAULTS_LISTED: Final = 100  # enough to fix a producer; a batch may hold a million
_NO_KEY: Final = 1
# What counts as brief: a few milliseconds at most, and in proportion to the bytes that were sent.
# Producers limit batches to 1 MiB before compression, and text shrinks to a tenth.
_BRIEF_BYTES_MAX: Final = 1 * MIB
_BRIEF_BYTES_MIN: Final = 4 * KIB
_BRIEF_RATIO_MAX: Final = 64
_BRIEF_RECORDS_MAX: Final = 1000  # to write again
_BRIEF_INFLATED_RECORDS_MAX: Final = 20_000
_BRIEF_PLAIN_RECORDS_MAX: Final = 200_000
# Records without key and value take 7 bytes and compress to nothing, but each takes 64 bytes here.
# No client gets there: librdkafka allows as many in a batch, and Java's default is 16 KiB.
RECORDS_MAX: Final = 1_000_000
_RECORD_BYTES_MIN: Final = 7
_PLAIN_BYTES_MAX: Final = _BRIEF_PLAIN_RECORDS_MAX * _RECORD_BYTES_MIN  # less has fewer records
_COUNT_AT: Final = 57
_MADE_AT_ONCE: Final = 10_000
_PLAIN: Final = (None, Codec.NONE)  # topics that leave an uncompressed batch as it is

_NOTHING_WHOLE: Final = (tables.STOP_END, tables.STOP_SHORT_HEADER, tables.STOP_SHORT_BATCH)

BatchBytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBatch:
    """A batch that may be appended: `data` is writable and lacks only its offset and epoch."""

    data: bytearray | memoryview
    header: BatchHeader

    @property
    def unplaced(self) -> UnplacedBatch:
        header = self.header
        return UnplacedBatch(
            len(self.data),
            header.record_count,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.is_transactional,
        )


class BatchGate:
    """Lets in batches that a topic takes as they are, after one pass over each.

    None from `survey` means not decided here, not refused: the batch may be compressed, or the
    topic may want it changed. `check_produced_batch` then takes the longer way.
    """

    __slots__ = (
        "_age_ms_max",
        "_is_open",
        "_lead_ms_max",
        "_needs_keys",
        "_size_max",
        "_small_size_max",
        "config",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self._is_open = not config.is_log_append_time and config.codec in _PLAIN
        self._size_max = config.max_message_bytes
        self._needs_keys = config.is_compacted
        self._small_size_max = min(self._size_max, _PLAIN_BYTES_MAX)
        self._age_ms_max = config.message_timestamp_before_max_ms
        self._lead_ms_max = config.message_timestamp_after_max_ms

    def survey(self, data: memoryview, now_ms: TimestampMs) -> UnplacedBatch | None:
        """What the log must know of the batch in `data`, if it may be appended as it is."""
        return self.survey_part(data, 0, len(data), now_ms)

    def survey_part(
        self, data: memoryview, start: int, end: int, now_ms: TimestampMs
    ) -> UnplacedBatch | None:
        """As `survey`, for the batch in ``data[start:end]``."""
        size = end - start
        if not self._is_open or size > self._size_max:
            return None
        if size > _PLAIN_BYTES_MAX and _claimed_count(data[start:end]) > _BRIEF_PLAIN_RECORDS_MAX:
            return None
        oldest_ms, newest_ms = _accepted_times(now_ms, self._age_ms_max, self._lead_ms_max)
        return record_scan.survey_produced(data, start, end, oldest_ms, newest_ms, self._needs_keys)

    def survey_all(
        self, data: memoryview, spans: list[int], now_ms: TimestampMs
    ) -> tuple[list[UnplacedBatch], bytearray, bool] | None:
        """As `survey`, for small batches that begin and end at the positions in `spans`.

        Returns what is known of each, their bytes one behind the other, and whether one of them
        has a producer; None if one of them is not decided here.
        """
        if not self._is_open:
            return None
        oldest_ms, newest_ms = _accepted_times(now_ms, self._age_ms_max, self._lead_ms_max)
        return record_scan.survey_all_produced(
            data, spans, self._small_size_max, oldest_ms, newest_ms, self._needs_keys
        )


def check_produced_batch(
    data: BatchBytes, config: TopicConfig, *, now_ms: TimestampMs, is_brief: bool = False
) -> CheckedBatch:
    """Check a client's batch against Kafka's rules; return what to append.

    Raises `RecordTooLargeError`, `TooManyRecordsError`, `ChecksumMismatchError`, `FormatError`,
    `InvalidRecordError` or `InvalidTimestampError`; and `LongCheckError` if `is_brief` and the
    check would take long, for its size: the batch inflates a lot, has very many records, or many
    of them must be written again.
    """
    view = memoryview(data)
    if BatchGate(config).survey(view, now_ms) is not None:
        return CheckedBatch(
            data=bytearray(view) if view.readonly else view, header=decode_batch_header(view)
        )
    decoder = BatchDecoder()
    header = _sole_batch(decoder, view, config)
    _check_header(header)
    _check_count(header, is_brief=is_brief)
    run = _parsed_briefly(decoder, len(view)) if is_brief else decoder.parse(0)
    largest, is_consecutive = _check_records(run, header, config, now_ms)
    codec = config.codec
    if not is_consecutive or (codec is not None and codec != header.codec):
        if is_brief and len(run) > _BRIEF_RECORDS_MAX:
            raise LongCheckError(f"{len(run)} records to write again")
        return _rebuilt(run, header, config, now_ms)
    return _in_place(view, header, largest, config, now_ms)


def _claimed_count(data: memoryview) -> int:
    return int.from_bytes(data[_COUNT_AT : _COUNT_AT + 4], "big")


def _check_count(header: BatchHeader, *, is_brief: bool) -> None:
    """The header may lie: parsing compares the count with the size of the records."""
    count = header.record_count
    if count > RECORDS_MAX:
        raise TooManyRecordsError(count=count, limit=RECORDS_MAX)
    is_plain = header.codec == Codec.NONE
    if is_brief and count > (_BRIEF_PLAIN_RECORDS_MAX if is_plain else _BRIEF_INFLATED_RECORDS_MAX):
        raise LongCheckError(f"{count} records")


def _parsed_briefly(decoder: BatchDecoder, size: int) -> RecordRun:
    limit = min(_BRIEF_BYTES_MAX, _BRIEF_BYTES_MIN + _BRIEF_RATIO_MAX * size)
    try:
        return decoder.parse(0, limit)
    except LimitExceededError as error:
        raise LongCheckError(str(error)) from error


def check_timestamp(timestamp_ms: int, config: TopicConfig, *, now_ms: TimestampMs) -> None:
    """Refuse a record's timestamp that the topic does not accept."""
    oldest, newest = _bounds(config, now_ms)
    if timestamp_ms != NO_TIMESTAMP and not oldest <= timestamp_ms <= newest:
        raise InvalidTimestampError(_timestamp_rule(timestamp_ms, config, now_ms))


def _sole_batch(decoder: BatchDecoder, view: memoryview, config: TopicConfig) -> BatchHeader:
    count = decoder.scan(view, 0, len(view))
    if count == 0:
        if decoder.stop == tables.STOP_SHORT_HEADER:
            raise TruncatedInputError("batch header", needed=HEADER_SIZE, got=len(view))
        if decoder.stop in DAMAGE_STOPS:
            raise FormatError(describe_stop(decoder.stop), position=decoder.position)
        raise InvalidRecordError("no batch to append")
    header = decode_batch_header(view)
    if header.size > config.max_message_bytes:
        raise RecordTooLargeError(size=header.size, limit=config.max_message_bytes)
    decoder.check_checksum(0)
    if header.size < len(view):
        _check_rest(view[header.size :], position=header.size)
    return header


def _check_rest(rest: memoryview, *, position: int) -> None:
    """Part of another batch may follow: a client may cut anywhere."""
    following = BatchDecoder()
    if following.scan(rest, 0, len(rest)):
        raise InvalidRecordError("exactly one batch per append, found more")
    if following.stop not in _NOTHING_WHOLE:
        raise FormatError(describe_stop(following.stop), position=position)


def _check_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(f"base offset of a produced batch is {header.base_offset}, not 0")
    if header.is_control:
        raise InvalidRecordError("control batches cannot be produced by clients")
    if header.record_count <= 0:
        raise InvalidRecordError("batch without records")
    if header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecordError(
            f"last offset delta {header.last_offset_delta} does not fit "
            f"{header.record_count} records"
        )
    if header.producer_id < NO_PRODUCER_ID:
        raise InvalidRecordError(f"producer id {header.producer_id}")
    if header.producer_id != NO_PRODUCER_ID:
        if header.base_sequence < 0:
            raise InvalidRecordError(f"sequence {header.base_sequence} of an idempotent producer")
        if header.producer_epoch < 0:
            raise InvalidRecordError(f"epoch {header.producer_epoch} of an idempotent producer")
    elif header.is_transactional:
        raise InvalidRecordError("transactional batch without a producer id")
    if header.is_log_append_time:
        raise InvalidTimestampError("producers must not set the timestamp type to LogAppendTime")


def _check_records(
    run: RecordRun, header: BatchHeader, config: TopicConfig, now_ms: TimestampMs
) -> tuple[TimestampMs, bool]:
    """Refuse bad records and name them.

    Returns the largest timestamp, and whether the records are numbered without gaps.
    """
    oldest, newest = _bounds(config, now_ms)
    faults = array("q", bytes(16 * _FAULTS_LISTED))
    is_consecutive, largest, fault_count = record_table.check_produced(
        run.table, len(run), header.base_offset, oldest, newest, config.is_compacted, faults
    )
    if not fault_count:
        return TimestampMs(largest), is_consecutive
    pairs = [(faults[i * 2], faults[i * 2 + 1]) for i in range(min(fault_count, _FAULTS_LISTED))]
    errors = [
        (
            index,
            "a compacted topic needs a key" if kind == _NO_KEY else _at(run, index, config, now_ms),
        )
        for index, kind in pairs
    ]
    if any(kind != _NO_KEY for _, kind in pairs):
        raise InvalidTimestampError(errors[0][1], errors)
    raise InvalidRecordError(errors[0][1], errors)


def _at(run: RecordRun, index: int, config: TopicConfig, now_ms: TimestampMs) -> str:
    timestamp = run.table[(run.start + index) * tables.RECORD_ROW + tables.R_TIMESTAMP]
    return _timestamp_rule(timestamp, config, now_ms)


def _bounds(config: TopicConfig, now_ms: TimestampMs) -> tuple[int, int]:
    """The oldest and newest timestamp accepted. With log append time the record's is not used."""
    if config.is_log_append_time:
        return -INT64_MAX - 1, INT64_MAX
    return _accepted_times(
        now_ms, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    )


def _accepted_times(now_ms: TimestampMs, age_ms_max: int, lead_ms_max: int) -> tuple[int, int]:
    oldest_ms, newest_ms = now_ms - age_ms_max, now_ms + lead_ms_max
    return oldest_ms if oldest_ms > 0 else 0, newest_ms if newest_ms < INT64_MAX else INT64_MAX


def _timestamp_rule(timestamp_ms: int, config: TopicConfig, now_ms: TimestampMs) -> str:
    if timestamp_ms > now_ms:
        limit = f"message.timestamp.after.max.ms = {config.message_timestamp_after_max_ms}"
        return f"timestamp {timestamp_ms} is {timestamp_ms - now_ms} ms in the future; {limit}"
    if timestamp_ms < 0:
        return f"timestamp {timestamp_ms} is before 1970"
    limit = f"message.timestamp.before.max.ms = {config.message_timestamp_before_max_ms}"
    return f"timestamp {timestamp_ms} is {now_ms - timestamp_ms} ms in the past; {limit}"


def _in_place(
    view: memoryview,
    header: BatchHeader,
    largest: TimestampMs,
    config: TopicConfig,
    now_ms: TimestampMs,
) -> CheckedBatch:
    """The batch as it came, with its times corrected if the topic or the records differ."""
    data: bytearray | memoryview = view[: header.size]
    if view.readonly:
        data = bytearray(data)
    if config.is_log_append_time:
        header = replace(
            header, attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms
        )
    elif largest != header.max_timestamp:
        header = replace(header, max_timestamp=largest)
    else:
        return CheckedBatch(data=data, header=header)
    pack_batch_header_into(data, 0, header)
    seal(data)
    return CheckedBatch(data=data, header=header)


def _made_in_turns(run: RecordRun) -> list[Record]:
    """The records of `run`. Other threads take their turn between."""
    made: list[Record] = []
    for start in range(run.start, run.end, _MADE_AT_ONCE):
        made += replace(run, start=start, end=min(start + _MADE_AT_ONCE, run.end)).records()
    return made


def _rebuilt(
    run: RecordRun, header: BatchHeader, config: TopicConfig, now_ms: TimestampMs
) -> CheckedBatch:
    codec = config.codec if config.codec is not None else Codec(header.attributes & CODEC_MASK)
    records = _made_in_turns(run)
    if config.is_log_append_time:
        records = [record._replace(timestamp_ms=None) for record in records]
    built = build_batch(
        records,
        now_ms,
        BatchStyle(
            bytes_max=config.max_message_bytes,
            codec=codec,
            level=config.compression_level if config.codec is not None else None,
            is_log_append_time=config.is_log_append_time,
        ),
        ProducerStamp(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            attributes=header.attributes & TRANSACTIONAL,
        ),
    )
    rebuilt = decode_batch_header(built.data)
    assert rebuilt.base_offset == Offset(0), rebuilt
    return CheckedBatch(data=built.data, header=rebuilt)
