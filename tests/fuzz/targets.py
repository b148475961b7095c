"""Everything that parses bytes of files and batches, as functions of bytes.

A target may raise what the parser promises to raise for input it does not accept, and nothing
else. Where the input is accepted, what was read must survive being written and read again. To
add a target, write a function and give it examples of sound input to start from.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from cordwood.errors import CorruptSegmentError, FormatError, LogError
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch, seal
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.format.compression import Codec, compress, decompress
from cordwood.format.control_record import (
    ControlType,
    EndTransactionMarker,
    decode_control_key,
    decode_marker,
    encode_marker,
)
from cordwood.format.file_names import (
    parse_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)
from cordwood.format.groups.consumer_subscription import subscribed_topics
from cordwood.format.groups.group_metadata import (
    GroupMetadata,
    MemberMetadata,
    decode_group_metadata,
    encode_group_metadata,
)
from cordwood.format.groups.group_offsets import (
    OffsetKey,
    OffsetValue,
    decode_group_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from cordwood.format.record import Record
from cordwood.format.small_files.checked_lines import CheckedLine, encode_line
from cordwood.format.small_files.checkpoint_text import (
    EpochEntry,
    decode_text,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    render_epoch_checkpoint,
    render_offset_checkpoint,
)
from cordwood.format.small_files.meta_properties import (
    MetaProperties,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_properties,
    render_clean_shutdown,
    render_meta_properties,
    render_properties,
)
from cordwood.format.small_files.partition_metadata import (
    new_topic_id,
    parse_partition_metadata,
    render_partition_metadata,
)
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from cordwood.log.rules.append_checks import check_produced_batch
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.catalog_files import parse_catalog, render_catalog
from cordwood.log.topics.topic_catalog import (
    Catalog,
    CatalogChange,
    TopicEntry,
    render_change,
)
from cordwood.quantities import (
    KIB,
    MIB,
    FilePosition,
    LeaderEpoch,
    Offset,
    ProducerId,
    TimestampMs,
)
from cordwood.storage.indexes.offset_index import OffsetIndex
from cordwood.storage.indexes.time_index import TimeIndex
from cordwood.storage.indexes.transaction_index import TransactionIndex
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from fakes.manual_clock import START_MS, ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fuzz.target import target

NOW = TimestampMs(START_MS)
DECOMPRESSED_MAX: Final = 256 * KIB


# --- batches ------------------------------------------------------------------------------------


def batch(codec: Codec = Codec.NONE, stamp: ProducerStamp | None = None) -> bytes:
    records = [
        Record(b"paid", b"user:42", [("src", b"web"), ("empty", None)], 1_700_000_000_000),
        Record(None, b"user:7", (), 1_700_000_000_001),
        Record(b"x" * 50, None, (), None),
    ]
    style = BatchStyle(bytes_max=MIB, codec=codec)
    return bytes(build_batch(records, NOW, style, stamp or ProducerStamp()).data)


PRODUCED = ProducerStamp(producer_id=ProducerId(7), producer_epoch=1, base_sequence=3)
BATCHES = [batch(codec) for codec in Codec]


@target(*BATCHES, BATCHES[0] * 3)
def batches(data: bytes) -> None:
    """A log file's bytes: scanned, verified, parsed."""
    decoder = BatchDecoder(batches_max=16)
    count = decoder.scan(memoryview(data), 0, len(data))
    assert 0 <= decoder.position <= len(data)
    sound = decoder.sound_count()
    assert sound <= count
    for run in decoder.runs(0, sound):
        run.records()


@target(*(bytes([3 << 3 | codec]) + BATCHES[codec][HEADER_SIZE:] for codec in Codec))
def records(data: bytes) -> None:
    """Records behind a checksum that is right: whatever they claim, nothing is read past them.

    The first byte says how many there are and how they are compressed.
    """
    count, codec = (data[0] >> 3, data[0] & 7) if data else (0, 0)
    whole = bytearray(BATCHES[0][:HEADER_SIZE] + data[1:])
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">h", whole, 21, codec)
    struct.pack_into(">i", whole, 23, max(count - 1, 0))
    struct.pack_into(">i", whole, 57, count)
    seal(whole)
    decoder = BatchDecoder(batches_max=4)
    if decoder.scan(memoryview(whole), 0, len(whole)) == 1:
        assert decoder.sound_count() == 1
        for run in decoder.runs(0, 1):
            for record in run.records():
                assert len(record.value or b"") <= max(len(whole), DECOMPRESSED_MAX * 64)


@target(*BATCHES, batch(stamp=PRODUCED), refusals=(FormatError, LogError))
def produced_batch(data: bytes) -> None:
    """What a client sends, with its checksum made good so that the checks behind it are reached."""
    whole = bytearray(data)
    if len(whole) > HEADER_SIZE:
        seal(whole)
    checked = check_produced_batch(whole, TopicConfig(), now_ms=NOW)
    decoder = BatchDecoder(batches_max=4)
    assert decoder.scan(memoryview(checked.data), 0, len(checked.data)) == 1
    assert decoder.sound_count() == 1
    decoder.parse(0).records()


@target(*BATCHES, BATCHES[0] * 2 + BATCHES[1], refusals=(CorruptSegmentError,))
def segment(data: bytes) -> None:
    """A log file walked as recovery walks it: past any damage, always forward."""
    fs = SimulatedFileSystem(clock=ManualClock())
    file = fs.create("/s.log")
    if data:
        file.write_at(0, data)
    reader = SegmentReader(file, Offset(0), len(data))
    position, offset = FilePosition(0), Offset(0)
    for _ in range(len(data) + 1):
        try:
            for _run in reader.chunks(position, offset):
                pass
            return
        except CorruptSegmentError as error:
            following = reader.resume_after(error.position + 1, error.first_offset)
            if following is None:
                return
            assert following.position > error.position
            position, offset = FilePosition(following.position), following.base_offset
    raise AssertionError("the walk does not end")


def _compressed(codec: Codec) -> bytes:
    return bytes([codec]) + compress(codec, b"commit log " * 40)


@target(*(_compressed(codec) for codec in Codec))
def compression(data: bytes) -> None:
    """The first byte names the codec. No more than the limit ever comes out."""
    if data and data[0] <= Codec.ZSTD:
        assert len(decompress(data[0], data[1:], limit=DECOMPRESSED_MAX)) <= DECOMPRESSED_MAX


MARKER = EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=5)


@target(b"\x04" + b"".join(encode_marker(MARKER)))
def control_record(data: bytes) -> None:
    """The first byte is the length of the key."""
    size = data[0] if data else 0
    key, value = data[1 : 1 + size], data[1 + size :]
    decode_control_key(key)
    decode_marker(key, value)


# --- text files ---------------------------------------------------------------------------------

OFFSETS = {("orders", 0): Offset(42), ("a.b_c-d", 11): Offset(0)}
EPOCHS = [
    EpochEntry(epoch=LeaderEpoch(0), start_offset=Offset(0)),
    EpochEntry(epoch=LeaderEpoch(7), start_offset=Offset(99)),
]


@target(render_offset_checkpoint(OFFSETS).encode(), b"")
def offset_checkpoint(data: bytes) -> None:
    offsets = parse_offset_checkpoint(decode_text(data))
    assert parse_offset_checkpoint(render_offset_checkpoint(offsets)) == offsets


@target(render_epoch_checkpoint(EPOCHS).encode(), b"")
def epoch_checkpoint(data: bytes) -> None:
    entries = parse_epoch_checkpoint(decode_text(data))
    assert parse_epoch_checkpoint(render_epoch_checkpoint(entries)) == entries


META = MetaProperties(cluster_id="abc", node_id=1, directory_id=new_topic_id())


@target(render_meta_properties(META, written_ms=NOW).encode(), b"a\\u0041 = b\\\n  c\n#x\n")
def meta_properties(data: bytes) -> None:
    text = decode_text(data)
    properties = parse_properties(text)
    assert parse_properties(render_properties(properties)) == properties
    meta = parse_meta_properties(text)
    assert parse_meta_properties(render_meta_properties(meta, written_ms=NOW)) == meta


@target(render_clean_shutdown(-1).encode(), b'{"version":0,"brokerEpoch":12}')
def clean_shutdown(data: bytes) -> None:
    epoch = parse_clean_shutdown(decode_text(data))
    assert parse_clean_shutdown(render_clean_shutdown(epoch)) == epoch


@target(render_partition_metadata(new_topic_id()).encode())
def partition_metadata(data: bytes) -> None:
    topic_id = parse_partition_metadata(decode_text(data))
    assert parse_partition_metadata(render_partition_metadata(topic_id)) == topic_id


CATALOG = Catalog(
    generation=3,
    topics={
        name: TopicEntry(
            name=name, topic_id=new_topic_id(), partitions=2, config={"retention.ms": "1000"}
        )
        for name in ("orders", "payments")
    },
)


CATALOG_LINE = encode_line(
    CheckedLine(4, render_change(CatalogChange(delete=("orders",), begin={"payments": (1,)})))
)


@target(render_catalog(CATALOG), render_catalog(CATALOG).rstrip(b" ") + CATALOG_LINE)
def catalog(data: bytes) -> None:
    """With the checksums as they are, and made good."""
    head, *lines = data.split(b"\n")
    checked = [line.partition(b" ")[2] for line in lines]
    good = b"\n".join([head, *(b"%08x %b" % (crc32c(line), line) for line in checked), b""])
    found = parse_catalog(good)
    assert parse_catalog(render_catalog(found)) == found
    parse_catalog(data)


@target(b"00000000000000000042.log", b"00000000000000000042.timeindex.deleted", b"orders-11",
        b"orders-0.0123456789abcdef0123456789abcdef-delete")  # fmt: skip
def file_names(data: bytes) -> None:
    name = decode_text(data)
    found = parse_segment_file_name(name)
    if found is not None:
        assert segment_file_name(found.base_offset, found.kind, found.suffix) == name
        return
    directory = parse_directory_name(name)
    again = parse_directory_name(partition_directory_name(directory.topic, directory.partition))
    assert (again.topic, again.partition) == (directory.topic, directory.partition)


# --- tables -------------------------------------------------------------------------------------

SNAPSHOT = ProducerSnapshotEntry(
    producer_id=ProducerId(7),
    producer_epoch=1,
    last_sequence=9,
    last_offset=Offset(41),
    offset_delta=2,
    timestamp=NOW,
    coordinator_epoch=0,
    current_txn_first_offset=Offset(-1),
)


@target(encode_producer_snapshot([SNAPSHOT]), encode_producer_snapshot([]))
def producer_snapshot(data: bytes) -> None:
    """With the checksum as it is, and made good."""
    sealed = data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]
    entries = decode_producer_snapshot(sealed)
    assert decode_producer_snapshot(encode_producer_snapshot(entries)) == entries
    decode_producer_snapshot(data)


KEY = OffsetKey(group="billing", topic="orders", partition=3)
VALUES = [
    OffsetValue(offset=Offset(9), metadata="note", commit_timestamp=NOW),
    OffsetValue(offset=Offset(9), metadata="", commit_timestamp=NOW, topic_id=new_topic_id()),
]


@target(encode_offset_key(KEY), *(b"\xff" + encode_offset_value(value) for value in VALUES))
def group_offsets(data: bytes) -> None:
    """A key; or, behind a byte 255, a value."""
    if data[:1] == b"\xff":
        value = decode_offset_value(data[1:])
        assert decode_offset_value(encode_offset_value(value)).offset == value.offset
        return
    key = decode_group_key(data)
    if isinstance(key, OffsetKey):
        assert decode_group_key(encode_offset_key(key)) == key


GROUP = GroupMetadata(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="m",
    current_state_timestamp=NOW,
    members=(
        MemberMetadata(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            subscription=b"\x00\x01\x00\x00\x00\x01\x00\x01t",
            assignment=b"\x03",
        ),
    ),
)


@target(encode_group_metadata(GROUP))
def group_metadata(data: bytes) -> None:
    """A group's value; and what a consumer joins with, of which nothing raises."""
    subscribed_topics(data)
    value = decode_group_metadata(data)
    assert decode_group_metadata(encode_group_metadata(value)) == value


def _file(data: bytes) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(clock=ManualClock())
    file = fs.create("/f")
    if data:
        file.write_at(0, data)
    return fs


@target(struct.pack(">iiii", 4, 100, 9, 300), bytes(16))
def offset_index(data: bytes) -> None:
    for index in (
        OffsetIndex.open_sealed(_file(data), "/f", Offset(10)),
        OffsetIndex.open_active(_file(data), "/f", Offset(10), max_bytes=KIB),
    ):
        for offset in (0, 10, 15, 1 << 40):
            found, position = index.lookup(Offset(offset))
            assert found >= 10
            assert position >= 0
        index.sanity_check(log_size=MIB)


@target(struct.pack(">qiqi", 1000, 4, 2000, 9), bytes(24))
def time_index(data: bytes) -> None:
    for index in (
        TimeIndex.open_sealed(_file(data), "/f", Offset(10)),
        TimeIndex.open_active(_file(data), "/f", Offset(10), max_bytes=KIB),
    ):
        for timestamp in (0, 1500, 1 << 60):
            index.lookup(TimestampMs(timestamp))
        assert index.count >= 0
        index.sanity_check()


@target(struct.pack(">hqqqqhqqqq", 0, 7, 10, 20, 20, 0, 8, 12, 30, 31))
def transaction_index(data: bytes) -> None:
    index = TransactionIndex.open_sealed(_file(data), "/f", Offset(10))
    index.collect(fetch_start=Offset(0), upper_bound=Offset(1 << 40))
    index.sanity_check()


@target(bytes(72), b"cordwhw\x01" + struct.pack("<8q", 5, ~5, 0, ~0, 5, ~5, 4, ~4))
def high_watermark(data: bytes) -> None:
    fs = SimulatedFileSystem(clock=ManualClock())
    fs.make_directory("/p")
    file = fs.create("/p/high-watermark")
    if data:
        file.write_at(0, data)
    before = HighWatermarkFile(fs, "/p", writable=False).read()
    assert before == HighWatermarkFile(fs, "/p", writable=True).read() or len(data) < 72
