"""Clients that misbehave in every way, at once, in one row with those that do not.

Whatever happens on a connection, its own answers come in the order of its requests, each is the
answer to its own request, and a record that was acknowledged is where the answer says. A connection
is in the row only while nothing is left over from before.
"""

import random
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.writing.log_sync import SyncUnderWay
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.security.access.access_event import AccessRequest
from fakes.client_batches import client_batch
from fakes.record_bench import RecordBench
from wire.raw_client import framed, request_header
from wire.record_requests import Wanted, fetch_body, produce_body

CLIENTS = 12
STEPS = 60
PATIENCE_S = 30.0
PRODUCE_VERSION = 9
FETCH_VERSION = 12
ERROR_AT = 4 + 1 + 1 + 2 + 1 + 4  # of the partition, in an answer for a topic of one letter
TOPICS = ("t", "u")
SIZES = (0, 1, 30, 30, 30, 300, 5_000, 16_000, 17_000, 100_000, 140_000, 300_000)


class NoAccess:
    """A client that may do nothing."""

    is_unlimited = False

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return False

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return False

    def operations(self, resource: AclResource, name: str) -> int:
        return 0

    def report(self, request: AccessRequest, *, is_allowed: bool) -> None: ...


class Client:
    """One connection, and what it is owed: (correlation id, API, topic, value) of each request."""

    def __init__(self, end: socket.socket, connection: ClientConnection, producer_id: int) -> None:
        self.end = end
        self.producer_id = producer_id
        self.connection = connection
        self.owed: deque[tuple[int, ApiKey, str, bytes]] = deque()
        self.sequence = 0  # of its producer, in the first topic
        self.unsent = b""
        self.received = b""
        self.is_reading = True
        self.is_over = False  # it has left, or has sent what no broker answers
        self.has_ended = False  # it has closed its side
        self.is_sound = True  # the broker has no reason to close the connection


class Attack:
    """Random clients over one broker."""

    def __init__(self, bench: RecordBench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.clients: list[Client] = []
        self.acknowledged: dict[tuple[str, int], bytes] = {}
        self.number = 0
        self.held: list[Callable[[], None]] = []
        self.answer_count = 0
        self.refusals: set[int] = set()
        self.repeated: set[bytes] = set()  # values that were sent more than once
        self.is_rough = False  # topics are deleted, disks fail

    def connect(self) -> None:
        self.bench.connect(1)
        self.number += 1
        self.clients.append(Client(self.bench.clients[-1], self.bench.connections[-1], self.number))

    # --- what a client does ------------------------------------------------------------------

    def request(self, client: Client, *, size: int = 30, acks: int = -1) -> bytes:
        # Without acks, a log that fails closes the connection.
        topic = self.random.choice(TOPICS) if acks or not self.is_rough else TOPICS[0]
        value = b"%d " % self.number + bytes(size)
        records = bytes(client_batch(value))
        return self.produce(client, topic, value, records, acks=acks)

    def produce(
        self, client: Client, topic: str, value: bytes, records: bytes, *, acks: int = -1
    ) -> bytes:
        self.number += 1
        body = produce_body(PRODUCE_VERSION, [(topic, 0, records)], acks=acks)
        if acks:
            client.owed.append((self.number, ApiKey.PRODUCE, topic, value))
        return framed(request_header(ApiKey.PRODUCE, PRODUCE_VERSION, self.number) + body)

    def numbered(self, client: Client) -> bytes:
        """A batch of an idempotent producer, which may be sent twice."""
        value = b"%d numbered" % self.number
        records = bytes(
            client_batch(
                value,
                producer_id=client.producer_id,
                producer_epoch=0,
                sequence=client.sequence,
            )
        )
        client.sequence += 1
        count = self.random.choice((1, 1, 2, 3))
        topic = TOPICS[0]
        self.repeated.update([value] if count > 1 else [])
        return b"".join(self.produce(client, topic, value, records) for _ in range(count))

    def fetch(self, client: Client) -> bytes:
        self.number += 1
        topic = self.random.choice(TOPICS)
        log = self.bench.store.topic(topic).partition(0)
        wanted = Wanted(topic=topic, offset=log.high_watermark)
        body = fetch_body(FETCH_VERSION, [wanted], max_wait_ms=self.random.choice((0, 5, 50)))
        client.owed.append((self.number, ApiKey.FETCH, topic, b""))
        return framed(request_header(ApiKey.FETCH, FETCH_VERSION, self.number) + body)

    def act(self, client: Client) -> None:
        draw = self.random.random()
        if client.is_over or client.has_ended:
            return
        if draw < 0.40:
            client.unsent += self.request(client)
        elif draw < 0.55:
            client.unsent += self.numbered(client)
        elif draw < 0.62:
            for _ in range(self.random.randrange(2, 9)):
                client.unsent += self.request(client, acks=self.random.choice((-1, -1, 1, 0)))
        elif draw < 0.68:
            client.unsent += self.request(client, size=self.random.choice(SIZES))
        elif draw < 0.74:
            client.unsent += self.request(client, acks=self.random.choice((0, 1)))
        elif draw < 0.80:
            client.unsent += self.fetch(client)
        elif draw < 0.84:
            client.is_reading = not client.is_reading
        elif draw < 0.86:
            client.connection.mute(0.02)
        elif draw < 0.88:
            client.is_sound = False  # without acks, a refusal closes the connection
            self.bench.restrict(self.clients.index(client), NoAccess())
        elif draw < 0.90 and not client.unsent:
            client.end.shutdown(socket.SHUT_WR)
            client.has_ended = True
        elif draw < 0.92:
            client.is_over = True
            client.end.close()
        elif draw < 0.94:
            client.is_sound = False
            client.unsent += self.garbage()
        elif draw < 0.95:
            client.is_over = True
            client.connection.close("")

    def garbage(self) -> bytes:
        # No frame that would wait for its rest: it holds memory, and nothing sweeps here.
        size = self.random.choice((-1, 0, 1, 9, 2**31 - 1, -(2**31), (1 << 20) + 1))
        return struct.pack(">i", size) + self.random.randbytes(self.random.randrange(40))

    def send(self, client: Client) -> None:
        """All, or up to any byte."""
        if client.is_over or client.has_ended or not client.unsent:
            return
        size = len(client.unsent)
        if self.random.random() < 0.3:
            size = self.random.randrange(size + 1)
        try:
            sent = client.end.send(client.unsent[:size])
        except BlockingIOError:
            return
        except ConnectionError:
            client.is_over = True
            return
        client.unsent = client.unsent[sent:]

    def receive(self, client: Client) -> None:
        while client.is_reading and not client.is_over:
            try:
                data = client.end.recv(self.random.choice((1, 7, 1 << 16, 1 << 16, 1 << 16)))
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                assert not client.is_sound or client.has_ended
                client.is_over = True
            client.received += data
            self.take_answers(client)

    def take_answers(self, client: Client) -> None:
        while len(client.received) >= 4:
            (size,) = struct.unpack_from(">i", client.received)
            if len(client.received) < 4 + size:
                return
            answer, client.received = client.received[4 : 4 + size], client.received[4 + size :]
            if client.is_sound or client.owed:
                self.check(client, answer)

    def check(self, client: Client, answer: bytes) -> None:
        number, api, topic, value = client.owed.popleft()
        assert struct.unpack_from(">i", answer)[0] == number
        self.answer_count += 1
        if api is not ApiKey.PRODUCE:
            return
        code, base = struct.unpack_from(">hq", answer, ERROR_AT)
        if code:
            self.refusals.add(code)
            return
        if self.is_rough and topic == TOPICS[1]:
            return
        before = self.acknowledged.get((topic, base))
        assert before is None or (before == value and value in self.repeated)
        self.acknowledged[topic, base] = value

    # --- what the broker does ----------------------------------------------------------------

    def turn(self) -> None:
        self.bench.loop.call_soon(lambda: None)  # so that it does not wait
        self.bench.loop._turn()
        self.check_row()

    def check_row(self) -> None:
        loop = self.bench.loop
        gathered = self.bench.router.gathered
        assert gathered is not None
        for fd, connection in enumerate(gathered.rows.members):
            if connection is not None:
                assert connection.fd == fd
                assert connection.is_in_row
                assert not connection.is_closed
                assert connection.is_idle
                assert not connection._backlog
                assert connection._frame is None
                assert not connection.muted_until_s
                assert fd in loop._ready

    def step(self) -> None:
        rng = self.random
        while len(self.clients) < CLIENTS or rng.random() < 0.05:
            self.connect()
        for client in self.clients:
            if rng.random() < 0.6:
                self.act(client)
            self.send(client)
        if self.is_rough:
            self.be_rough()
        for _ in range(rng.randrange(1, 4)):
            self.turn()
        if self.held and rng.random() < 0.5:
            self.held.pop(0)()
        for client in self.clients:
            self.receive(client)
        self.forget()

    def be_rough(self) -> None:
        """The second topic is created anew, and its disk may fail."""
        draw, store = self.random.random(), self.bench.store
        if draw < 0.1:
            log = store.topic(TOPICS[1]).partition(0)
            self.end_syncs(log)  # a deletion waits for the sync, in this thread
            store.delete_topic(TOPICS[1])
            store.create_topic(TOPICS[1])
        elif draw < 0.15:
            store.topic(TOPICS[1]).partition(0)._holder.fail("its disk failed")

    def end_syncs(self, *logs: PartitionLog) -> None:
        while self.held or any(map(self.bench.syncs.is_under_way, logs)):
            while self.held:
                self.held.pop(0)()
            self.turn()

    def forget(self) -> None:
        """Those who are over go, so that their descriptors are used again."""
        for index in reversed(range(len(self.clients))):
            if self.clients[index].is_over and self.clients[index].connection.is_closed:
                self.clients.pop(index).end.close()
                del self.bench.clients[index], self.bench.connections[index]

    def finish(self) -> None:
        """Send and read everything."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            for client in self.clients:
                client.is_reading = True
                self.send(client)
                self.receive(client)
            while self.held:
                self.held.pop(0)()
            self.turn()
            if all(c.is_over or not c.is_sound or not (c.owed or c.unsent) for c in self.clients):
                return
        raise AssertionError([c.owed[0][:3] for c in self.clients if c.owed and c.is_sound])


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RecordBench]:
    made = RecordBench(tmp_path, {topic: {} for topic in TOPICS}, durability=request.param)
    made.disconnect()
    yield made
    made.close()


def run(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs end when the attack wants it."""
    finish = SyncUnderWay.finish
    monkeypatch.setattr(
        SyncUnderWay,
        "finish",
        lambda self, error: attack.held.append(lambda: finish(self, error)),
    )
    try:
        for _ in range(STEPS):
            attack.step()
        attack.finish()
        store = attack.bench.store
        attack.end_syncs(*(store.topic(topic).partition(0) for topic in TOPICS))
    finally:
        while attack.held:
            attack.held.pop()()


def stored_in(bench: RecordBench, topic: str) -> dict[tuple[str, int], bytes | None]:
    log = bench.store.topic(topic).partition(0)
    log.sync()  # what was acknowledged with acks=1 may still wait for its sync
    return {(topic, record.offset): record.value for record in log.read(0)}


@pytest.mark.parametrize("bench", ["os", "disk"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_no_client_gets_anothers_answer_and_no_record_is_lost(
    bench: RecordBench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = Attack(bench, seed)

    run(attack, monkeypatch)

    stored = stored_in(bench, TOPICS[0]) | stored_in(bench, TOPICS[1])
    assert attack.answer_count
    assert attack.acknowledged.items() <= stored.items()
    assert len(set(stored.values())) == len(stored)
    assert attack.refusals <= {ErrorCode.topic_authorization_failed}


@pytest.mark.parametrize("bench", ["os", "disk"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_fails_or_goes_harms_no_other(
    bench: RecordBench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = Attack(bench, seed)
    attack.is_rough = True

    run(attack, monkeypatch)

    stored = stored_in(bench, TOPICS[0])
    assert attack.acknowledged.items() <= stored.items()
    assert len(set(stored.values())) == len(stored)
    assert attack.refusals <= {
        ErrorCode.topic_authorization_failed,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    }
