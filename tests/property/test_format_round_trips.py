"""What is encoded decodes to itself; what is malformed is a FormatError and nothing else."""

import string
from collections.abc import Callable
from typing import AnyStr
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from cordwood.errors import FormatError, LimitExceededError
from cordwood.format.compression import Codec, compress, decompress
from cordwood.format.control_record import (
    ControlType,
    EndTransactionMarker,
    decode_control_key,
    decode_marker,
    encode_control_key,
    encode_marker,
)
from cordwood.format.file_names import (
    CLEANED,
    DELETED,
    NO_SUFFIX,
    SWAP,
    DirectoryState,
    FileKind,
    PartitionDirectory,
    SegmentFileName,
    check_topic_name,
    deleted_directory_name,
    parse_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)
from cordwood.format.index_entry import (
    AbortedTransaction,
    OffsetEntry,
    TimeEntry,
    decode_aborted_transaction,
    decode_offset_entry,
    decode_time_entry,
    encode_aborted_transaction,
    encode_offset_entry,
    encode_time_entry,
)
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
    decode_topic_id,
    encode_topic_id,
    parse_partition_metadata,
    render_partition_metadata,
)
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from cordwood.format.zstd_frame import walk_zstd_frame
from cordwood.quantities import (
    INT32_MAX,
    INT64_MAX,
    FilePosition,
    LeaderEpoch,
    Offset,
    ProducerId,
    TimestampMs,
)

DECOMPRESSED_MAX = 256 * 1024

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), INT32_MAX)
int64s = st.integers(-(2**63), INT64_MAX)
naturals_32 = st.integers(0, INT32_MAX)
naturals_64 = st.integers(0, INT64_MAX)
offsets = naturals_64.map(Offset)
topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249).filter(
    lambda topic: topic not in (".", "..")
)
unicode_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
codecs = st.sampled_from(Codec)
# Repeats, so that the codecs find something to do, and sizes on both sides of a block.
payloads = st.builds(
    lambda piece, times: piece * times, st.binary(max_size=200), st.integers(0, 600)
)

# --- round trips ----------------------------------------------------------------------------


@given(codec=codecs, payload=payloads)
def test_compression(codec: Codec, payload: bytes) -> None:
    compressed = compress(codec, payload)

    assert decompress(codec, compressed, limit=len(payload)) == payload
    if payload:
        with pytest.raises(LimitExceededError):
            decompress(codec, compressed, limit=len(payload) - 1)


@given(
    marker=st.builds(
        EndTransactionMarker,
        type=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
        coordinator_epoch=int32s,
    )
)
def test_transaction_markers(marker: EndTransactionMarker) -> None:
    key, value = encode_marker(marker)

    assert decode_marker(key, value) == marker
    assert encode_control_key(decode_control_key(key).type) == key


@given(
    entry=st.builds(
        OffsetEntry, relative_offset=naturals_32, position=naturals_32.map(FilePosition)
    ),
    before=st.binary(max_size=20),
)
def test_offset_entries(entry: OffsetEntry, before: bytes) -> None:
    assert decode_offset_entry(before + encode_offset_entry(entry), len(before)) == entry


@given(
    entry=st.builds(TimeEntry, timestamp=naturals_64.map(TimestampMs), relative_offset=naturals_32),
    before=st.binary(max_size=20),
)
def test_time_entries(entry: TimeEntry, before: bytes) -> None:
    assert decode_time_entry(before + encode_time_entry(entry), len(before)) == entry


@given(
    producer_id=naturals_64, ends=st.tuples(naturals_64, naturals_64), last_stable_offset=offsets
)
def test_aborted_transactions(
    producer_id: int, ends: tuple[int, int], last_stable_offset: Offset
) -> None:
    transaction = AbortedTransaction(
        producer_id=ProducerId(producer_id),
        first_offset=Offset(min(ends)),
        last_offset=Offset(max(ends)),
        last_stable_offset=last_stable_offset,
    )

    assert decode_aborted_transaction(encode_aborted_transaction(transaction)) == transaction


snapshot_entries = st.builds(
    ProducerSnapshotEntry,
    producer_id=int64s.map(ProducerId),
    producer_epoch=int16s,
    last_sequence=int32s,
    last_offset=int64s.map(Offset),
    offset_delta=int32s,
    timestamp=int64s.map(TimestampMs),
    coordinator_epoch=int32s,
    current_txn_first_offset=int64s.map(Offset),
)


@given(entries=st.lists(snapshot_entries, max_size=20))
def test_producer_snapshots(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_producer_snapshot(encode_producer_snapshot(entries)) == entries


@given(
    base_offset=offsets,
    kind=st.sampled_from(FileKind),
    suffix=st.sampled_from([NO_SUFFIX, DELETED, CLEANED, SWAP]),
)
def test_segment_file_names(base_offset: Offset, kind: FileKind, suffix: str) -> None:
    name = segment_file_name(base_offset, kind, suffix)

    assert parse_segment_file_name(name) == SegmentFileName(
        base_offset=base_offset, kind=kind, suffix=suffix
    )


@given(topic=topics, partition=naturals_32, unique=st.uuids())
@example(topic="-", partition=0, unique=UUID(int=0))
@example(topic="a-delete", partition=0, unique=UUID(int=0))
@example(topic="a.b-delete", partition=0, unique=UUID(int=0))
def test_directory_names(topic: str, partition: int, unique: UUID) -> None:
    live = parse_directory_name(partition_directory_name(topic, partition))
    deleted_name = deleted_directory_name(topic, partition, unique.hex)
    deleted = parse_directory_name(deleted_name)

    check_topic_name(topic)
    assert live == PartitionDirectory(topic=topic, partition=partition)
    assert (deleted.partition, deleted.state) == (partition, DirectoryState.DELETE)
    assert topic.startswith(deleted.topic)
    assert len(deleted_name) <= 255


@given(checkpoint=st.dictionaries(st.tuples(topics, naturals_32), offsets, max_size=10))
def test_offset_checkpoints(checkpoint: dict[tuple[str, int], Offset]) -> None:
    assert parse_offset_checkpoint(render_offset_checkpoint(checkpoint)) == checkpoint


@given(
    epochs=st.sets(naturals_32, max_size=10),
    starts=st.lists(naturals_64, min_size=10, max_size=10),
)
def test_epoch_checkpoints(epochs: set[int], starts: list[int]) -> None:
    entries = [
        EpochEntry(epoch=LeaderEpoch(epoch), start_offset=Offset(start))
        for epoch, start in zip(sorted(epochs), sorted(starts), strict=False)
    ]

    assert parse_epoch_checkpoint(render_epoch_checkpoint(entries)) == entries


@given(topic_id=st.uuids(allow_nil=False))
def test_partition_metadata(topic_id: UUID) -> None:
    assert decode_topic_id(encode_topic_id(topic_id)) == topic_id
    assert parse_partition_metadata(render_partition_metadata(topic_id)) == topic_id


@given(properties=st.dictionaries(unicode_texts, unicode_texts, max_size=5))
@example(properties={"": ""})
@example(properties={" ": " \\"})
def test_properties(properties: dict[str, str]) -> None:
    text = render_properties(properties)

    assert text.isascii()
    assert parse_properties(text) == properties


@given(
    cluster_id=unicode_texts,
    node_id=int32s,
    directory_id=st.none() | st.uuids(),
    written_ms=st.integers(0, 2**42).map(TimestampMs),
)
def test_meta_properties(
    cluster_id: str, node_id: int, directory_id: UUID | None, written_ms: TimestampMs
) -> None:
    meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)

    assert parse_meta_properties(render_meta_properties(meta, written_ms=written_ms)) == meta


@given(broker_epoch=int64s)
def test_clean_shutdown_markers(broker_epoch: int) -> None:
    assert parse_clean_shutdown(render_clean_shutdown(broker_epoch)) == broker_epoch


# --- malformed input ------------------------------------------------------------------------


def decompress_with(codec: Codec) -> Callable[[bytes], object]:
    return lambda data: decompress(codec, data, limit=DECOMPRESSED_MAX)


def sealed(covered: bytes) -> bytes:
    """A producer snapshot whose checksum is right, whatever it covers."""
    good = encode_producer_snapshot([])
    return good[:2] + crc32c(covered).to_bytes(4, "big") + covered


SNAPSHOT = encode_producer_snapshot(
    [
        ProducerSnapshotEntry(
            producer_id=ProducerId(number),
            producer_epoch=0,
            last_sequence=number,
            last_offset=Offset(number),
            offset_delta=0,
            timestamp=TimestampMs(0),
        )
        for number in range(3)
    ]
)
MIXED = b"the quick brown fox " * 50 + bytes(range(256))

DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    **{
        codec.name.lower(): (decompress_with(codec), compress(codec, MIXED))
        for codec in Codec
        if codec is not Codec.NONE
    },
    "zstd frame": (lambda data: walk_zstd_frame(memoryview(data)), compress(Codec.ZSTD, MIXED)),
    "control key": (decode_control_key, encode_control_key(ControlType.COMMIT)),
    "marker value": (lambda data: decode_marker(bytes(4), data), bytes(6)),
    "marker key": (lambda data: decode_marker(data, bytes(6)), bytes(4)),
    "offset entry": (decode_offset_entry, bytes(8)),
    "time entry": (decode_time_entry, bytes(12)),
    "aborted transaction": (decode_aborted_transaction, bytes(34)),
    "producer snapshot": (decode_producer_snapshot, SNAPSHOT),
    "sealed producer snapshot": (lambda data: decode_producer_snapshot(sealed(data)), SNAPSHOT[6:]),
    "text": (decode_text, "0\n1\norders 0 é\n".encode()),
}

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
META = MetaProperties(cluster_id="c=é😀", node_id=1, directory_id=TOPIC_ID)
PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "directory name": (parse_directory_name, deleted_directory_name("a.b", 3, TOPIC_ID.hex)),
    "segment file name": (parse_segment_file_name, "00000000000000000042.log.swap"),
    "offset checkpoint": (parse_offset_checkpoint, "0\n2\norders 0 12\norders 1 99\n"),
    "epoch checkpoint": (parse_epoch_checkpoint, "0\n2\n0 0\n3 120\n"),
    "topic id": (decode_topic_id, encode_topic_id(TOPIC_ID)),
    "partition metadata": (parse_partition_metadata, render_partition_metadata(TOPIC_ID)),
    "properties": (parse_properties, "a\\ b = c\\\n d\\u00e9\n#\n!x\ny:z\\\\\n"),
    "meta properties": (
        parse_meta_properties,
        render_meta_properties(META, written_ms=TimestampMs(0)),
    ),
    "clean shutdown": (parse_clean_shutdown, render_clean_shutdown(5)),
}
# What a parser must not mistake for what it expects, and bytes that mean something in some text.
CHARACTERS = st.sampled_from('\n\r\t\f \\u=:#!-+_.0123456789abcdefxyz{}[]",٣é\u2028\0') | (
    st.characters()
)


def refuses_or_accepts(decode: Callable[[AnyStr], object], data: AnyStr) -> None:
    refusal = None
    try:
        decode(data)
    except FormatError as error:
        refusal = error
    if refusal is not None:
        assert refusal.reason
        # Some decoders are given the input behind a header of up to ten bytes.
        assert 0 <= refusal.position <= len(data) + 10


@pytest.mark.parametrize(("decode", "_valid"), DECODERS.values(), ids=DECODERS)
@given(data=st.data())
def test_random_bytes_are_accepted_or_a_format_error(
    decode: Callable[[bytes], object], _valid: bytes, data: st.DataObject
) -> None:
    refuses_or_accepts(decode, data.draw(st.binary(max_size=100)))


@pytest.mark.parametrize(("decode", "valid"), DECODERS.values(), ids=DECODERS)
@given(data=st.data())
def test_mutated_bytes_are_accepted_or_a_format_error(
    decode: Callable[[bytes], object], valid: bytes, data: st.DataObject
) -> None:
    refuses_or_accepts(decode, data.draw(mutations(valid, st.binary(max_size=4))))


@pytest.mark.parametrize(("parse", "_valid"), PARSERS.values(), ids=PARSERS)
@given(text=st.text(CHARACTERS, max_size=60))
def test_random_text_is_accepted_or_a_format_error(
    parse: Callable[[str], object], _valid: str, text: str
) -> None:
    refuses_or_accepts(parse, text)


@pytest.mark.parametrize(("parse", "valid"), PARSERS.values(), ids=PARSERS)
@given(data=st.data())
def test_mutated_text_is_accepted_or_a_format_error(
    parse: Callable[[str], object], valid: str, data: st.DataObject
) -> None:
    refuses_or_accepts(parse, data.draw(mutations(valid, st.text(CHARACTERS, max_size=4))))


def mutations(valid: AnyStr, replacements: st.SearchStrategy[AnyStr]) -> st.SearchStrategy[AnyStr]:
    """`valid` with one to three short runs replaced, removed or inserted, or cut off."""
    edits = st.lists(
        st.tuples(st.integers(0, len(valid)), st.integers(0, 3), replacements),
        min_size=1,
        max_size=3,
    )

    def apply(plan: list[tuple[int, int, AnyStr]], size: int) -> AnyStr:
        mutated = valid
        for position, removed, inserted in plan:
            mutated = mutated[:position] + inserted + mutated[position + removed :]
        return mutated[:size]

    sizes = st.just(len(valid) + 12) | st.integers(0, len(valid))
    return st.builds(apply, edits, sizes)
