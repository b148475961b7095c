"""Other implementations of the record batch judge ours: they read what we write, we read theirs.

kafka-python's is plain Python, aiokafka's is compiled; neither shares code with the other or with
Cordwood. kafka-python needs a library for snappy that the project does not, so that pair is absent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cordwood.format.batch import BatchDecoder, decode_batch
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch, build_batches
from cordwood.format.batch_header import (
    CRC_START,
    TRANSACTIONAL,
    decode_batch_header,
)
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.quantities import INT32_MAX, INT64_MAX, MIB, ProducerId, TimestampMs

NOW_MS = TimestampMs(1_760_000_000_000)
MAGIC_POSITION = 16  # base offset, length and leader epoch lie before it; brokers stamp them
NOBODY = ProducerStamp()
TIMESTAMP_MS_MAX = 2**61  # the difference of any two fits the varlong of a record


@dataclass(frozen=True)
class Implementation:
    """The record code of one client library."""

    name: str
    batch_class: Callable[[bytes], Any]
    builder_class: Callable[..., Any]

    def read(self, data: bytes) -> list[Record]:
        """The records of one batch, its checksum verified first."""
        batch = self.batch_class(data)
        assert batch.validate_crc()
        return [
            Record(r.value, r.key, tuple(r.headers), r.timestamp, r.offset)
            for r in self.batch_class(data)
        ]

    def write(self, records: list[Record], codec: Codec, producer: ProducerStamp = NOBODY) -> bytes:
        builder = self.builder_class(
            magic=2,
            compression_type=int(codec),
            is_transactional=bool(producer.attributes & TRANSACTIONAL),
            producer_id=int(producer.producer_id),
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.base_sequence,
            batch_size=64 * MIB,
        )
        for delta, record in enumerate(records):
            taken = builder.append(
                delta,
                timestamp=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
            assert taken is not None, "the batch is full"
        return bytes(builder.build())


KAFKA_PYTHON = Implementation(
    "kafka-python",
    kafka_python_records.DefaultRecordBatch,
    kafka_python_records.DefaultRecordBatchBuilder,
)
AIOKAFKA = Implementation(
    "aiokafka", aiokafka_records.DefaultRecordBatch, aiokafka_records.DefaultRecordBatchBuilder
)
PAIRS = [
    pytest.param(other, codec, id=f"{other.name}-{codec.name.lower()}")
    for other in (KAFKA_PYTHON, AIOKAFKA)
    for codec in Codec
    if (other, codec) != (KAFKA_PYTHON, Codec.SNAPPY)
]
PLAIN = [pytest.param(other, id=other.name) for other in (KAFKA_PYTHON, AIOKAFKA)]

content = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"\0" * 500])
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=40)), max_size=4)
timestamps = st.integers(0, TIMESTAMP_MS_MAX) | st.integers(NOW_MS - 5000, NOW_MS + 5000)
records = st.builds(
    Record, value=content, key=content, headers=headers.map(tuple), timestamp_ms=timestamps
)
batches = st.lists(records, min_size=1, max_size=12)
producers = st.builds(
    ProducerStamp,
    producer_id=st.integers(0, INT64_MAX).map(ProducerId),
    producer_epoch=st.integers(0, 2**15 - 1),
    base_sequence=st.integers(0, INT32_MAX),
    attributes=st.sampled_from([0, TRANSACTIONAL]),
)

NULLS = [Record(None, None, (), NOW_MS), Record(b"", b"", (("", None),), NOW_MS - 1)]
LARGE = [Record(b"ab" * 80_000, None, (), NOW_MS)]  # several blocks of snappy and lz4
MANY = [Record(b"value %d" % n, b"key %d" % (n % 7), (), NOW_MS + n) for n in range(3000)]


def numbered(items: list[Record]) -> list[Record]:
    return [record._replace(offset=delta) for delta, record in enumerate(items)]


def ours(items: list[Record], codec: Codec, producer: ProducerStamp = NOBODY) -> bytes:
    style = BatchStyle(bytes_max=64 * MIB, codec=codec)
    return bytes(build_batch(items, NOW_MS, style, producer).data)


def read_by_us(data: bytes) -> list[Record]:
    return [record._replace(headers=tuple(record.headers)) for record in decode_batch(data)]


@pytest.mark.parametrize(("other", "codec"), PAIRS)
@given(items=batches)
@example(items=NULLS)
@example(items=LARGE)
@example(items=MANY)
def test_another_implementation_reads_what_we_write(
    other: Implementation, codec: Codec, items: list[Record]
) -> None:
    data = ours(items, codec)

    assert other.read(data) == numbered(items)


@pytest.mark.parametrize(("other", "codec"), PAIRS)
@given(items=batches)
@example(items=NULLS)
@example(items=LARGE)
@example(items=MANY)
def test_we_read_what_another_implementation_writes(
    other: Implementation, codec: Codec, items: list[Record]
) -> None:
    data = other.write(items, codec)

    assert read_by_us(data) == numbered(items)


@pytest.mark.parametrize("other", PLAIN)
@given(items=batches, producer=producers)
@example(items=NULLS, producer=NOBODY)
@example(items=MANY, producer=NOBODY)
def test_an_uncompressed_batch_is_the_same_bytes_from_every_implementation(
    other: Implementation, items: list[Record], producer: ProducerStamp
) -> None:
    theirs = other.write(items, Codec.NONE, producer)

    data = ours(items, Codec.NONE, producer)

    assert data[MAGIC_POSITION:] == theirs[MAGIC_POSITION:]


@pytest.mark.parametrize(("other", "codec"), PAIRS)
@given(items=batches, producer=producers)
def test_both_sides_understand_the_same_batch_header(
    other: Implementation, codec: Codec, items: list[Record], producer: ProducerStamp
) -> None:
    data = ours(items, codec, producer)

    theirs, header = other.batch_class(data), decode_batch_header(data)

    assert {
        "base_offset": theirs.base_offset,
        "crc": theirs.crc,
        "attributes": theirs.attributes,
        "last_offset_delta": theirs.last_offset_delta,
        "first_timestamp": theirs.first_timestamp,
        "max_timestamp": theirs.max_timestamp,
        "producer_id": theirs.producer_id,
        "producer_epoch": theirs.producer_epoch,
        "base_sequence": theirs.base_sequence,
        "is_transactional": theirs.is_transactional,
        "compression": theirs.compression_type,
    } == {
        "base_offset": header.base_offset,
        "crc": header.crc,
        "attributes": header.attributes,
        "last_offset_delta": header.last_offset_delta,
        "first_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "base_sequence": producer.base_sequence,
        "is_transactional": bool(producer.attributes & TRANSACTIONAL),
        "compression": codec,
    }


@pytest.mark.parametrize(("other", "codec"), PAIRS)
def test_batches_cut_from_a_long_list_are_read_by_another_implementation(
    other: Implementation, codec: Codec
) -> None:
    style = BatchStyle(bytes_max=MIB, codec=codec)

    built = [bytes(b.data) for b in build_batches(MANY, NOW_MS, style, target_bytes=8 * 1024)]

    assert len(built) > 5
    read = [record._replace(offset=-1) for data in built for record in other.read(data)]
    assert read == MANY


@pytest.mark.parametrize(("other", "codec"), PAIRS)
@given(items=batches, place=st.integers(CRC_START, 2**20), flip=st.integers(1, 255))
def test_the_checksum_of_another_implementation_covers_the_same_bytes(
    other: Implementation, codec: Codec, items: list[Record], place: int, flip: int
) -> None:
    data = bytearray(other.write(items, codec))
    data[CRC_START + place % (len(data) - CRC_START)] ^= flip
    decoder = BatchDecoder()

    found = decoder.scan(memoryview(data), 0, len(data))

    is_sound_to_us = found == 1 and decoder.sound_count() == 1
    assert not is_sound_to_us
    assert not other.batch_class(bytes(data)).validate_crc()
