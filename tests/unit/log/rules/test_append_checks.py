"""What a client's batch is held to before the log is touched."""

from dataclasses import replace
from functools import cache

import pytest

from cordwood.errors import (
    ChecksumMismatchError,
    FormatError,
    InvalidRecordError,
    InvalidTimestampError,
    LongCheckError,
    RecordTooLargeError,
    TooManyRecordsError,
    TruncatedInputError,
)
from cordwood.format.batch import decode_batch
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.compression import Codec, compress
from cordwood.log.rules.append_checks import (
    BatchGate,
    CheckedBatch,
    check_produced_batch,
    check_timestamp,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT64_MAX, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch, raw_batch, raw_record, sealed

NOW_MS = TimestampMs(NOW)
CONFIG = TopicConfig()
CODECS = list(Codec)


def config(**settings: object) -> TopicConfig:
    return TopicConfig.parse({key.replace("_", "."): value for key, value in settings.items()})


def check(batch: bytes | bytearray | memoryview, topic: TopicConfig = CONFIG) -> CheckedBatch:
    return check_produced_batch(batch, topic, now_ms=NOW_MS)


def values(checked: CheckedBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(checked.data)]


# --- batches that pass --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_batch_goes_in_as_it_came(codec: Codec) -> None:
    batch = client_batch(b"a", None, b"c", keys=[b"1", b"2", None], codec=codec)
    before = bytes(batch)

    checked = check(batch)

    assert bytes(checked.data) == before
    assert checked.header == decode_batch_header(before)


def test_a_writable_batch_is_used_where_it_lies_and_another_is_copied() -> None:
    batch = client_batch(b"a")

    in_place = check(batch)
    copied = check(bytes(batch))

    assert isinstance(in_place.data, memoryview)
    assert in_place.data.obj is batch
    assert isinstance(copied.data, bytearray)


def test_a_batch_of_an_idempotent_producer_keeps_its_numbers() -> None:
    batch = client_batch(b"a", producer_id=7, producer_epoch=3, sequence=42)

    header = check(batch).header

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 42)


@pytest.mark.parametrize("size", [1, 16, 60, 61, -1])
def test_a_part_of_another_batch_behind_it_is_left_out(size: int) -> None:
    batch = client_batch(b"a")
    part = client_batch(b"b" * 100)[:size]

    checked = check(batch + part)

    assert bytes(checked.data) == bytes(batch)


# --- exactly one sound batch --------------------------------------------------------------------


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises((InvalidRecordError, FormatError)):
        check(b"")


@pytest.mark.parametrize("size", [1, 17, 60])
def test_less_than_a_header_is_refused(size: int) -> None:
    with pytest.raises(TruncatedInputError):
        check(client_batch(b"a")[:size])


def test_less_than_the_batch_is_refused() -> None:
    with pytest.raises(FormatError):
        check(client_batch(b"a")[:-1])


@pytest.mark.parametrize("second_offset", [0, 1, 5])
def test_a_second_batch_is_refused_whatever_its_offset(second_offset: int) -> None:
    two = client_batch(b"a") + client_batch(b"b", base_offset=second_offset)

    with pytest.raises((InvalidRecordError, FormatError)):
        check(two)


@pytest.mark.parametrize("junk", [bytes(61), b"\xff" * 100, bytes(200)])
def test_junk_behind_the_batch_is_refused(junk: bytes) -> None:
    with pytest.raises(FormatError):
        check(client_batch(b"a") + junk)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_is_refused(magic: int) -> None:
    with pytest.raises(FormatError, match="magic"):
        check(raw_batch(raw_record(), magic=magic))


def test_a_wrong_checksum_is_refused() -> None:
    batch = client_batch(b"a")
    batch[-1] ^= 1

    with pytest.raises(ChecksumMismatchError):
        check(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_a_malformed_record_is_refused(codec: Codec) -> None:
    payload = raw_record(size=500)
    batch = raw_batch(compress(codec, payload) if codec else payload, attributes=codec)

    with pytest.raises(FormatError):
        check(batch)


def test_a_payload_that_does_not_decompress_is_refused() -> None:
    for codec in CODECS[1:]:
        with pytest.raises(FormatError):
            check(raw_batch(b"no codec wrote this, ever", attributes=codec))


@pytest.mark.parametrize("spare", [0, 1])
def test_the_whole_batch_as_compressed_must_fit_the_topic(spare: int) -> None:
    batch = client_batch(b"x" * 1000, codec=Codec.ZSTD)
    topic = config(max_message_bytes=len(batch) - spare)

    if spare:
        with pytest.raises(RecordTooLargeError) as caught:
            check(batch, topic)
        assert (caught.value.size, caught.value.limit) == (len(batch), len(batch) - 1)
    else:
        check(batch, topic)


def test_a_batch_that_is_too_large_is_refused_before_its_checksum_is_worked_out() -> None:
    batch = client_batch(b"x" * 1000)
    batch[-1] ^= 1

    with pytest.raises(RecordTooLargeError):
        check(batch, config(max_message_bytes=500))


# --- the header ---------------------------------------------------------------------------------


@pytest.mark.parametrize("base_offset", [1, 77, 2**40])
def test_the_base_offset_must_be_zero(base_offset: int) -> None:
    with pytest.raises(InvalidRecordError, match="base offset"):
        check(client_batch(b"a", base_offset=base_offset))


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="without records"):
        check(raw_batch(b"", count=0))


@pytest.mark.parametrize("delta", [0, 1, 3, 100])
def test_the_last_offset_delta_must_be_that_of_the_last_record(delta: int) -> None:
    payload = b"".join(raw_record(offset_delta=index) for index in range(3))

    with pytest.raises(InvalidRecordError, match="last offset delta"):
        check(raw_batch(payload, count=3, last_offset_delta=delta))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [2, 4, 1000])
def test_the_count_must_be_that_of_the_records(count: int, codec: Codec) -> None:
    payload = b"".join(raw_record(offset_delta=index) for index in range(3))
    batch = raw_batch(compress(codec, payload) if codec else payload, count=count, attributes=codec)

    with pytest.raises(FormatError):
        check(batch)


@pytest.mark.parametrize("batch", [marker_batch(7), client_batch(b"a", attributes=0x20)])
def test_control_batches_are_refused(batch: bytearray) -> None:
    with pytest.raises(InvalidRecordError, match="control"):
        check(batch)


@pytest.mark.parametrize("sequence", [-1, -2, -(2**31)])
def test_a_producer_with_an_id_must_number_its_batches(sequence: int) -> None:
    with pytest.raises(InvalidRecordError, match="sequence"):
        check(client_batch(b"a", producer_id=7, producer_epoch=0, sequence=sequence))


def test_a_producer_with_an_id_must_have_an_epoch() -> None:
    batch = raw_batch(raw_record(), producer_id=7, producer_epoch=-1, base_sequence=0)

    with pytest.raises(InvalidRecordError, match="epoch"):
        check(batch)


@pytest.mark.parametrize("producer_id", [-2, -77, -(2**63)])
def test_a_producer_id_below_none_is_refused(producer_id: int) -> None:
    batch = raw_batch(raw_record(), producer_id=producer_id, producer_epoch=0, base_sequence=0)

    with pytest.raises(InvalidRecordError, match="producer id"):
        check(batch)


def test_a_transactional_batch_needs_a_producer() -> None:
    with pytest.raises(InvalidRecordError, match="transactional"):
        check(client_batch(b"a", transactional=True))


def test_log_append_time_is_not_for_producers_to_set() -> None:
    with pytest.raises(InvalidTimestampError, match="LogAppendTime"):
        check(client_batch(b"a", attributes=0x08))


# --- times --------------------------------------------------------------------------------------

HOUR_MS = 3_600_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("time", "is_accepted"),
    [
        (NOW + HOUR_MS, True),
        (NOW + HOUR_MS + 1, False),
        (NOW - 5000, True),
        (NOW - 5001, False),
        (-1, True),
        (INT64_MAX, False),
        (0, False),
    ],
)
def test_a_create_time_must_be_within_the_topic_s_bounds(
    time: int, is_accepted: bool, codec: Codec
) -> None:
    topic = config(message_timestamp_before_max_ms=5000)
    batch = client_batch(b"a", b"b", timestamps=[NOW, time], codec=codec)

    if is_accepted:
        check(batch, topic)
        check_timestamp(time, topic, now_ms=NOW_MS)
    else:
        with pytest.raises(InvalidTimestampError) as caught:
            check(batch, topic)
        assert [index for index, _ in caught.value.record_errors] == [1]
        with pytest.raises(InvalidTimestampError):
            check_timestamp(time, topic, now_ms=NOW_MS)


@pytest.mark.parametrize("time", [-2, -1000, -(2**63)])
@pytest.mark.parametrize("topic", [CONFIG, config(compression_type="gzip")])
def test_a_time_before_1970_is_refused(time: int, topic: TopicConfig) -> None:
    with pytest.raises(InvalidTimestampError):
        check(client_batch(b"a", timestamps=[time]), topic)


def test_no_time_at_all_is_stored_as_it_is() -> None:
    checked = check(client_batch(b"a", timestamps=[-1]))

    assert decode_batch(checked.data)[0].timestamp_ms == -1


@pytest.mark.parametrize("stated", [-1, 0, NOW - 1, NOW + 1])
def test_a_wrong_largest_time_is_put_right_with_its_checksum(stated: int) -> None:
    batch = client_batch(b"a", b"b", timestamps=[NOW - 7, NOW])
    batch[35:43] = stated.to_bytes(8, "big", signed=True)
    sealed(batch)

    checked = check(batch)

    assert checked.header.max_timestamp == NOW
    assert [record.timestamp_ms for record in decode_batch(checked.data)] == [NOW - 7, NOW]
    assert decode_batch_header(checked.data).max_timestamp == NOW


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("time", [0, NOW, INT64_MAX, -1])
def test_with_log_append_time_the_topic_s_clock_counts(time: int, codec: Codec) -> None:
    topic = config(message_timestamp_type="LogAppendTime")

    checked = check(client_batch(b"a", b"b", timestamps=[time, NOW], codec=codec), topic)

    assert [record.timestamp_ms for record in decode_batch(checked.data)] == [NOW, NOW]
    assert checked.header.is_log_append_time
    assert checked.header.max_timestamp == NOW
    assert checked.header.codec == codec


@pytest.mark.parametrize("time", [-(2**63), -5, 0, INT64_MAX])
def test_with_log_append_time_a_rebuilt_batch_has_the_topic_s_time_too(time: int) -> None:
    topic = config(message_timestamp_type="LogAppendTime", compression_type="zstd")

    checked = check(client_batch(b"a", timestamps=[time]), topic)

    assert [record.timestamp_ms for record in decode_batch(checked.data)] == [NOW]
    assert checked.header.codec == Codec.ZSTD


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_wants_a_key_in_every_record(policy: str, codec: Codec) -> None:
    batch = client_batch(b"a", b"b", b"c", b"d", keys=[b"k", None, b"", None], codec=codec)

    with pytest.raises(InvalidRecordError, match="key") as caught:
        check(batch, config(cleanup_policy=policy))

    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert not isinstance(caught.value, InvalidTimestampError)


def test_other_topics_take_records_without_a_key() -> None:
    check(client_batch(b"a", keys=[None]), config(cleanup_policy="delete"))
    check(client_batch(b"a", keys=[None]), config(cleanup_policy=""))


def test_all_bad_records_are_named_and_an_invalid_time_decides_the_kind_of_error() -> None:
    batch = client_batch(b"", b"", b"", keys=[None, b"k", None], timestamps=[NOW, 5, NOW])
    topic = config(cleanup_policy="compact", message_timestamp_before_max_ms=1000)

    with pytest.raises(InvalidTimestampError) as caught:
        check(batch, topic)

    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]


def test_a_batch_of_bad_records_names_the_first_hundred() -> None:
    with pytest.raises(InvalidRecordError) as caught:
        check(client_batch(*[b""] * 500), config(cleanup_policy="compact"))

    assert [index for index, _ in caught.value.record_errors] == list(range(100))


# --- codecs -------------------------------------------------------------------------------------

NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("wanted", NAMES)
def test_a_topic_s_codec_decides_what_is_stored(sent: Codec, wanted: str) -> None:
    batch = client_batch(
        b"a" * 50, None, b"c", keys=[b"1", None, b"3"], timestamps=[NOW, NOW - 9, NOW - 1],
        codec=sent, producer_id=7, producer_epoch=2, sequence=5, transactional=True,
    )  # fmt: skip
    before = bytes(batch)

    checked = check(batch, config(compression_type=wanted))

    assert checked.header.codec == NAMES[wanted]
    assert decode_batch(checked.data) == decode_batch(before)
    was = decode_batch_header(before)
    assert checked.header == replace(
        was,
        crc=checked.header.crc,
        batch_length=checked.header.batch_length,
        attributes=was.attributes & ~7 | NAMES[wanted],
    )
    if sent == NAMES[wanted]:
        assert bytes(checked.data) == before


@pytest.mark.parametrize("sent", CODECS)
def test_with_codec_producer_a_batch_stays_as_it_is(sent: Codec) -> None:
    batch = client_batch(b"a" * 50, codec=sent)
    before = bytes(batch)

    assert bytes(check(batch, config(compression_type="producer")).data) == before


def test_another_level_of_the_same_codec_is_no_reason_to_rebuild() -> None:
    batch = client_batch(b"abc" * 500, codec=Codec.GZIP, level=1)
    before = bytes(batch)
    topic = TopicConfig.parse({"compression.type": "gzip", "compression.gzip.level": 9})

    assert bytes(check(batch, topic).data) == before


def test_a_batch_that_outgrows_the_topic_when_decompressed_is_refused() -> None:
    batch = client_batch(b"x" * 10_000, codec=Codec.ZSTD)
    topic = config(compression_type="uncompressed", max_message_bytes=1000)

    with pytest.raises(RecordTooLargeError):
        check(batch, topic)


# --- wrong offsets inside -----------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("deltas", [(0, 0, 0), (2, 1, 0), (0, 2, 2), (1, 1, 2)])
def test_records_numbered_wrongly_are_numbered_anew(
    deltas: tuple[int, int, int], codec: Codec
) -> None:
    payload = b"".join(
        raw_record(b"v%d" % index, offset_delta=delta) for index, delta in enumerate(deltas)
    )
    batch = raw_batch(
        compress(codec, payload) if codec else payload,
        count=3,
        attributes=codec,
        producer_id=7,
        producer_epoch=0,
        base_sequence=9,
    )

    checked = check(batch)

    records = decode_batch(checked.data)
    assert [(r.offset, r.value) for r in records] == [(0, b"v0"), (1, b"v1"), (2, b"v2")]
    assert checked.header.codec == codec
    assert (checked.header.base_sequence, checked.header.last_offset_delta) == (9, 2)


def test_headers_survive_a_rebuild() -> None:
    payload = raw_record(b"v", key=b"k", headers=[(b"a", b"1"), (b"b", None)])

    checked = check(raw_batch(payload), config(compression_type="lz4"))

    assert decode_batch(checked.data)[0].headers == [("a", b"1"), ("b", None)]


# --- checks that take long ----------------------------------------------------------------------


@cache
def _all_empty_records() -> list[bytes]:
    return [raw_record(None, offset_delta=number) for number in range(200_001)]


def empty_records(count: int, codec: Codec) -> bytes:
    payload = b"".join(_all_empty_records()[:count])
    if codec != Codec.NONE:
        payload = compress(codec, payload)
    return bytes(raw_batch(payload, count=count, attributes=int(codec)))


@pytest.mark.parametrize(
    ("count", "codec", "is_long"),
    [
        (20_000, Codec.ZSTD, False),
        (20_001, Codec.ZSTD, True),
        (200_000, Codec.NONE, False),
        (200_001, Codec.NONE, True),
    ],
)
def test_a_batch_of_very_many_records_takes_long(count: int, codec: Codec, is_long: bool) -> None:
    batch = empty_records(count, codec)
    topic = config(max_message_bytes=10_000_000)

    if is_long:
        with pytest.raises(LongCheckError, match=f"{count} records"):
            check_produced_batch(batch, topic, now_ms=NOW_MS, is_brief=True)
        assert BatchGate(topic).survey(memoryview(batch), NOW_MS) is None
    else:
        check_produced_batch(batch, topic, now_ms=NOW_MS, is_brief=True)

    assert check(batch, topic).header.record_count == count


@pytest.mark.parametrize("is_brief", [True, False])
def test_a_batch_has_at_most_a_million_records(is_brief: bool) -> None:
    payload = compress(Codec.ZSTD, bytes(10_000_000))
    batch = bytes(raw_batch(payload, count=1_000_001, attributes=int(Codec.ZSTD)))

    with pytest.raises(TooManyRecordsError, match="batch of 1000001 records") as refused:
        check_produced_batch(batch, CONFIG, now_ms=NOW_MS, is_brief=is_brief)

    assert (refused.value.count, refused.value.limit) == (1_000_001, 1_000_000)


def test_a_batch_of_many_records_is_written_anew_as_it_was() -> None:
    batch = empty_records(25_000, Codec.ZSTD)

    checked = check(batch, config(compression_type="gzip"))

    assert checked.header.record_count == 25_000
    assert [record.offset for record in decode_batch(checked.data)] == list(range(25_000))
