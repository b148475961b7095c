"""Counting connections, which every client that connects causes."""

import time
from collections.abc import Iterator

import pytest

from cordwood.broker.net.connections.connection_registry import ConnectionRegistry
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.session import Session
from cordwood.protocol.api_catalog import ApiKey
from fakes.connection_bench import ConnectionBench, frame
from fakes.sessions import LOCAL_SESSION


class Idle:
    """A connection that does nothing."""

    is_idle, is_owed, is_receiving = True, False, False

    def __init__(self, loop: EventLoop, session: Session = LOCAL_SESSION) -> None:
        self.loop = loop
        self.session = session
        self.last_active_s = self.muted_until_s = 0.0

    def unmute(self) -> None: ...

    def is_too_slow(self, now_s: float) -> bool:
        return False

    def close(self, reason: str) -> None: ...


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop("one")
    yield made
    made._close()


def counts(registry: ConnectionRegistry) -> tuple[int, int, int]:
    return (
        registry.count,
        registry.count_from(LOCAL_SESSION.client_host),
        registry.count_on(LOCAL_SESSION.listener.name),
    )


def test_connections_are_counted_once_and_forgotten_once(loop: EventLoop) -> None:
    registry = ConnectionRegistry([loop])
    one, other = Idle(loop), Idle(loop)
    for connection in (one, one, other):
        registry.add(connection)
    assert counts(registry) == (2, 2, 2)
    for connection in (one, one, other):
        registry.remove(connection)
    assert counts(registry) == (0, 0, 0)
    assert not registry._by_host


def test_a_connection_is_counted_while_it_moves_to_another_loop() -> None:
    bench = ConnectionBench()
    bench.client.send(frame(ApiKey.PRODUCE, 1))
    bench.control._turn()
    assert bench.connection.loop is bench.data
    assert counts(bench.registry)[0] == 1
    bench.turn()
    assert counts(bench.registry)[0] == 1
    bench.close()
    assert counts(bench.registry)[0] == 0


def test_counting_does_not_take_longer_with_many_connections(loop: EventLoop) -> None:
    registry = ConnectionRegistry([loop])
    for _ in range(20_000):
        registry.add(Idle(loop))
    began_s = time.thread_time()
    for _ in range(64):  # that are accepted in one turn
        counts(registry)
    assert time.thread_time() - began_s < 0.05  # it took a second
