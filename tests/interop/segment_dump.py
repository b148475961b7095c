"""What Kafka's DumpLogSegments printed, as values.

Every line must be one that the tool prints for sound files. Anything else, such as a report of
a mismatch, of bytes left at the end of a file or of a bad index, lands in `complaints`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_FILE = re.compile(r"Dumping (.+)")
_HARMLESS = re.compile(r"|Log starting offset: \d+|.+\.index is empty\.")
_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) "
    r"isTransactional: (true|false) isControl: (true|false) deleteHorizonMs: \S+ position: (\d+) "
    r"(CreateTime|LogAppendTime): (-?\d+) size: (\d+) magic: 2 compresscodec: (\w+) crc: (\d+) "
    r"isvalid: true"
)
_RECORD = re.compile(
    r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"sequence: (-?\d+) headerKeys: \[(.*?)\]"
    r"(?: endTxnMarker: (\w+) coordinatorEpoch: (-?\d+))?(.*)"
)
_OFFSET_ENTRY = re.compile(r"offset: (\d+) position: (\d+)")
_TIME_ENTRY = re.compile(r"timestamp: (-?\d+) offset: (\d+)")
_ABORTED = re.compile(
    r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
)
_PRODUCER = re.compile(
    r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: (OptionalLong\.empty|OptionalLong\[\d+\]) lastTimestamp: (-?\d+) "
    r"(?:firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (-?\d+) "
    r"timestamp: (-?\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    position: int
    is_log_append_time: bool
    timestamp_ms: int
    size: int
    codec: str
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record. The tool prints text, so tests write keys and values of plain ASCII."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    sequence: int
    header_keys: tuple[str, ...]
    marker: str | None = None
    coordinator_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedProducer:
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    open_transaction_offset: int | None
    first_sequence: int
    last_sequence: int
    last_offset: int
    timestamp_ms: int


@dataclass(slots=True)
class DumpedFile:
    batches: list[DumpedBatch] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)
    offset_entries: list[tuple[int, int]] = field(default_factory=list)
    time_entries: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    producers: list[DumpedProducer] = field(default_factory=list)


@dataclass(slots=True)
class Dump:
    files: dict[Path, DumpedFile] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def of(self, directory: Path, kind: str) -> list[DumpedFile]:
        """The dumped files of one kind in a partition's directory, oldest first."""
        paths = [p for p in self.files if p.parent == directory and p.suffix == f".{kind}"]
        return [self.files[path] for path in sorted(paths)]

    def records(self, directory: Path) -> list[DumpedRecord]:
        return [record for file in self.of(directory, "log") for record in file.records]

    def batches(self, directory: Path) -> list[DumpedBatch]:
        return [batch for file in self.of(directory, "log") for batch in file.batches]


def parse_dump(printed: str) -> Dump:
    dump = Dump()
    current = DumpedFile()
    for line in printed.splitlines():
        if opened := _FILE.fullmatch(line):
            current = dump.files.setdefault(Path(opened[1]), DumpedFile())
        elif not _take(current, line) and not _HARMLESS.fullmatch(line):
            dump.complaints.append(line)
    return dump


def _take(file: DumpedFile, line: str) -> bool:
    """Add what `line` says to `file`; False when it says nothing a sound file would make it say."""
    if found := _BATCH.fullmatch(line):
        file.batches.append(_batch(found))
    elif found := _RECORD.fullmatch(line):
        file.records.append(_record(found))
    elif found := _OFFSET_ENTRY.fullmatch(line):
        file.offset_entries.append((int(found[1]), int(found[2])))
    elif found := _TIME_ENTRY.fullmatch(line):
        file.time_entries.append((int(found[1]), int(found[2])))
    elif found := _ABORTED.fullmatch(line):
        file.aborted.append((int(found[1]), int(found[2]), int(found[3]), int(found[4])))
    elif found := _PRODUCER.fullmatch(line):
        file.producers.append(_producer(found))
    else:
        return False
    return True


def _batch(found: re.Match[str]) -> DumpedBatch:
    return DumpedBatch(
        base_offset=int(found[1]),
        last_offset=int(found[2]),
        count=int(found[3]),
        base_sequence=int(found[4]),
        last_sequence=int(found[5]),
        producer_id=int(found[6]),
        producer_epoch=int(found[7]),
        leader_epoch=int(found[8]),
        is_transactional=found[9] == "true",
        is_control=found[10] == "true",
        position=int(found[11]),
        is_log_append_time=found[12] == "LogAppendTime",
        timestamp_ms=int(found[13]),
        size=int(found[14]),
        codec=found[15],
        crc=int(found[16]),
    )


def _record(found: re.Match[str]) -> DumpedRecord:
    key_size, value_size, rest = int(found[3]), int(found[4]), found[9].encode()
    key = value = None
    if found[7] is None and key_size >= 0:
        key = rest.removeprefix(b" key: ")[:key_size]
        rest = rest.removeprefix(b" key: ")[key_size:]
    if found[7] is None and value_size >= 0:
        value = rest.removeprefix(b" payload: ")
        rest = b""
        assert len(value) == value_size, found[0]
    assert not rest, found[0]
    return DumpedRecord(
        offset=int(found[1]),
        timestamp_ms=int(found[2]),
        key=key,
        value=value,
        sequence=int(found[5]),
        header_keys=tuple(found[6].split(",")) if found[6] else (),
        marker=found[7],
        coordinator_epoch=None if found[8] is None else int(found[8]),
    )


def _producer(found: re.Match[str]) -> DumpedProducer:
    opened = re.search(r"\d+", found[4])
    assert found[6] is not None, found[0]
    return DumpedProducer(
        producer_id=int(found[1]),
        producer_epoch=int(found[2]),
        coordinator_epoch=int(found[3]),
        open_transaction_offset=None if opened is None else int(opened[0]),
        first_sequence=int(found[6]),
        last_sequence=int(found[7]),
        last_offset=int(found[8]),
        timestamp_ms=int(found[10]),
    )
