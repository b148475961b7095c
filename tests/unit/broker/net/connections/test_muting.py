"""A muted connection: its answers leave, and nothing else happens until its time is over."""

import socket
import struct
from collections.abc import Iterator

import pytest

from cordwood.protocol.api_catalog import ApiKey
from fakes.connection_bench import ConnectionBench, frame, ids

COORDINATOR, METADATA = ApiKey.FIND_COORDINATOR, ApiKey.METADATA
PRODUCE, FETCH = ApiKey.PRODUCE, ApiKey.FETCH
KIB = 1024
LONG_S = 3000.0


@pytest.fixture
def bench() -> Iterator[ConnectionBench]:
    made = ConnectionBench()
    yield made
    made.close()


def test_an_answer_leaves_at_once_and_the_next_request_waits(bench: ConnectionBench) -> None:
    bench.send(frame(COORDINATOR, 1))
    bench.connection.answers[0].pause_s = LONG_S
    bench.deferred[0].resolve({})
    told = bench.receive()

    bench.send(frame(METADATA, 2))
    while_muted = bench.receive()
    bench.connection.unmute()

    assert (told, while_muted) == ([1], [])
    assert bench.receive() == [2]


def test_requests_that_have_arrived_already_wait_too(bench: ConnectionBench) -> None:
    bench.send(frame(PRODUCE, 1), frame(COORDINATOR, 2), frame(METADATA, 3))
    bench.connection.mute(LONG_S)
    bench.answer(bench.produces.started[0])
    while_muted = bench.receive()

    bench.connection.unmute()
    bench.turn()
    bench.deferred[0].resolve({})

    assert while_muted == [1]
    assert bench.receive() == [2, 3]


def test_produces_are_not_pipelined_while_muted(bench: ConnectionBench) -> None:
    bench.send(frame(PRODUCE, 1))
    bench.connection.mute(LONG_S)

    bench.send(frame(PRODUCE, 2))
    while_muted = ids(bench.produces.started)
    bench.connection.unmute()
    bench.turn()

    assert while_muted == [1]
    assert ids(bench.produces.started) == [1, 2]


def test_the_end_of_the_time_unmutes(bench: ConnectionBench) -> None:
    bench.connection.mute(0.001)
    bench.send(frame(METADATA, 1))

    answered: list[int] = []
    while not answered:
        answered = bench.receive()

    assert answered == [1]
    assert bench.connection.throttle_ms == 0


def test_the_longer_of_two_pauses_counts(bench: ConnectionBench) -> None:
    bench.connection.mute(LONG_S)
    bench.connection.mute(1.0)

    assert (LONG_S - 60) * 1000 < bench.connection.throttle_ms <= LONG_S * 1000 + 1


def test_a_muted_connection_costs_no_turns_of_the_loop(bench: ConnectionBench) -> None:
    bench.connection.mute(LONG_S)
    bench.send(frame(METADATA, 1), bytes(64 * KIB))
    bench.turn()
    before = bench.control.turns

    bench.control.call_later(0.05, lambda: None)
    bench.control._turn()

    assert bench.control.turns == before + 1  # it waited for the timer


def test_a_large_frame_behind_waits_in_the_socket(bench: ConnectionBench) -> None:
    bench.send(frame(PRODUCE, 1))
    bench.connection.mute(LONG_S)
    bench.answer(bench.produces.started[0])
    large = frame(PRODUCE, 2, 300 * KIB)
    bench.client.setblocking(False)
    sent = bench.client.send(large)
    bench.turn()
    assert ids(bench.produces.started) == [1]

    bench.connection.unmute()
    bench.send(large[sent:])

    assert ids(bench.produces.started) == [1, 2]


def test_a_client_that_closed_its_side_still_gets_its_requests_done(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(PRODUCE, 1), frame(PRODUCE, 2, 10))
    bench.produces.started.clear()
    bench.connection.mute(LONG_S)
    bench.send(frame(METADATA, 3))
    bench.client.shutdown(socket.SHUT_WR)
    bench.turn()

    assert bench.connection.throttle_ms <= 10_001  # it is not waited for longer
    for answer in list(bench.connection.answers):
        bench.answer(answer)
    assert bench.receive() == [1, 2]
    bench.connection.unmute()

    assert bench.receive() == [3]
    bench.turn()
    assert not bench.is_open


def test_a_client_that_ended_before_it_was_muted_is_not_closed_with_requests_left(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(COORDINATOR, 1), frame(METADATA, 2))
    bench.client.shutdown(socket.SHUT_WR)
    bench.turn()
    bench.connection.answers[0].pause_s = LONG_S
    bench.deferred[0].resolve({})
    assert bench.receive() == [1]
    assert bench.is_open

    bench.connection.unmute()

    assert bench.receive() == [2]
    bench.turn()
    assert not bench.is_open


def test_a_muted_client_that_ended_with_nothing_left_is_closed_at_once(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(COORDINATOR, 1))
    bench.client.shutdown(socket.SHUT_WR)
    bench.turn()
    bench.connection.answers[0].pause_s = LONG_S

    bench.deferred[0].resolve({})
    bench.turn()

    assert not bench.is_open


def test_a_muted_client_that_is_gone_is_closed_when_its_time_is_over(
    bench: ConnectionBench,
) -> None:
    bench.connection.mute(LONG_S)
    bench.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bench.client.close()
    bench.turn()
    assert bench.connection.throttle_ms <= 10_001

    bench.connection.unmute()
    bench.turn()

    assert not bench.is_open


def test_closing_a_muted_connection_cancels_its_timer(bench: ConnectionBench) -> None:
    bench.connection.mute(0.001)

    bench.connection.close("")
    bench.turn()

    assert not bench.is_open
    assert bench.registry.count == 0


def test_a_muted_connection_is_idle_for_a_broker_that_stops_and_not_for_the_sweeper(
    bench: ConnectionBench,
) -> None:
    bench.connection.mute(LONG_S)

    assert bench.connection.is_idle
    assert bench.connection.is_owed
    assert bench.registry.muted_count == 1


def test_a_change_of_quotas_unmutes_all(bench: ConnectionBench) -> None:
    bench.connection.mute(LONG_S)
    bench.send(frame(METADATA, 1))

    bench.registry.unmute_all(bench.control)

    assert bench.receive() == [1]
    assert bench.registry.muted_count == 0


def test_a_connection_that_is_muted_moves_to_the_data_loop_afterwards(
    bench: ConnectionBench,
) -> None:
    bench.connection.mute(LONG_S)
    bench.send(frame(FETCH, 1))
    assert bench.connection.loop is bench.control

    bench.connection.unmute()
    bench.turn()

    assert bench.connection.loop is bench.data
    assert ids(bench.fetches.started) == [1]
