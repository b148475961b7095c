"""Batches in, records out; whatever is malformed is a FormatError that says where."""

import random

import pytest

from cordwood.errors import (
    ChecksumMismatchError,
    FormatError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder, decode_batch, describe_stop
from cordwood.format.compression import Codec, compress
from cordwood.format.record import Record
from cordwood.quantities import INT32_MAX, INT64_MAX
from fakes.client_batches import (
    NOW,
    client_batch,
    marker_batch,
    raw_batch,
    raw_record,
    sealed,
    sized,
    varint,
)

CODECS = list(Codec)


def batch_of(*records: bytes, codec: Codec = Codec.NONE, count: int | None = None) -> bytearray:
    """A batch around raw records, which need not be sound."""
    payload = b"".join(records)
    if codec is not Codec.NONE:
        payload = compress(codec, payload)
    return raw_batch(payload, count=len(records) if count is None else count, attributes=codec)


# --- sound batches ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(codec: Codec) -> None:
    batch = client_batch(
        b"one", None, b"", keys=[None, b"key", b""], timestamps=[5, 3, 9], codec=codec
    )

    assert decode_batch(batch) == [
        Record(b"one", None, [], 5, 0),
        Record(None, b"key", [], 3, 1),
        Record(b"", b"", [], 9, 2),
    ]


def test_offsets_count_from_the_base_offset() -> None:
    batch = client_batch(b"a", b"b", base_offset=1000)

    assert [record.offset for record in decode_batch(batch)] == [1000, 1001]


def test_a_batch_may_skip_offsets_that_compaction_removed() -> None:
    payload = raw_record(offset_delta=2) + raw_record(offset_delta=7)
    batch = raw_batch(payload, count=2, last_offset_delta=9, base_offset=100)

    assert [record.offset for record in decode_batch(batch)] == [102, 107]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_compaction_emptied_holds_no_records(codec: Codec) -> None:
    batch = raw_batch(b"", count=0, last_offset_delta=9, attributes=codec, base_timestamp=-1)

    assert decode_batch(batch) == []


def test_null_and_empty_headers_are_told_apart() -> None:
    batch = batch_of(raw_record(headers=[(b"a", None), (b"a", b""), (b"", b"x")]))

    assert decode_batch(batch)[0].headers == [("a", None), ("a", b""), ("", b"x")]


def test_with_log_append_time_the_batch_s_time_counts() -> None:
    batch = raw_batch(
        raw_record(timestamp_delta=-77), attributes=0x08, base_timestamp=5, max_timestamp=1234
    )

    assert decode_batch(batch)[0].timestamp_ms == 1234


@pytest.mark.parametrize(
    ("base", "delta", "expected"),
    [
        (INT64_MAX, 1, -(2**63)),
        (-1, -INT64_MAX, -(2**63)),
        (0, INT64_MAX, INT64_MAX),
        (0, -(2**63), -(2**63)),
    ],
)
def test_a_time_out_of_bounds_wraps_as_in_java(base: int, delta: int, expected: int) -> None:
    batch = raw_batch(raw_record(timestamp_delta=delta), base_timestamp=base)

    assert decode_batch(batch)[0].timestamp_ms == expected


def test_unused_attribute_bits_of_a_record_are_ignored() -> None:
    body = b"\xff" + varint(0) + varint(0) + sized(None) + sized(b"v") + varint(0)

    assert decode_batch(batch_of(raw_record(body=body)))[0].value == b"v"


# --- not a batch --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 60])
def test_less_than_a_header_is_truncated_input(size: int) -> None:
    with pytest.raises((TruncatedInputError, FormatError)) as caught:
        decode_batch(client_batch(b"v")[:size])

    assert isinstance(caught.value, TruncatedInputError) or size == 0


@pytest.mark.parametrize("cut", [1, 5])
def test_less_than_the_batch_is_refused(cut: int) -> None:
    batch = client_batch(b"value")

    with pytest.raises(FormatError, match="ends inside a batch"):
        decode_batch(batch[:-cut])


def test_more_than_one_batch_is_refused() -> None:
    two = client_batch(b"a") + client_batch(b"b", base_offset=1)

    with pytest.raises(FormatError, match="expected one batch, found 2"):
        decode_batch(two)


def test_bytes_behind_the_batch_are_refused() -> None:
    with pytest.raises(FormatError) as caught:
        decode_batch(client_batch(b"a") + b"tail")

    assert caught.value.position in (0, len(client_batch(b"a")))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_is_refused(magic: int) -> None:
    with pytest.raises(FormatError, match="magic"):
        decode_batch(raw_batch(raw_record(), magic=magic))


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_size_that_no_batch_can_have_is_refused(length: int) -> None:
    batch = client_batch(b"v")
    batch[8:12] = length.to_bytes(4, "big", signed=True)

    with pytest.raises(FormatError, match="size is impossible"):
        decode_batch(batch)


def test_a_size_beyond_the_input_is_refused() -> None:
    batch = client_batch(b"v")
    batch[8:12] = INT32_MAX.to_bytes(4, "big")

    with pytest.raises(FormatError, match="ends inside a batch"):
        decode_batch(batch)


@pytest.mark.parametrize(
    ("base_offset", "delta"), [(-1, 0), (-(2**63), 5), (0, -1), (INT64_MAX, 0), (INT64_MAX - 5, 5)]
)
def test_offsets_that_do_not_fit_are_refused(base_offset: int, delta: int) -> None:
    batch = raw_batch(raw_record(), base_offset=base_offset, last_offset_delta=delta)

    with pytest.raises(FormatError, match="offsets"):
        decode_batch(batch)


def test_a_negative_record_count_is_refused() -> None:
    with pytest.raises(FormatError, match="record count"):
        decode_batch(raw_batch(raw_record(), count=-1))


@pytest.mark.parametrize("position", [17, 21, 30, 60, 61, -1])
def test_a_changed_byte_that_the_checksum_covers_is_found(position: int) -> None:
    batch = client_batch(b"value", b"another")
    batch[position] ^= 0x40

    with pytest.raises(FormatError) as caught:
        decode_batch(batch)

    if position != 60:  # a count beyond all measure needs no checksum to be refused
        assert isinstance(caught.value, ChecksumMismatchError)


def test_a_checksum_error_says_both_sums_and_where() -> None:
    batch = client_batch(b"v")
    right = int.from_bytes(batch[17:21], "big")
    sealed(batch, crc=right ^ 1)

    with pytest.raises(ChecksumMismatchError) as caught:
        decode_batch(batch)

    assert (caught.value.computed, caught.value.stored) == (right, right ^ 1)
    assert caught.value.position == 0


def test_base_offset_and_leader_epoch_are_outside_the_checksum() -> None:
    batch = client_batch(b"v")
    batch[0:8] = (77).to_bytes(8, "big")
    batch[12:16] = (5).to_bytes(4, "big")

    assert decode_batch(batch)[0].offset == 77


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedFormatError, match="codec"):
        decode_batch(raw_batch(raw_record(), attributes=codec))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_payload_that_does_not_decompress_is_refused(codec: Codec) -> None:
    with pytest.raises(FormatError):
        decode_batch(raw_batch(b"\x00garbage that no codec wrote\xff" * 3, attributes=codec))


# --- malformed records --------------------------------------------------------------------------

ENDLESS = b"\xff" * 12
MALFORMED = {
    "size is negative": raw_record(size=-1),
    "size is zero": raw_record(body=b"", size=0),
    "size is beyond the batch": raw_record(size=1000),
    "size is the largest": raw_record(size=INT32_MAX),
    "size does not end": ENDLESS,
    "size has more than 32 bits": b"\xff\xff\xff\xff\x7f" + raw_record(),
    "body is only attributes": raw_record(body=b"\x00"),
    "time delta does not end": raw_record(body=b"\x00" + ENDLESS),
    "time delta has more than 64 bits": raw_record(body=b"\x00" + b"\xff" * 9 + b"\x02" + bytes(9)),
    "offset delta is missing": raw_record(body=b"\x00\x00"),
    "offset delta is negative": raw_record(offset_delta=-1),
    "offset delta is beyond the batch": raw_record(offset_delta=1),
    "key size is below null": raw_record(body=b"\0\0\0" + varint(-2) + sized(b"v") + b"\0"),
    "key size is beyond the record": raw_record(body=b"\0\0\0" + varint(50) + sized(b"v") + b"\0"),
    "key size is the largest": raw_record(body=b"\0\0\0" + varint(INT32_MAX) + b"\0" * 8),
    "value size is below null": raw_record(body=b"\0\0\0" + sized(b"k") + varint(-2) + b"\0"),
    "value size is beyond the record": raw_record(body=b"\0\0\0" + sized(b"k") + varint(9) + b"\0"),
    "value size is missing": raw_record(body=b"\0\0\0" + sized(b"k")),
    "header count is negative": raw_record(body=b"\0\0\0" + sized(b"k") * 2 + varint(-1)),
    "header count is beyond the record": raw_record(body=b"\0\0\0" + sized(b"k") * 2 + varint(9)),
    "header count is the largest": raw_record(body=b"\0\0\0" + sized(b"k") * 2 + varint(INT32_MAX)),
    "header count is missing": raw_record(body=b"\0\0\0" + sized(b"k") * 2),
    "header name is null": raw_record(
        body=b"\0\0\0" + sized(b"k") * 2 + varint(1) + varint(-1) + sized(b"v")
    ),
    "header name is beyond the record": raw_record(
        body=b"\0\0\0" + sized(b"k") * 2 + varint(1) + varint(100) + sized(b"v")
    ),
    "header value is below null": raw_record(
        body=b"\0\0\0" + sized(b"k") * 2 + varint(1) + sized(b"n") + varint(-2)
    ),
    "header value is beyond the record": raw_record(
        body=b"\0\0\0" + sized(b"k") * 2 + varint(1) + sized(b"n") + varint(5) + b"abcd"
    ),
    "header value is missing": raw_record(
        body=b"\0\0\0" + sized(b"k") * 2 + varint(1) + sized(b"n")
    ),
    "bytes left in the record": raw_record(body=b"\0\0\0" + sized(b"k") * 2 + b"\0" + b"left"),
}


@pytest.mark.parametrize("codec", CODECS)
def test_a_header_name_that_is_not_utf_8_does_not_hide_its_record(codec: Codec) -> None:
    batch = batch_of(raw_record(headers=[(b"\xffx", b"v"), (b"n", None)]), codec=codec)

    records = decode_batch(batch)

    assert records[0].headers == [("\ufffdx", b"v"), ("n", None)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_record_is_refused_compressed_or_not(case: str, codec: Codec) -> None:
    batch = batch_of(MALFORMED[case], codec=codec)

    with pytest.raises(FormatError) as caught:
        decode_batch(batch)

    assert caught.value.reason


@pytest.mark.parametrize("case", MALFORMED)
def test_the_position_of_a_malformed_record_is_behind_the_sound_ones(case: str) -> None:
    sound = raw_record(b"sound" * 20)
    batch = batch_of(sound, MALFORMED[case])
    if case == "offset delta is beyond the batch":
        batch = batch_of(sound, raw_record(offset_delta=2))

    with pytest.raises(FormatError) as caught:
        decode_batch(batch)

    assert 61 + len(sound) <= caught.value.position <= len(batch)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 1000, INT32_MAX])
def test_a_count_that_is_not_that_of_the_records_is_refused(codec: Codec, count: int) -> None:
    records = [raw_record(offset_delta=index) for index in range(2)]
    payload = b"".join(records)
    batch = raw_batch(
        compress(codec, payload) if codec else payload,
        count=count,
        last_offset_delta=5,
        attributes=codec,
    )

    with pytest.raises(FormatError):
        decode_batch(batch)


def test_a_count_beyond_what_the_bytes_can_hold_costs_no_memory() -> None:
    with pytest.raises(LimitExceededError) as caught:
        decode_batch(raw_batch(raw_record(), count=INT32_MAX))

    assert caught.value.size == INT32_MAX


# --- any change at all --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_any_change_to_the_bytes_is_found_or_leaves_the_records_alone(codec: Codec) -> None:
    rng = random.Random(17)
    whole = client_batch(b"first", None, b"third", keys=[b"k", b"k2", None], codec=codec)
    records = [record._replace(offset=-1) for record in decode_batch(whole)]
    for _ in range(400):
        batch = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            batch[rng.randrange(len(batch))] = rng.randrange(256)
        if rng.random() < 0.2:
            del batch[rng.randrange(len(batch)) :]

        try:
            found = decode_batch(batch)
        except FormatError:
            continue

        # Only the base offset is not covered by the checksum.
        assert [record._replace(offset=-1) for record in found] == records


@pytest.mark.parametrize("codec", CODECS)
def test_any_payload_under_a_right_checksum_decodes_or_is_refused(codec: Codec) -> None:
    rng = random.Random(23)
    payload = b"".join(
        raw_record(b"v" * index, key=b"k", headers=[(b"h", b"x")], offset_delta=index)
        for index in range(4)
    )
    for _ in range(400):
        mutated = bytearray(payload)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutated[rng.randrange(len(mutated))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0x10])
        data = compress(codec, bytes(mutated)) if codec else bytes(mutated)
        batch = raw_batch(data, count=rng.choice([3, 4, 4, 4, 5]), attributes=codec)

        try:
            records = decode_batch(batch)
        except FormatError as error:
            assert error.position >= 0
            continue

        assert all(0 <= record.offset <= 4 for record in records)


# --- the decoder --------------------------------------------------------------------------------


def scan(data: bytes, *, stop_offset: int = INT64_MAX) -> BatchDecoder:
    decoder = BatchDecoder()
    decoder.scan(memoryview(data), 0, len(data), stop_offset=stop_offset)
    return decoder


THREE = bytes(
    client_batch(b"a", b"b")
    + client_batch(b"c", base_offset=2)
    + client_batch(b"d", b"e", b"f", base_offset=3)
)


def test_a_scan_finds_every_batch_and_where_it_lies() -> None:
    decoder = scan(THREE)

    batches = [decoder.batch(index) for index in range(decoder.count)]
    assert [(b.base_offset, b.next_offset, b.record_count) for b in batches] == [
        (0, 2, 2),
        (2, 3, 1),
        (3, 6, 3),
    ]
    assert [b.position for b in batches] == [0, batches[0].size, batches[0].size + batches[1].size]
    assert (decoder.position, decoder.stop) == (len(THREE), tables.STOP_END)


def test_every_field_of_the_header_is_in_the_batch_row() -> None:
    batch = raw_batch(
        raw_record(),
        attributes=0x31,
        base_timestamp=-5,
        max_timestamp=INT64_MAX,
        producer_id=2**40,
        producer_epoch=-3,
        base_sequence=-9,
        leader_epoch=-1,
        last_offset_delta=7,
    )

    info = scan(bytes(batch)).batch(0)

    assert (info.attributes, info.codec, info.is_control) == (0x31, 1, True)
    assert (info.base_timestamp, info.max_timestamp) == (-5, INT64_MAX)
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (2**40, -3, -9)
    assert (info.leader_epoch, info.last_offset_delta) == (-1, 7)
    assert info.crc == int.from_bytes(batch[17:21], "big")


@pytest.mark.parametrize(
    ("stop_offset", "count"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (6, 3), (100, 3)]
)
def test_a_scan_ends_before_the_batch_that_begins_at_the_stop(stop_offset: int, count: int) -> None:
    decoder = scan(THREE, stop_offset=stop_offset)

    assert decoder.count == count
    assert decoder.stop == (tables.STOP_END if count == 3 else tables.STOP_OFFSET)


@pytest.mark.parametrize("cut", range(1, 61 + 20, 7))
def test_a_scan_stops_at_an_incomplete_batch(cut: int) -> None:
    decoder = scan(THREE[:-cut])

    assert decoder.count == 2
    assert decoder.stop in (tables.STOP_SHORT_BATCH, tables.STOP_SHORT_HEADER)
    assert describe_stop(decoder.stop).startswith("the file ends inside")


def test_a_scan_takes_gaps_and_refuses_offsets_that_go_back() -> None:
    forward = scan(bytes(client_batch(b"a") + client_batch(b"b", base_offset=50)))
    back = scan(bytes(client_batch(b"a", b"b") + client_batch(b"c", base_offset=1)))

    assert (forward.count, forward.stop) == (2, tables.STOP_END)
    assert (back.count, back.stop) == (1, tables.STOP_BAD_OFFSET)


def test_a_scan_starts_where_it_is_told() -> None:
    first = scan(THREE).batch(1).position
    decoder = BatchDecoder()

    decoder.scan(memoryview(THREE), first, len(THREE))

    assert decoder.batch(0).position == first
    assert decoder.count == 2


def test_a_full_table_ends_a_scan_and_the_next_one_goes_on() -> None:
    data = b"".join(bytes(client_batch(b"x", base_offset=i)) for i in range(1500))
    decoder = BatchDecoder()

    seen, at, following = 0, 0, 0
    while at < len(data):
        decoder.scan(memoryview(data), at, len(data), next_offset_min=following)
        seen += decoder.count
        at, following = decoder.position, decoder.batch(decoder.count - 1).next_offset

    assert (seen, following) == (1500, 1500)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_the_sound_batches_end_before_the_first_wrong_checksum(bad: int) -> None:
    data = bytearray(THREE)
    batch = scan(THREE).batch(bad)
    data[batch.position + batch.size - 1] ^= 1

    decoder = scan(bytes(data))

    assert decoder.sound_count() == bad
    with pytest.raises(ChecksumMismatchError) as caught:
        decoder.check_checksum(bad)
    assert caught.value.position == batch.position


@pytest.mark.parametrize("size", [10, 3000, 100_000])
def test_checksums_of_small_and_large_batches_are_checked_alike(size: int) -> None:
    data = client_batch(b"x" * size)
    assert scan(bytes(data)).sound_count() == 1

    data[-1] ^= 1

    assert scan(bytes(data)).sound_count() == 0


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize("stop", range(7))
def test_runs_hold_the_records_of_a_range(start: int, stop: int) -> None:
    decoder = scan(THREE)

    runs = decoder.runs(0, decoder.count, start_offset=start, stop_offset=stop)

    offsets = [record.offset for run in runs for record in run.records()]
    assert offsets == list(range(start, stop))


def test_runs_pass_over_control_batches_and_mix_codecs() -> None:
    marker = marker_batch(7)
    marker[0:8] = (2).to_bytes(8, "big")
    data = bytes(
        client_batch(b"a", b"b", codec=Codec.LZ4)
        + marker
        + client_batch(b"c", base_offset=3)
        + client_batch(b"d", base_offset=4, codec=Codec.GZIP)
    )
    decoder = scan(data)

    records = [record for run in decoder.runs(0, decoder.count) for record in run.records()]

    assert [(r.offset, r.value) for r in records] == [(0, b"a"), (1, b"b"), (3, b"c"), (4, b"d")]


def test_a_control_batch_can_be_parsed_when_asked_for() -> None:
    decoder = scan(bytes(marker_batch(7, coordinator_epoch=3)))

    [record] = decoder.parse(0).records()

    assert record.key == bytes([0, 0, 0, 1])
    assert record.value == bytes([0, 0, 0, 0, 0, 3])


def test_runs_of_many_plain_batches_are_parsed_together() -> None:
    data = b"".join(bytes(client_batch(b"x", base_offset=i)) for i in range(300))
    decoder = scan(data)

    runs = [len(run) for run in decoder.runs(0, decoder.count)]

    assert runs == [300]


def test_one_decoder_serves_one_buffer_after_another() -> None:
    decoder = BatchDecoder()
    for values in ([b"a"], [b"b"] * 100, [b"c"] * 3):
        data = client_batch(*values)
        decoder.scan(memoryview(data), 0, len(data))
        assert [r.value for run in decoder.runs(0, 1) for r in run.records()] == values


def test_times_are_those_of_the_records() -> None:
    assert decode_batch(client_batch(b"a"))[0].timestamp_ms == NOW
