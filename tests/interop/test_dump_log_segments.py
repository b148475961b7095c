"""Kafka's DumpLogSegments reads every file Cordwood wrote and has nothing to complain of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import cordwood
from cordwood import Record
from interop.kafka_peer import KafkaFailedError, KafkaTools
from interop.sample_store import CODECS, COORDINATOR_EPOCH, SampleStore, write_sample_store
from interop.segment_dump import Dump, DumpedRecord, parse_dump


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleStore:
    return write_sample_store(tmp_path_factory.mktemp("sample") / "data")


@pytest.fixture(scope="module")
def dump(kafka: KafkaTools, sample: SampleStore) -> Dump:
    printed = kafka.dump_segments(
        *sample.segment_files(), options=("--deep-iteration", "--print-data-log")
    )
    return parse_dump(printed)


def shown(record: DumpedRecord) -> Record:
    """What the tool shows of a record: of headers, only the names."""
    headers = tuple((name, None) for name in record.header_keys)
    return Record(record.value, record.key, headers, record.timestamp_ms, record.offset)


def without_header_values(record: Record) -> Record:
    return record._replace(headers=tuple((name, None) for name, _ in record.headers))


def test_no_file_makes_the_tool_complain(sample: SampleStore, dump: Dump) -> None:
    assert dump.complaints == []
    assert sorted(dump.files) == sample.segment_files()


def test_every_topic_has_several_segments(sample: SampleStore) -> None:
    """Or the tests below would say little."""
    for topic, partition in sample.records:
        assert len(list(sample.directory(topic, partition).glob("*.log"))) > 1, topic


def test_every_record_is_the_one_that_was_appended(sample: SampleStore, dump: Dump) -> None:
    for (topic, partition), expected in sample.records.items():
        found = dump.records(sample.directory(topic, partition))

        data = [shown(record) for record in found if record.marker is None]
        assert data == [without_header_values(record) for record in expected], topic


def test_batches_follow_each_other_without_a_gap(sample: SampleStore, dump: Dump) -> None:
    for directory in sample.directories():
        batches = dump.batches(directory)

        assert all(a.last_offset + 1 == b.base_offset for a, b in pairwise(batches))
        assert all(b.last_offset - b.base_offset + 1 == b.count for b in batches)


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_is_compressed_with_the_codec_it_asks_for(
    sample: SampleStore, dump: Dump, codec: str
) -> None:
    for partition in range(2):
        batches = dump.batches(sample.directory(f"codec-{codec}", partition))

        assert {batch.codec for batch in batches} == {"none" if codec == "uncompressed" else codec}


def test_log_append_time_is_marked_and_shown(sample: SampleStore, dump: Dump) -> None:
    batches = dump.batches(sample.directory("append-time"))

    assert all(batch.is_log_append_time for batch in batches)


def test_producer_ids_and_sequences_are_those_the_producers_sent(
    sample: SampleStore, dump: Dump
) -> None:
    batches = dump.batches(sample.directory("idempotent"))

    assert len(batches) == 60, "each batch was sent twice and stored once"
    for producer_id in (1000, 1001):
        for epoch in (0, 1):
            own = [b for b in batches if (b.producer_id, b.producer_epoch) == (producer_id, epoch)]
            assert own[0].base_sequence == 0
            assert all(a.last_sequence + 1 == b.base_sequence for a, b in pairwise(own))


def test_leader_epochs_in_batches_agree_with_their_checkpoint(
    sample: SampleStore, dump: Dump
) -> None:
    directory = sample.directory("idempotent")
    batches = dump.batches(directory)

    lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()

    starts = [min(b.base_offset for b in batches if b.leader_epoch == epoch) for epoch in range(3)]
    assert lines == ["0", "3", *(f"{epoch} {start}" for epoch, start in enumerate(starts))]
    assert [b.leader_epoch for b in batches] == [n // 20 for n in range(60)]


def test_transaction_markers_and_aborted_transactions_are_what_they_say(
    sample: SampleStore, dump: Dump
) -> None:
    directory = sample.directory("transactions")
    markers = [record for record in dump.records(directory) if record.marker is not None]
    producers = {b.base_offset: b.producer_id for b in dump.batches(directory)}

    aborted = [entry for file in dump.of(directory, "txnindex") for entry in file.aborted]

    assert {record.coordinator_epoch for record in markers} == {COORDINATOR_EPOCH}
    assert [(producer_id, last) for producer_id, _, last, _ in aborted] == [
        (producers[r.offset], r.offset) for r in markers if r.marker == "ABORT"
    ]
    assert all(producers[first] == producer_id for producer_id, first, _, _ in aborted)
    # The other transaction is still open when the first of the two is aborted.
    assert all(
        stable == (first + 1 if producer_id == 1 else last + 1)
        for producer_id, first, last, stable in aborted
    )


def test_index_entries_lead_to_batches(sample: SampleStore, dump: Dump) -> None:
    for directory in sample.directories():
        for log, index in zip(dump.of(directory, "log"), dump.of(directory, "index"), strict=True):
            ends = {batch.last_offset: batch.position for batch in log.batches}

            assert all(ends[offset] == position for offset, position in index.offset_entries)
            assert sorted(index.offset_entries) == index.offset_entries


def test_the_offset_index_is_as_dense_as_the_interval_asks(sample: SampleStore, dump: Dump) -> None:
    """An entry for each batch that begins more than index.interval.bytes behind the last."""
    directory = sample.directory("singly")
    for log, index in zip(dump.of(directory, "log"), dump.of(directory, "index"), strict=True):
        expected, gathered = [], 0
        for batch in log.batches:
            if gathered > 300:
                expected.append((batch.last_offset, batch.position))
                gathered = 0
            gathered += batch.size

        assert index.offset_entries == expected


def test_time_entries_name_the_largest_timestamp_so_far(sample: SampleStore, dump: Dump) -> None:
    for directory in sample.directories():
        for log, index in zip(
            dump.of(directory, "log"), dump.of(directory, "timeindex"), strict=True
        ):
            for timestamp_ms, offset in index.time_entries:
                until = [b for b in log.batches if b.last_offset <= offset]
                assert until[-1].last_offset == offset
                assert max(b.timestamp_ms for b in until) == timestamp_ms
            if log.batches:
                assert index.time_entries[-1][0] == max(b.timestamp_ms for b in log.batches)


def test_a_snapshot_holds_the_last_batch_of_each_producer(sample: SampleStore, dump: Dump) -> None:
    directory = sample.directory("idempotent")
    batches = dump.batches(directory)
    snapshots = sorted(p for p in dump.files if p.parent == directory and p.suffix == ".snapshot")
    assert len(snapshots) > 2

    for path in snapshots:
        last = {b.producer_id: b for b in batches if b.last_offset < int(path.stem)}

        found = {producer.producer_id: producer for producer in dump.files[path].producers}

        assert {
            i: (p.producer_epoch, p.first_sequence, p.last_sequence, p.last_offset, p.timestamp_ms)
            for i, p in found.items()
        } == {
            i: (b.producer_epoch, b.base_sequence, b.last_sequence, b.last_offset, b.timestamp_ms)
            for i, b in last.items()
        }


def test_the_snapshot_of_a_log_with_an_open_transaction_says_where_it_begins(
    sample: SampleStore, dump: Dump
) -> None:
    last = dump.of(sample.directory("transactions"), "snapshot")[-1]

    opened = {p.producer_id: p.open_transaction_offset for p in last.producers}

    assert opened == {1: None, 2: None, 3: sample.records["transactions", 0][-1].offset}


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_checks_the_indexes_against_the_log_and_finds_no_mismatch(
    kafka: KafkaTools, sample: SampleStore, option: str
) -> None:
    indexes = [p for p in sample.segment_files() if p.suffix in (".index", ".timeindex")]

    printed = kafka.dump_segments(*indexes, options=(option,)).splitlines()

    assert [line for line in printed if line and not _is_harmless(line, indexes)] == []


def _is_harmless(line: str, indexes: list[Path]) -> bool:
    return any(
        line in (f"Dumping {index}", f"{index} passed sanity check.", f"{index} is empty.")
        for index in indexes
    )


def test_the_offsets_decoder_reads_the_offsets_a_group_committed(
    kafka: KafkaTools, sample: SampleStore
) -> None:
    log = next(iter(sample.path.glob("__consumer_offsets-*/*.log")))

    printed = kafka.dump_segments(log, options=("--offsets-decoder",))

    lines = list(_payloads(printed))
    assert len(lines) == 2
    assert all('"group":"billing"' in line for line in lines)
    assert '"topic":"singly","partition":0' in lines[0]
    assert '"offset":17' in lines[0]
    assert '"metadata":"note"' in lines[0]
    assert '"offset":5' in lines[1]


def _payloads(printed: str) -> Iterator[str]:
    return (line for line in printed.splitlines() if "payload" in line)


def test_the_tool_shows_every_batch_before_zeros_and_ends_with_an_error(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    """As with a file that Kafka itself has preallocated, while it is open or after a kill."""
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("ahead", config={"preallocate": "true"})
        for number in range(20):
            topic.append(b"%d" % number)
        path = tmp_path / "ahead-0" / "00000000000000000000.log"
        assert path.stat().st_size > topic.partition(0).size_bytes

        with pytest.raises(KafkaFailedError, match="Found record size 0 smaller than") as failed:
            kafka.dump_segments(path)

    assert str(failed.value).count("isvalid: true") == 20
    assert "isvalid: false" not in str(failed.value)
    assert kafka.dump_segments(path).count("isvalid: true") == 20
