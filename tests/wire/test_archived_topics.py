"""Records that only an archive has are consumed like any others."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch
from wire.judges import JUDGES, Judge
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch, only_part, produce

VALUES = [b"%d" % number for number in range(100)]
BATCH = bytes(client_batch(b"new"))
LONG_MS = 60_000


@pytest.fixture
def archived(tmp_path: Path) -> Iterator[cordwood.Broker]:
    """A broker whose topic "t" has its first 90 records in the archive only."""
    with cordwood.Broker(tmp_path / "data", config={"log.dir.free.bytes.min": 0}) as broker:
        topic = broker.create_topic(
            "t",
            config={
                "archive.url": f"file://{tmp_path / 'archive'}",
                "segment.records": 10,
                "retention.ms": -1,
                "local.retention.bytes": 0,
                "file.delete.delay.ms": 0,
            },
        )
        for value in VALUES:
            topic.append(value)
        assert [status.last_error for status in broker.store.archive_now()] == [None]
        broker.store.maintain()
        log = topic.partition(0)
        assert (log.start_offset, log.state.start) == (0, 90)
        yield broker


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_every_client_reads_from_the_archive_into_the_live_segments(
    archived: cordwood.Broker, judge: Judge
) -> None:
    got = judge.consume(archived.bootstrap_servers, "t", 100)

    assert [(record.offset, record.value) for record in got] == list(enumerate(VALUES))


@pytest.mark.parametrize("max_wait_ms", [0, LONG_MS])
def test_a_fetch_brings_archived_records_whether_it_wants_to_wait_or_not(
    archived: cordwood.Broker, max_wait_ms: int
) -> None:
    with RawClient(archived.bootstrap_servers) as client:
        part = only_part(fetch(client, [Wanted(topic="t", offset=15)], max_wait_ms=max_wait_ms))

    assert part.records
    assert part.log_start_offset == 0
    assert part.high_watermark == 100


def test_what_is_archived_and_what_is_live_come_in_one_answer(archived: cordwood.Broker) -> None:
    archived.create_topic("live").append(b"x")
    wanted = [Wanted(topic="live"), Wanted(topic="t", offset=3)]
    with RawClient(archived.bootstrap_servers) as client:
        response = fetch(client, wanted, max_wait_ms=LONG_MS)

    assert all(topic.partitions[0].records for topic in response.responses)


def test_a_restarted_broker_reads_its_archive(archived: cordwood.Broker) -> None:
    archived.restart()

    with RawClient(archived.bootstrap_servers) as client:
        part = only_part(fetch(client, [Wanted(topic="t")], max_wait_ms=LONG_MS))

    assert part.records


def test_while_the_archive_is_gone_old_records_are_refused_and_new_ones_go_on(
    archived: cordwood.Broker, tmp_path: Path
) -> None:
    directory = Path(archived.data_dir)
    archived.restart()
    shutil.rmtree(directory / "remote-log-index-cache", ignore_errors=True)
    (tmp_path / "archive").rename(tmp_path / "elsewhere")

    with RawClient(archived.bootstrap_servers) as client:
        old = fetch(client, [Wanted(topic="t", offset=5)], max_wait_ms=LONG_MS)
        produced = produce(client, "t", BATCH)
        new = only_part(fetch(client, [Wanted(topic="t", offset=95)]))
    (tmp_path / "elsewhere").rename(tmp_path / "archive")

    ((refused,),) = [topic.partitions for topic in old.responses]
    assert ErrorCode(refused.error_code) is not ErrorCode.none
    assert (produced.error_code, produced.base_offset) == (0, 100)
    assert new.high_watermark == 101
    with RawClient(archived.bootstrap_servers) as client:
        again = only_part(fetch(client, [Wanted(topic="t", offset=5)], max_wait_ms=LONG_MS))
    assert again.records
