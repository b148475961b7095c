"""Produces that wait for the disk: each is answered once, when its logs are settled or too late."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.cluster_partitions import AppendedEnd
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.pending_produces import PendingProduces
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch

LONG_MS = 3_600_000


class KeptReply:
    """An answer that stays where the test finds it."""

    def __init__(self) -> None:
        self.codes: list[tuple[ErrorCode, str | None]] = []
        self.sent = 0

    def refuse(self, code: ErrorCode, log: PartitionLog | None = None) -> None:
        self.codes.append((code, None if log is None else log.name))

    def send(self) -> None:
        self.sent += 1


class Bench:
    """Logs whose records are durable when the test says so, and a loop turned by hand."""

    def __init__(self, store: Store) -> None:
        self.loop = EventLoop("data")
        self.pending = PendingProduces(self.loop, LogWatch(self.loop), PartitionTable(store))
        self.logs = [store.topic("t").partition(number) for number in (0, 1)]

    def append(self, *numbers: int, timeout_ms: int = LONG_MS) -> KeptReply:
        reply = KeptReply()
        logs = [self.logs[number] for number in numbers]
        for log in logs:
            log.batches.append_batch(client_batch(b"x"), wait=False)
        self.pending.add(reply, [AppendedEnd(log, log.end_offset) for log in logs], timeout_ms)
        return reply

    def sync(self, number: int, error: OSError | None = None) -> None:
        log = self.logs[number]
        if error is None:
            log.sync()
        else:
            under_way = log.syncing.begin()
            assert under_way is not None
            under_way.finish(error)
        self.turn()

    def turn(self) -> None:
        self.loop.call_soon(lambda: None)
        self.loop._turn()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    setup = StoreSetup(
        defaults=TopicConfig(durability="disk"), has_housekeeping=False, free_bytes_min=0
    )
    store = Store([str(tmp_path)], setup)
    store.create_topic("t", partitions=2)
    made = Bench(store)
    yield made
    made.loop._close()
    store.close()


def test_a_reply_is_sent_when_every_log_is_durable(bench: Bench) -> None:
    reply = bench.append(0, 1)

    bench.sync(0)
    after_one = reply.sent
    bench.sync(1)

    assert (after_one, reply.sent) == (0, 1)
    assert reply.codes == []


def test_one_sync_answers_all_that_came_before_it(bench: Bench) -> None:
    replies = [bench.append(0) for _ in range(5)]

    bench.sync(0)

    assert [reply.sent for reply in replies] == [1] * 5


def test_a_log_that_closes_refuses_its_records_and_the_reply_is_sent_once(bench: Bench) -> None:
    reply = bench.append(0, 1)

    bench.logs[0].close()
    bench.turn()
    bench.sync(1)

    assert reply.sent == 1
    assert reply.codes == [(ErrorCode.not_leader_or_follower, bench.logs[0].name)]


def test_a_sync_that_fails_refuses_the_records(bench: Bench) -> None:
    bench.append(0)
    bench.sync(0)  # the first sync also creates directory entries
    reply = bench.append(0)

    bench.sync(0, OSError("the disk is gone"))

    assert reply.sent == 1
    assert reply.codes == [(ErrorCode.kafka_storage_error, bench.logs[0].name)]


def test_a_reply_that_takes_too_long_is_refused_and_not_sent_again(bench: Bench) -> None:
    reply = bench.append(0, timeout_ms=0)

    bench.pending._check_timeouts()
    bench.sync(0)

    assert reply.sent == 1
    assert reply.codes == [(ErrorCode.request_timed_out, None)]
