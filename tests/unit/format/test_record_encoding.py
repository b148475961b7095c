"""Records into bytes, and keys into partitions: known answers, buffers that are too small."""

import pytest

from cordwood.format import record_encoding
from cordwood.format.record import Record
from fakes.client_batches import raw_record


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # from Kafka's own tests of its hash
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_of_a_key_is_kafka_s(key: bytes, expected: int) -> None:
    assert record_encoding.murmur2(key) == expected % 2**32


def test_records_are_sorted_by_key_and_keep_their_order() -> None:
    records = [(b"%d" % (i % 7), b"%d" % i) for i in range(50)] + [(None, b"keyless")]

    lists, chosen = record_encoding.split_by_key(records, Record, 3, 2)

    assert sorted(len(part) for part in lists) == sorted(
        list(chosen).count(partition) for partition in range(3)
    )
    for partition, part in enumerate(lists):
        assert part == [r for r, p in zip(records, chosen, strict=True) if p == partition]
    assert chosen[-1] == 2
    for key, value in records[:-1]:
        assert key is not None
        assert (key, value) in lists[(record_encoding.murmur2(key) & 0x7FFFFFFF) % 3]


def test_encoding_stops_before_the_record_that_does_not_fit_and_says_what_it_needs() -> None:
    out = bytearray(30)

    following, end, _, _, needed = record_encoding.encode_records(
        [(None, b"x" * 10), (None, b"y" * 20)], 0, 5, Record, out, 0
    )

    assert following == 1
    assert end == len(raw_record(b"x" * 10))
    assert needed == len(raw_record(b"y" * 20, offset_delta=1))


@pytest.mark.parametrize("spare", [0, 1])
def test_encoding_never_writes_past_the_end(spare: int) -> None:
    size = len(raw_record(b"value", key=b"k"))
    out = bytearray(size - spare)

    following, _, _, _, _ = record_encoding.encode_records([(b"k", b"value")], 0, 5, Record, out, 0)

    assert following == 1 - spare


def test_encoding_at_a_place_outside_the_buffer_is_refused() -> None:
    with pytest.raises(IndexError):
        record_encoding.encode_records([(b"k", b"v")], 0, 5, Record, bytearray(50), -1)
    with pytest.raises(IndexError):
        record_encoding.encode_records([(b"k", b"v")], -1, 5, Record, bytearray(50), 0)
    assert record_encoding.encode_records([(b"k", b"v")], 0, 5, Record, bytearray(5), 50)[0] == 0
