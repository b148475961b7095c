"""Records in, batches out; another implementation reads them back."""

import random

import crc32c
import pytest

from cordwood.errors import RecordTooLargeError
from cordwood.format.batch import decode_batch
from cordwood.format.batch_builder import (
    BATCH_BYTES_TARGET,
    RUN_BYTES,
    BatchStyle,
    ProducerStamp,
    build_batch,
    build_batches,
    build_runs,
    build_sole,
    seal,
)
from cordwood.format.batch_header import CRC_START, decode_batch_header
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.quantities import INT32_MAX, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, raw_batch, raw_record

NOW_MS = TimestampMs(NOW)
STYLE = BatchStyle(bytes_max=1 << 20)


def build(
    records: list[object], style: BatchStyle = STYLE, target_bytes: int = BATCH_BYTES_TARGET
) -> list[bytes]:
    built = build_batches(records, NOW_MS, style, target_bytes=target_bytes)
    return [bytes(batch.data) for batch in built]


# --- the bytes ----------------------------------------------------------------------------------


def test_a_batch_is_what_a_client_would_have_sent() -> None:
    built = build_batch([Record(b"one"), Record(None, key=b"k"), Record(b"")], NOW_MS, STYLE)

    assert bytes(built.data) == client_batch(b"one", None, b"", keys=[None, b"k", None])


def test_known_payloads_have_known_checksums() -> None:
    built = build_batch([Record(b"value", b"key", timestamp_ms=0)], NOW_MS, STYLE)

    header = decode_batch_header(built.data)
    assert header.crc == crc32c.crc32c(bytes(built.data[CRC_START:]))
    assert crc32c.crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C"


def test_a_new_batch_has_no_place_yet() -> None:
    header = decode_batch_header(build_batch([Record(b"v")], NOW_MS, STYLE).data)

    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_headers_keep_their_order_and_nulls() -> None:
    headers = [("a", b"1"), ("a", None), ("", b""), ("ü", b"\xff")]

    built = build_batch([Record(b"v", headers=headers)], NOW_MS, STYLE)

    raw = [(name.encode(), value) for name, value in headers]
    assert bytes(built.data) == raw_batch(raw_record(b"v", headers=raw))
    assert decode_batch(built.data)[0].headers == headers


@pytest.mark.parametrize("key", [b"k", bytearray(b"k"), memoryview(b"k")])
def test_any_bytes_may_be_a_key_or_a_value(key: bytes) -> None:
    [batch] = build([(key, key)])

    assert decode_batch(batch) == [Record(b"k", b"k", [], NOW, 0)]


# --- times --------------------------------------------------------------------------------------


def test_a_record_without_a_time_gets_the_time_of_the_append() -> None:
    built = build_batch([Record(b"a"), Record(b"b", timestamp_ms=5)], NOW_MS, STYLE)

    assert [record.timestamp_ms for record in decode_batch(built.data)] == [NOW, 5]
    assert built.max_timestamp == NOW


def test_times_may_go_back_and_forth_and_the_largest_is_the_batch_s() -> None:
    times = [50, 10, 90, -1, 0]
    built = build_batch([Record(b"", timestamp_ms=time) for time in times], NOW_MS, STYLE)

    assert [record.timestamp_ms for record in decode_batch(built.data)] == times
    header = decode_batch_header(built.data)
    assert (header.base_timestamp, header.max_timestamp) == (50, 90)


def test_with_log_append_time_every_record_reads_as_the_time_of_the_append() -> None:
    style = BatchStyle(bytes_max=1 << 20, is_log_append_time=True)
    built = build_batch([Record(b"", timestamp_ms=3), Record(b"")], NOW_MS, style)

    assert [record.timestamp_ms for record in decode_batch(built.data)] == [NOW, NOW]
    assert decode_batch_header(built.data).is_log_append_time


def test_a_time_before_minus_one_is_refused() -> None:
    with pytest.raises(ValueError, match="timestamp of record 1"):
        build([Record(b"", timestamp_ms=0), Record(b"", timestamp_ms=-2)])


# --- what may be appended -----------------------------------------------------------------------


@pytest.mark.parametrize("item", ["text", b"bytes", 5, None, (b"k",), (b"k", b"v", b"x")])
def test_an_item_must_be_a_record_or_a_pair(item: object) -> None:
    with pytest.raises(TypeError, match="record 1 must be a Record"):
        build([(None, b""), item])


@pytest.mark.parametrize("pair", [("k", b"v"), (b"k", "v"), (1, b"v"), (b"k", 1.5)])
def test_text_is_refused_because_its_encoding_would_be_a_guess(pair: tuple[object, object]) -> None:
    with pytest.raises(TypeError, match="must be bytes or None"):
        build([pair])


def test_a_header_name_must_be_text_and_its_value_bytes() -> None:
    with pytest.raises(TypeError, match="header name"):
        build([Record(b"v", headers=[(None, b"")])])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="header value"):
        build([Record(b"v", headers=[("n", "v")])])  # type: ignore[list-item]


# --- cutting into batches -----------------------------------------------------------------------


def test_no_records_are_no_batches() -> None:
    assert build([]) == []


def test_records_are_cut_into_batches_of_about_the_target() -> None:
    values = [bytes([i]) * 100 for i in range(20)]
    batches = build([(None, value) for value in values], target_bytes=350)

    records = [decode_batch(batch) for batch in batches]
    assert [record.value for part in records for record in part] == values
    assert all(len(part) == 3 for part in records[:-1])
    assert all(len(batch) <= 61 + 350 for batch in batches)
    assert [record.offset for record in records[1]] == [0, 1, 2], "each counts from 0"


def test_a_record_larger_than_the_target_gets_a_batch_of_its_own() -> None:
    batches = build([(None, b"a"), (None, b"b" * 5000), (None, b"c")], target_bytes=100)

    assert [[len(r.value or b"") for r in decode_batch(b)] for b in batches] == [[1], [5000], [1]]


def test_a_record_larger_than_a_batch_may_be_is_refused_before_it_is_handed_out() -> None:
    style = BatchStyle(bytes_max=1000)
    batches = build_batches([(None, b"a"), (None, b"b" * 2000)], NOW_MS, style)

    next(batches)
    with pytest.raises(RecordTooLargeError) as caught:
        next(batches)
    assert caught.value.limit == 1000
    assert caught.value.size > 2000


@pytest.mark.parametrize("spare", [0, 1])
def test_the_largest_batch_is_exactly_the_limit(spare: int) -> None:
    size = len(build([(None, b"x" * 100)])[0])
    style = BatchStyle(bytes_max=size - spare)

    if spare:
        with pytest.raises(RecordTooLargeError):
            build([(None, b"x" * 100)], style)
    else:
        assert [len(batch) for batch in build([(None, b"x" * 100)], style)] == [size]


# --- compression --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_batch_reads_back_and_says_its_codec(codec: Codec) -> None:
    style = BatchStyle(bytes_max=1 << 20, codec=codec)
    [batch] = build([(b"k%d" % i, b"value " * 20) for i in range(50)], style)

    assert decode_batch_header(batch).codec == codec
    assert [record.key for record in decode_batch(batch)] == [b"k%d" % i for i in range(50)]


def test_a_record_over_the_limit_is_taken_if_it_compresses_below_it() -> None:
    style = BatchStyle(bytes_max=1000, codec=Codec.ZSTD)

    [batch] = build([(None, b"x" * 100_000)], style)

    assert len(batch) <= 1000
    assert decode_batch(batch)[0].value == b"x" * 100_000


def test_what_does_not_shrink_is_stored_as_it_is_when_that_fits() -> None:
    value = crc32c.crc32c(b"seed").to_bytes(4, "big") + bytes(range(200))
    size = len(build([(None, value)])[0])

    [batch] = build([(None, value)], BatchStyle(bytes_max=size, codec=Codec.GZIP))

    assert decode_batch(batch)[0].value == value
    assert decode_batch_header(batch).codec == Codec.NONE


def test_what_is_too_large_either_way_is_refused() -> None:
    value = bytes((i * 7919 + i // 251) % 256 for i in range(3000))

    with pytest.raises(RecordTooLargeError):
        build([(None, value)], BatchStyle(bytes_max=300, codec=Codec.GZIP))


# --- producers ----------------------------------------------------------------------------------


def test_a_producer_s_stamp_goes_into_the_header() -> None:
    producer = ProducerStamp(
        producer_id=ProducerId(7), producer_epoch=2, base_sequence=INT32_MAX, attributes=0x10
    )

    header = decode_batch_header(
        build_batch([Record(b"a"), Record(b"b")], NOW_MS, STYLE, producer).data
    )

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, INT32_MAX)
    assert header.last_sequence == 0
    assert header.is_transactional


def test_sealing_writes_the_checksum_of_the_batch_at_a_position() -> None:
    batch = client_batch(b"v")
    buffer = bytearray(b"--") + batch + b"--"
    buffer[2 + 17 : 2 + 21] = bytes(4)

    seal(buffer, 2, 2 + len(batch))

    assert buffer[2:-2] == batch


def test_a_large_record_that_compresses_well_does_not_make_the_batches_behind_it_too_large() -> (
    None
):
    rng = random.Random(1)
    records = [Record(b"a" * 100_000), *(Record(rng.randbytes(1000)) for _ in range(30))]
    style = BatchStyle(bytes_max=10_000, codec=Codec.ZSTD)

    counts = [batch.record_count for batch in build_batches(records, NOW_MS, style)]

    assert sum(counts) == 31
    assert counts[0] == 1


# --- a batch of one record ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        Record(b"value"),
        Record(None, b"key"),
        Record(b"", b""),
        Record(b"v" * 5000, b"k" * 70, [("a", None), ("ü", b"1")], 7),
        Record(b"v", timestamp_ms=-1),
    ],
)
@pytest.mark.parametrize("is_log_append_time", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_record_by_itself_makes_the_batch_that_a_list_of_one_makes(
    record: Record, is_log_append_time: bool, codec: Codec
) -> None:
    style = BatchStyle(bytes_max=1 << 20, codec=codec, is_log_append_time=is_log_append_time)
    expected = build_batch([record], NOW_MS, style)
    timestamp = NOW_MS if record.timestamp_ms is None else TimestampMs(record.timestamp_ms)

    data, shown = build_sole(record.value, record.key, record.headers, timestamp, NOW_MS, style)

    assert bytes(data) == bytes(expected.data)
    assert shown == expected.max_timestamp


def test_a_record_by_itself_may_fill_a_batch_and_not_more() -> None:
    exact = BatchStyle(bytes_max=len(build([(None, b"v" * 100)])[0]))

    build_sole(b"v" * 100, None, (), NOW_MS, NOW_MS, exact)
    with pytest.raises(RecordTooLargeError) as refused:
        build_sole(b"v" * 101, None, (), NOW_MS, NOW_MS, exact)

    assert (refused.value.size, refused.value.limit) == (exact.bytes_max + 1, exact.bytes_max)


def test_a_record_by_itself_is_checked_as_one_of_many_is() -> None:
    with pytest.raises(TypeError, match="value of record 0 must be bytes or None, not str"):
        build_sole("text", None, (), NOW_MS, NOW_MS, STYLE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key of record 0 must be bytes or None, not int"):
        build_sole(b"v", 5, (), NOW_MS, NOW_MS, STYLE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp of record 0 is -2"):
        build_sole(b"v", None, (), TimestampMs(-2), NOW_MS, STYLE)


# --- batches that are written together ----------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_runs_hold_the_same_batches_as_they_are_built_one_by_one(codec: Codec, size: int) -> None:
    chance = random.Random(size)
    many = [size] * min(800_000 // size, 30_000)
    records: list[object] = [
        (None, chance.randbytes(each)) for each in [*many, 300_000, 300_000, *many]
    ]
    style = BatchStyle(bytes_max=1 << 20, codec=codec)
    expected = [
        (bytes(batch.data), batch.record_count, batch.max_timestamp)
        for batch in build_batches(records, NOW_MS, style)
    ]

    found, run_sizes = [], []
    for run in build_runs(records, NOW_MS, style, bytearray(RUN_BYTES)):
        rest = bytes(run.data)
        run_sizes.append(len(rest))
        for batch in run.batches:
            found.append((rest[: batch.size], batch.record_count, batch.max_timestamp))
            rest = rest[batch.size :]
        assert not rest

    assert found == expected
    assert max(run_sizes) <= RUN_BYTES
    if codec is Codec.NONE:
        assert len(run_sizes) < len(found), "no two batches were put together"


def test_a_record_that_is_too_large_ends_the_runs_after_those_before_it() -> None:
    style = BatchStyle(bytes_max=1_000)
    runs = build_runs([(None, b"a"), (None, b"b" * 2_000)], NOW_MS, style, bytearray(RUN_BYTES))

    assert next(runs).batches[0].record_count == 1
    with pytest.raises(RecordTooLargeError):
        next(runs)
