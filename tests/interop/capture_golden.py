"""Captures tests/golden/kafka-4.3: files that a real Kafka broker wrote, and what is in them.

    PYTHONPATH=src:tests .venv/bin/python tests/interop/capture_golden.py

Needs what script/interop needs. The broker's clients write a few records to topics of every
kind; what its consumers, its lookups and its dump tool say of them goes into expected.json.
Text in it stands for bytes, one character for each (Latin-1).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cordwood import Record
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools, kafka_version
from interop.kafka_sample import BROKER, GROUPS, KafkaTruth, ask_kafka, write_kafka_topics
from interop.segment_dump import parse_dump

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-4.3"
RECORDS = 20


def main() -> None:
    tools = KafkaTools.find()
    with tempfile.TemporaryDirectory() as root:
        logs = Path(root, "logs")
        broker = KafkaBroker(
            tools,
            log_dirs=[logs],
            work_dir=Path(root, "broker"),
            properties=BROKER,
            jvm_options=QUICK_START,
        )
        with broker:
            places = write_kafka_topics(
                broker.bootstrap_servers, logs, records=RECORDS, has_rolled=False
            )
            truth = ask_kafka(broker.bootstrap_servers, places)
            broker.stop()
        shutil.rmtree(GOLDEN / "data", ignore_errors=True)
        for source in worth_keeping(logs):
            target = GOLDEN / "data" / source.relative_to(logs)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    expected = {
        "kafka": kafka_version(),
        "partitions": [partition(truth, *place) for place in places],
        "groups": groups(),
        **dumped(tools),
    }
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    # One line for each partition and each record, so that a change can be read.
    text = text.replace('{"topic"', '\n{"topic"').replace("[[", "[\n[").replace("],[", "],\n[")
    (GOLDEN / "expected.json").write_text(text + "\n")


def worth_keeping(logs: Path) -> Iterator[Path]:
    """All files but the controller's, those being deleted, and internal partitions without data."""
    for path in sorted(logs.rglob("*")):
        place = path.relative_to(logs)
        is_internal = place.parts[0].startswith("__")
        has_data = any(log.stat().st_size for log in path.parent.glob("*.log"))
        if path.is_dir() or place.parts[0] in ("__cluster_metadata-0", "bootstrap.checkpoint"):
            continue
        if path.suffix != ".deleted" and (has_data or not is_internal):
            yield path


def partition(truth: KafkaTruth, topic: str, number: int) -> dict[str, Any]:
    place = (topic, number)
    return {
        "topic": topic,
        "partition": number,
        "start": truth.starts[place],
        "end": truth.ends[place],
        "times": truth.times[place],
        "records": [rendered(record) for record in truth.records[place]],
    }


def rendered(record: Record) -> list[Any]:
    headers = [[name, text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp_ms, text(record.key), text(record.value), headers]


def text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("latin-1")


def groups() -> dict[str, list[list[Any]]]:
    return {
        group: [[*place, *committed] for place, committed in offsets.items()]
        for group, offsets in GROUPS.items()
    }


def dumped(tools: KafkaTools) -> dict[str, Any]:
    """What the dump tool says of the binary files beside the logs, by their path."""
    data = GOLDEN / "data"
    kinds = (".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(p for p in data.rglob("*") if p.suffix in kinds and p.stat().st_size)
    dump = parse_dump(tools.dump_segments(*files))
    assert not dump.complaints, dump.complaints
    found = {str(path.relative_to(data)): file for path, file in dump.files.items()}
    return {
        "offset_indexes": {p: f.offset_entries for p, f in found.items() if p.endswith(".index")},
        "time_indexes": {p: f.time_entries for p, f in found.items() if p.endswith(".timeindex")},
        "aborted": {p: f.aborted for p, f in found.items() if p.endswith(".txnindex")},
        "producers": {
            p: [
                [
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.open_transaction_offset,
                    producer.first_sequence,
                    producer.last_sequence,
                    producer.last_offset,
                    producer.timestamp_ms,
                ]
                for producer in f.producers
            ]
            for p, f in found.items()
            if p.endswith(".snapshot")
        },
    }


if __name__ == "__main__":
    main()
