"""Consumers of a log that lost files get what is left, and the broker says what is missing."""

import logging
from pathlib import Path

import pytest
from confluent_kafka import Consumer

import cordwood
from wire.raw_client import RawClient
from wire.record_requests import Wanted, batches_of, fetch, only_part

SEGMENT_RECORDS = 5
CONFIGS: dict[str, dict[str, object]] = {
    "delete": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0,
        "internal.segment.bytes": 700,
    },
}


def store_without(directory: Path, kind: str, lost: int) -> tuple[int, int]:
    """A store whose topic lacks one of its segments; the offsets of that one."""
    with cordwood.open(directory) as store:
        config = {"segment.records": SEGMENT_RECORDS, **CONFIGS[kind]}
        topic = store.create_topic("t", config=config)
        for number in range(40):
            topic.append(b"v%d" % number, key=b"k%d" % number)
        if kind == "compacted":
            topic.append(b"newer", key=b"k1")
            topic.partition(0).roll()
            store.compact("t", force=True)
        bases = [segment.base_offset for segment in topic.partition(0).segments()]
    (directory / "t-0" / f"{bases[lost]:020}.log").unlink()
    return bases[lost], bases[lost + 1]


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_fetch_of_lost_records_gets_those_behind_them_and_is_reported(
    tmp_path: Path, kind: str, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    first, behind = store_without(tmp_path / "data", kind, lost)
    with (
        caplog.at_level(logging.ERROR, "cordwood.broker"),
        cordwood.Broker(tmp_path / "data") as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        for _ in range(2):
            part = only_part(fetch(client, [Wanted(topic="t", offset=first)]))
            assert part.error_code == 0
            assert batches_of(part)[0][0] == behind
        fetch(client, [Wanted(topic="t", offset=behind)])

        lines = [record.getMessage() for record in caplog.records]
        assert [line for line in lines if "are lost" in line] == [
            f"t-0: offsets [{first}, {behind}) are lost, and consumers get what follows: "
            "log files are missing or were cut; `cordwood verify` names them"
        ]
        assert broker._running().fetches.lost_records.fetch_count == 2


@pytest.mark.parametrize("kind", CONFIGS)
def test_nothing_is_reported_of_a_whole_log(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "data"
    with cordwood.open(directory) as store:
        topic = store.create_topic("t", config={"segment.records": 5, **CONFIGS[kind]})
        for number in range(40):
            topic.append(b"v%d" % number, key=b"k%d" % (number % 3))
        if kind == "compacted":
            store.compact("t", force=True)
    with cordwood.Broker(directory) as broker, RawClient(broker.bootstrap_servers) as client:
        for offset in range(40):
            assert only_part(fetch(client, [Wanted(topic="t", offset=offset)])).error_code == 0

        assert broker._running().fetches.lost_records.fetch_count == 0


def test_a_consumer_reads_on_behind_lost_records(tmp_path: Path) -> None:
    first, behind = store_without(tmp_path / "data", "delete", 3)
    with cordwood.Broker(tmp_path / "data") as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        offsets: list[int | None] = []
        while len(offsets) < 40 - SEGMENT_RECORDS:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            offsets.append(message.offset())
        consumer.close()

    assert offsets == [*range(first), *range(behind, 40)]
