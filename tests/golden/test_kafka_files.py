"""Files that Apache Kafka 4.3 wrote, read without Kafka: see PROVENANCE.md beside them.

Everything expected here comes from expected.json, which Kafka's own clients and tools filled.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood import PartitionLog, ReadOnlyStore, Record
from cordwood.format.batch_header import decode_batch_header, stamp
from cordwood.format.index_entry import (
    ABORTED_ENTRY_SIZE,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    decode_aborted_transaction,
    decode_offset_entry,
    decode_time_entry,
    encode_aborted_transaction,
)
from cordwood.format.small_files.checkpoint_text import (
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    render_epoch_checkpoint,
    render_offset_checkpoint,
)
from cordwood.format.small_files.meta_properties import parse_clean_shutdown, parse_meta_properties
from cordwood.format.small_files.partition_metadata import (
    parse_partition_metadata,
    render_partition_metadata,
)
from cordwood.format.small_files.producer_snapshot import (
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from cordwood.quantities import NO_LEADER_EPOCH, Offset

HERE = Path(__file__).parent / "kafka-4.3"
DATA = HERE / "data"
EXPECTED: dict[str, Any] = json.loads((HERE / "expected.json").read_text())
# As the broker was configured.
KEPT = {"retention.ms": "-1", "index.interval.bytes": "300"}
PARTITIONS: list[dict[str, Any]] = EXPECTED["partitions"]

each_partition = pytest.mark.parametrize(
    "expected", PARTITIONS, ids=[f"{p['topic']}-{p['partition']}" for p in PARTITIONS]
)


def content(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def record(row: list[Any]) -> Record:
    offset, timestamp_ms, key, value, headers = row
    named = tuple((name, content(header)) for name, header in headers)
    return Record(content(value), content(key), named, timestamp_ms, offset)


def plain(read: Record) -> Record:
    return read._replace(headers=tuple(read.headers))


def files(suffix: str) -> list[str]:
    return sorted(str(p.relative_to(DATA)) for p in DATA.rglob(f"*{suffix}"))


@pytest.fixture(scope="module")
def store() -> Iterator[ReadOnlyStore]:
    with cordwood.open(DATA, read_only=True) as opened:
        yield opened


def test_all_topics_are_found(store: ReadOnlyStore) -> None:
    topics = {partition["topic"] for partition in PARTITIONS}

    assert store.topics() == sorted(topics)


@each_partition
def test_every_record_is_the_one_kafka_has(store: ReadOnlyStore, expected: dict[str, Any]) -> None:
    log = store.topic(expected["topic"]).partition(expected["partition"])

    assert [plain(read) for read in log.read()] == [record(row) for row in expected["records"]]
    assert (log.start_offset, log.high_watermark) == (expected["start"], expected["end"])


@each_partition
def test_a_scan_has_the_same_records(store: ReadOnlyStore, expected: dict[str, Any]) -> None:
    log = store.topic(expected["topic"]).partition(expected["partition"])

    rows = [row for batch in log.scan() for row in batch.to_pylist()]

    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (offset, content(key), content(value)) for offset, _, key, value, _ in expected["records"]
    ]


@each_partition
def test_times_are_found_where_kafka_finds_them(
    store: ReadOnlyStore, expected: dict[str, Any]
) -> None:
    log = store.topic(expected["topic"]).partition(expected["partition"])

    found = [
        [timestamp_ms, log.offset_for_time(timestamp_ms)] for timestamp_ms, _ in expected["times"]
    ]

    assert found == expected["times"]


def test_groups_have_the_offsets_they_committed(store: ReadOnlyStore) -> None:
    found = {
        group: [
            [*place, at.offset, at.metadata] for place, at in store.group(group).details().items()
        ]
        for group in store.groups()
    }

    assert {group: sorted(rows) for group, rows in found.items()} == {
        group: sorted(rows) for group, rows in EXPECTED["groups"].items()
    }


@pytest.mark.parametrize("name", EXPECTED["offset_indexes"])
def test_offset_index_entries_are_those_kafka_prints(name: str) -> None:
    data, base = (DATA / name).read_bytes(), int(Path(name).stem)
    entries = [decode_offset_entry(data, p) for p in range(0, len(data), OFFSET_ENTRY_SIZE)]

    found = [[base + entry.relative_offset, entry.position] for entry in entries]

    assert found == EXPECTED["offset_indexes"][name]


@pytest.mark.parametrize("name", EXPECTED["time_indexes"])
def test_time_index_entries_are_those_kafka_prints(name: str) -> None:
    data, base = (DATA / name).read_bytes(), int(Path(name).stem)
    entries = [decode_time_entry(data, p) for p in range(0, len(data), TIME_ENTRY_SIZE)]

    found = [[entry.timestamp, base + entry.relative_offset] for entry in entries]

    assert found == EXPECTED["time_indexes"][name]


@pytest.mark.parametrize("name", EXPECTED["aborted"])
def test_aborted_transactions_are_those_kafka_prints(name: str) -> None:
    data = (DATA / name).read_bytes()

    entries = [decode_aborted_transaction(data, p) for p in range(0, len(data), ABORTED_ENTRY_SIZE)]

    assert [
        [e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset] for e in entries
    ] == EXPECTED["aborted"][name]
    assert b"".join(encode_aborted_transaction(entry) for entry in entries) == data


def test_committed_records_of_a_kafka_directory_are_those_outside_of_aborted_transactions() -> None:
    spans = [
        range(first, last + 1)
        for rows in EXPECTED["aborted"].values()
        for _, first, last, _ in rows
    ]
    with cordwood.open(DATA, read_only=True) as store:
        log = store.topic("transactions").partition(0)
        stable = log.last_stable_offset

        committed = [record.offset for record in log.read(isolation="read_committed")]
        everything = [record.offset for record in log.read()]

    assert spans
    assert committed == [
        offset
        for offset in everything
        if offset < stable and not any(offset in span for span in spans)
    ]
    assert committed


@pytest.mark.parametrize("name", EXPECTED["producers"])
def test_producer_snapshots_are_what_kafka_prints(name: str) -> None:
    data = (DATA / name).read_bytes()

    entries = decode_producer_snapshot(data)

    assert [
        [
            e.producer_id,
            e.producer_epoch,
            e.coordinator_epoch,
            None if e.current_txn_first_offset < 0 else e.current_txn_first_offset,
            e.last_sequence - e.offset_delta,
            e.last_sequence,
            e.last_offset,
            e.timestamp,
        ]
        for e in entries
    ] == EXPECTED["producers"][name]
    assert encode_producer_snapshot(entries) == data


@pytest.mark.parametrize("name", files("leader-epoch-checkpoint"))
def test_leader_epochs_are_rendered_as_kafka_does(name: str) -> None:
    text = (DATA / name).read_text()

    assert render_epoch_checkpoint(parse_epoch_checkpoint(text)) == text


@pytest.mark.parametrize("name", files("partition.metadata"))
def test_partition_metadata_is_rendered_as_kafka_does(name: str) -> None:
    text = (DATA / name).read_text()

    assert render_partition_metadata(parse_partition_metadata(text)) == text


@pytest.mark.parametrize("name", files("-offset-checkpoint"))
def test_offset_checkpoints_hold_the_same_lines_in_any_order(name: str) -> None:
    text = (DATA / name).read_text()

    rendered = render_offset_checkpoint(parse_offset_checkpoint(text))

    assert sorted(rendered.splitlines()) == sorted(text.splitlines())


def test_checkpoints_agree_with_the_logs() -> None:
    recovery = parse_offset_checkpoint((DATA / "recovery-point-offset-checkpoint").read_text())
    marks = parse_offset_checkpoint((DATA / "replication-offset-checkpoint").read_text())
    starts = parse_offset_checkpoint((DATA / "log-start-offset-checkpoint").read_text())

    for partition in PARTITIONS:
        place = (partition["topic"], partition["partition"])
        assert recovery[place] == marks[place] == partition["end"]
        assert starts.get(place, 0) == partition["start"]


def test_the_directory_says_whose_it_is_and_that_it_was_stopped_in_order() -> None:
    meta = parse_meta_properties((DATA / "meta.properties").read_text())

    assert meta.node_id == 1
    assert len(meta.cluster_id or "") == 22
    assert meta.directory_id is not None
    assert parse_clean_shutdown((DATA / ".kafka_cleanshutdown").read_text()) is not None


# --- writing on ------------------------------------------------------------------------------


def test_the_directory_can_be_written_on(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")

    with cordwood.open(tmp_path / "data") as store:
        assert store.damages() == []
        for expected in PARTITIONS:
            topic, number = store.topic(expected["topic"]), expected["partition"]
            where = topic.append(b"ours", key=b"key", partition=number)
            read = [plain(each) for each in topic.partition(number).read()]
            assert where.offset == expected["end"]
            assert read[:-1] == [record(row) for row in expected["records"]]
            assert read[-1].value == b"ours"


def test_nothing_is_deleted_whose_retention_is_not_known(tmp_path: Path) -> None:
    """The records are old; how long Kafka was to keep them is not written in its files."""
    shutil.copytree(DATA, tmp_path / "data")

    with cordwood.open(tmp_path / "data") as store:
        store.maintain()

        for expected in PARTITIONS:
            log = store.topic(expected["topic"]).partition(expected["partition"])
            assert [plain(each) for each in log.read()] == [
                record(row) for row in expected["records"]
            ]


@pytest.mark.parametrize(
    "topic", ["plain", "idempotent", "client-gzip", "client-snappy", "client-lz4", "client-zstd"]
)
def test_the_same_batches_make_the_same_files(tmp_path: Path, topic: str) -> None:
    """Byte for byte: the log, both indexes, the producer snapshots, the leader epochs."""
    theirs = DATA / f"{topic}-0"

    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic(topic, config=KEPT).partition(0)
        assert isinstance(log, PartitionLog)
        for batch in batches_of(theirs / "00000000000000000000.log"):
            log.batches.append_batch(batch)

    ours = tmp_path / "data" / f"{topic}-0"
    for path in theirs.iterdir():
        if path.name != "partition.metadata":
            assert (ours / path.name).read_bytes() == path.read_bytes(), path.name


def batches_of(path: Path) -> Iterator[bytearray]:
    """The batches of a log as their producers sent them: at offset 0, of no leader."""
    data = path.read_bytes()
    position = 0
    while position < len(data):
        header = decode_batch_header(data, position)
        batch = bytearray(data[position : position + header.size])
        stamp(batch, 0, Offset(0), NO_LEADER_EPOCH)
        yield batch
        position += header.size
