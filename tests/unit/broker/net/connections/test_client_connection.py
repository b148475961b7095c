"""One connection: what is started when, in which order answers leave, what is held meanwhile."""

import contextlib
import socket
import struct
import weakref
from collections.abc import Iterator

import pytest

from cordwood.broker.net.memory.memory_budget import FrameMemory
from cordwood.protocol.api_catalog import ApiKey
from fakes.connection_bench import ConnectionBench, frame, ids
from fakes.without_collector import without_collector

COORDINATOR, METADATA = ApiKey.FIND_COORDINATOR, ApiKey.METADATA
PRODUCE, FETCH = ApiKey.PRODUCE, ApiKey.FETCH
KIB = 1024
LARGE = 300 * KIB  # more than fits the loop's receive buffer


@pytest.fixture
def bench() -> Iterator[ConnectionBench]:
    made = ConnectionBench()
    yield made
    made.close()


# --- order --------------------------------------------------------------------------------------


def test_a_request_is_not_started_before_the_one_before_it_is_answered(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(COORDINATOR, 1), frame(COORDINATOR, 2), frame(METADATA, 3))
    assert len(bench.deferred) == 1

    bench.deferred[0].resolve({})
    first = bench.receive()
    assert len(bench.deferred) == 2
    bench.deferred[1].resolve({})

    assert first == [1]
    assert bench.receive() == [2, 3]


def test_produces_are_started_while_others_wait_and_answered_in_their_order(
    bench: ConnectionBench,
) -> None:
    bench.send(*(frame(PRODUCE, number) for number in range(4)))
    assert ids(bench.produces.started) == [0, 1, 2, 3]

    for number in (2, 1):
        bench.answer(bench.produces.started[number])
    assert bench.receive() == []
    bench.answer(bench.produces.started[0])

    assert bench.receive() == [0, 1, 2]


def test_something_else_behind_a_produce_waits_for_it(bench: ConnectionBench) -> None:
    bench.send(frame(PRODUCE, 1), frame(FETCH, 2), frame(PRODUCE, 3))
    assert bench.fetches.started == []

    bench.answer(bench.produces.started[0])
    assert ids(bench.produces.started) == [1]
    bench.answer(bench.fetches.started[0])

    assert ids(bench.produces.started) == [1, 3]
    assert bench.receive() == [1, 2]


def test_only_so_many_produces_are_under_way_at_once(bench: ConnectionBench) -> None:
    bench.send(*(frame(PRODUCE, number) for number in range(100)))
    started = len(bench.produces.started)

    for answer in list(bench.produces.started):
        bench.answer(answer)

    assert started == 64
    assert ids(bench.produces.started) == list(range(100))


def test_a_produce_that_wants_no_answer_leaves_the_others_theirs(bench: ConnectionBench) -> None:
    bench.send(frame(PRODUCE, 1), frame(PRODUCE, 2), frame(PRODUCE, 3))
    first, second, third = bench.produces.started

    second.give(())
    bench.answer(third)
    assert bench.receive() == []
    bench.answer(first)

    assert bench.receive() == [1, 3]


def test_after_the_first_produce_or_fetch_the_connection_lives_in_the_data_loop(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(METADATA, 1))
    before = bench.connection.loop

    bench.send(frame(FETCH, 2), frame(METADATA, 3))
    bench.answer(bench.fetches.started[0])

    assert before is bench.control
    assert bench.connection.loop is bench.data
    assert bench.receive() == [1, 2, 3]
    assert bench.registry.in_loop(bench.data) == [bench.connection]
    assert bench.registry.in_loop(bench.control) == []


def test_a_connection_that_moved_is_not_continued_in_its_old_loop(bench: ConnectionBench) -> None:
    later = frame(FETCH, 2)
    bench.send(frame(COORDINATOR, 1), later[:8])
    bench.deferred[0].resolve({})
    bench.control._turn()  # sends the answer; the rest of the backlog is due in the next turn
    bench.client.send(later[8:])
    bench.control._turn()  # the socket comes first: the connection moves with the whole request

    assert bench.connection.loop is bench.data
    assert bench.fetches.started == []  # the data loop has not turned yet
    bench.turn()

    assert ids(bench.fetches.started) == [2]
    assert bench.is_open


def test_a_connection_that_stopped_listening_moves_to_the_data_loop_and_listens_again(
    bench: ConnectionBench,
) -> None:
    pipelined = b"".join([frame(FETCH, 2), frame(METADATA, 3) * 15_000])
    bench.send(frame(COORDINATOR, 1), pipelined)

    bench.deferred[0].resolve({})
    bench.turn()
    bench.answer(bench.fetches.started[0])

    assert bench.connection.loop is bench.data
    assert bench.receive() == [1, 2, *[3] * 15_000]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 13, 17])
def test_frames_may_be_cut_anywhere(bench: ConnectionBench, cut: int) -> None:
    stream = b"".join(
        [frame(METADATA, 1), frame(PRODUCE, 2, 50), frame(PRODUCE, 3, LARGE), frame(PRODUCE, 4)]
    )

    for start in range(0, 100, cut):
        bench.send(stream[start : min(start + cut, 100)])
    bench.send(stream[100:])

    assert ids(bench.produces.started) == [2, 3, 4]


def test_a_frame_of_any_size_whose_last_byte_comes_late_is_handled() -> None:
    """Around half the receive buffer, where frames get a buffer of their own."""
    half = 128 * KIB
    header_size = len(frame(PRODUCE, 1))
    for size in range(half - 6, half + 6):
        with contextlib.closing(ConnectionBench()) as bench:
            whole = frame(PRODUCE, 1, size - header_size)
            assert len(whole) == size
            bench.send(whole[:-1])
            bench.send(whole[-1:])

            assert ids(bench.produces.started) == [1], size


# --- clients that do not read -------------------------------------------------------------------


def test_while_an_answer_is_not_read_no_further_request_is_started(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(FETCH, 1), frame(FETCH, 2), frame(METADATA, 3))

    bench.answer(bench.fetches.started[0], size=500 * KIB)
    assert ids(bench.fetches.started) == [1]
    read = bench.receive()

    assert read == [1]
    assert ids(bench.fetches.started) == [1, 2]


def test_what_a_client_sends_without_reading_stays_in_its_socket(bench: ConnectionBench) -> None:
    bench.send(frame(FETCH, 0))
    bench.answer(bench.fetches.started[0], size=500 * KIB)

    def send_without_end() -> None:
        for _ in range(2000):
            bench.client.send(frame(METADATA, 1) * 1000)
            bench.turn()

    with pytest.raises(BlockingIOError):
        send_without_end()

    assert len(bench.connection._backlog) < len(bench.data.scratch)
    assert bench.is_open


def taken_memory(bench: ConnectionBench) -> FrameMemory:
    """All memory, held by the frame of another connection."""
    other = FrameMemory(1 << 20)
    assert bench.memory.take(other, other.size, lambda: None)
    return other


# --- large frames and their memory --------------------------------------------------------------


def test_a_large_frame_holds_memory_as_it_arrives_until_it_was_handled() -> None:
    bench = ConnectionBench(memory=16 << 20, frame_bytes_max=16 << 20)
    size = 12 << 20
    large = frame(PRODUCE, 1, size)
    held, sent = [], 0

    with contextlib.closing(bench):
        for arrived in (1000, 200 * KIB, 1 << 20, 8 << 20):
            bench.send(large[sent:arrived])
            sent = arrived
            held.append(bench.memory.lent)
        was_receiving = bench.connection.is_receiving
        bench.send(large[8 << 20 :])

        assert held == [256 * KIB, 256 * KIB, 1 << 20, 8 << 20]
        assert was_receiving
        assert ids(bench.produces.started) == [1]
        assert bench.memory.lent == 0
        assert not bench.connection.is_receiving


def test_a_frame_that_hardly_arrives_is_too_slow_once_others_wait_for_memory(
    bench: ConnectionBench,
) -> None:
    now_s = bench.control.now_s()
    other = FrameMemory(1 << 20)
    large = frame(PRODUCE, 1, LARGE)
    bench.send(large[: 10 * KIB])
    alone = bench.connection.is_too_slow(now_s + 10)
    assert not bench.memory.take(other, 1 << 20, lambda: None)

    crawling = bench.connection.is_too_slow(now_s + 20)
    bench.memory.give_back(other)

    assert (alone, crawling) == (False, True)
    assert not bench.connection.is_too_slow(now_s + 30)


def test_a_large_frame_of_an_ordinary_size_is_received(bench: ConnectionBench) -> None:
    large = frame(PRODUCE, 1, LARGE)

    bench.send(large[:1000])
    was_receiving = bench.connection.is_receiving
    bench.send(large[1000:])

    assert was_receiving
    assert ids(bench.produces.started) == [1]
    assert bench.memory.lent == 0
    assert not bench.connection.is_receiving


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_large_request_holds_memory_until_it_was_answered(
    bench: ConnectionBench, is_answered: bool
) -> None:
    request = frame(COORDINATOR, 1)[4:] + bytes(LARGE)  # bytes behind a body are passed over
    bench.send(struct.pack(">i", len(request)) + request)
    held = bench.memory.lent

    if is_answered:
        bench.deferred[0].resolve({})
    else:
        bench.connection.close("")
    bench.turn()

    assert held == len(request)
    assert bench.memory.lent == 0


def test_a_large_produce_that_takes_long_holds_memory_until_its_own_answer(
    bench: ConnectionBench,
) -> None:
    large = frame(PRODUCE, 2, LARGE)
    bench.send(frame(PRODUCE, 1))
    bench.produces.are_alone = True
    bench.send(large)

    bench.answer(bench.produces.started[0])
    held = bench.memory.lent
    bench.answer(bench.produces.started[1])

    assert held == len(large) - 4
    assert bench.memory.lent == 0
    assert bench.receive() == [1, 2]


def test_behind_a_request_that_waits_a_large_frame_holds_no_memory(
    bench: ConnectionBench,
) -> None:
    large = frame(PRODUCE, 2, LARGE)
    bench.send(frame(FETCH, 1), large[: 100 * KIB])
    held = bench.memory.lent

    bench.answer(bench.fetches.started[0])
    bench.send(large[100 * KIB :])

    assert held == 0
    assert ids(bench.produces.started) == [2]


def test_while_there_is_no_memory_nothing_is_read_and_then_it_goes_on(
    bench: ConnectionBench,
) -> None:
    other = taken_memory(bench)
    large = frame(PRODUCE, 1, LARGE)
    bench.send(large[: 10 * KIB])
    assert not bench.connection.is_receiving  # it cannot be said to be slow
    bench.connection.last_active_s = waited_since_s = -1.0

    bench.memory.give_back(other)
    bench.turn()
    active_s = bench.connection.last_active_s
    bench.send(large[10 * KIB :])

    assert active_s > waited_since_s  # from here on it may be
    assert ids(bench.produces.started) == [1]
    assert bench.memory.lent == 0


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_connection_that_ends_half_way_gives_its_memory_back(
    bench: ConnectionBench, is_granted: bool
) -> None:
    other = FrameMemory(1) if is_granted else taken_memory(bench)
    bench.send(frame(PRODUCE, 1, LARGE)[:1000])

    bench.connection.close("")
    bench.memory.give_back(other)
    bench.turn()

    assert bench.memory.lent == 0


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, (1 << 20) + 1, 2**31 - 1])
def test_a_size_outside_the_limits_closes_the_connection(bench: ConnectionBench, size: int) -> None:
    bench.send(struct.pack(">i", size))

    assert not bench.is_open


def test_what_was_asked_before_the_nonsense_is_answered_first(bench: ConnectionBench) -> None:
    bench.send(frame(PRODUCE, 1), struct.pack(">ihhih", 10, 999, 0, 2, -1))
    assert bench.is_open

    bench.answer(bench.produces.started[0])

    assert bench.receive() == [1]
    assert not bench.is_open


@pytest.mark.parametrize("size", [0, LARGE])
def test_a_handler_that_fails_costs_the_connection_and_is_logged(
    bench: ConnectionBench, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    bench.produces.error = RuntimeError("on purpose")

    bench.send(frame(PRODUCE, 1, size))

    assert not bench.is_open
    assert bench.memory.lent == 0
    assert "a request failed" in caplog.text


def leave(bench: ConnectionBench, how: str) -> None:
    if how == "half-closed":
        bench.client.shutdown(socket.SHUT_WR)
    else:
        bench.client.close()
    bench.turn()


@pytest.mark.parametrize("how", ["half-closed", "closed"])
def test_handlers_are_told_of_clients_that_leave(bench: ConnectionBench, how: str) -> None:
    bench.send(frame(PRODUCE, 1), frame(PRODUCE, 2))

    leave(bench, how)
    told = ids(bench.produces.left)
    for answer in bench.produces.started:
        bench.answer(answer)

    assert told == [1, 2]
    assert not bench.is_open
    assert bench.registry.count == 0


@pytest.mark.parametrize("how", ["half-closed", "closed"])
@pytest.mark.parametrize("count", [2, 65, 200])
def test_every_produce_that_arrived_whole_is_carried_out_when_the_client_leaves(
    bench: ConnectionBench, count: int, how: str
) -> None:
    sent = [frame(PRODUCE, number) for number in range(count)]
    rest = b"".join([*sent, frame(PRODUCE, count)[:-1]])  # the last one is not whole
    bench.send(frame(METADATA, -1))
    while rest:
        with contextlib.suppress(BlockingIOError):
            rest = rest[bench.client.send(rest) :]
        bench.turn()
        answer_all(bench, but_last=bool(rest))

    leave(bench, how)
    for _ in range(count):
        answer_all(bench)

    assert ids(bench.produces.started) == list(range(count))
    assert bench.registry.count == 0


def answer_all(bench: ConnectionBench, *, but_last: bool = False) -> None:
    """Answer produces that were not answered yet; with `but_last`, some stay under way."""
    unanswered = [answer for answer in bench.connection.answers if not answer.is_ready]
    for answer in unanswered[: -1 if but_last else None]:
        answer.give(())
    bench.turn()


@pytest.mark.parametrize("how", ["half-closed", "closed"])
def test_what_waits_behind_a_request_under_way_is_carried_out_when_the_client_leaves(
    bench: ConnectionBench, how: str
) -> None:
    bench.send(frame(COORDINATOR, 1), frame(COORDINATOR, 2), frame(COORDINATOR, 3))

    leave(bench, how)
    for number in range(3):
        assert bench.is_open
        bench.deferred[number].resolve({})
        bench.turn()

    assert not bench.is_open
    if how == "half-closed":
        assert bench.receive() == [1, 2, 3]


@pytest.mark.parametrize("how", ["half-closed", "closed"])
def test_a_large_request_behind_another_is_carried_out_when_the_client_leaves(
    bench: ConnectionBench, how: str
) -> None:
    bench.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGE)
    bench.send(frame(FETCH, 0))
    bench.answer(bench.fetches.started[0])
    bench.send(frame(COORDINATOR, 1))
    bench.client.send(frame(PRODUCE, 2, LARGE))

    leave(bench, how)
    bench.deferred[0].resolve({})
    bench.turn()

    assert ids(bench.produces.started) == [2]
    assert bench.memory.lent == 0


@pytest.mark.parametrize("how", ["half-closed", "closed"])
def test_a_large_request_that_waits_for_memory_is_carried_out_when_the_client_leaves(
    bench: ConnectionBench, how: str
) -> None:
    other = taken_memory(bench)
    bench.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGE)
    bench.client.send(frame(PRODUCE, 1, LARGE))
    bench.turn()

    leave(bench, how)
    assert bench.is_open
    bench.memory.give_back(other)
    bench.turn()

    assert ids(bench.produces.started) == [1]
    assert bench.memory.lent == 0


def test_a_client_that_does_not_read_and_leaves_has_its_requests_carried_out(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(FETCH, 1), frame(PRODUCE, 2))
    bench.answer(bench.fetches.started[0], size=500 * KIB)
    assert bench.produces.started == []

    leave(bench, "closed")

    assert ids(bench.produces.started) == [2]


def test_a_client_that_closes_its_side_gets_all_its_answers(bench: ConnectionBench) -> None:
    bench.send(frame(FETCH, 1), frame(FETCH, 2))

    leave(bench, "half-closed")
    bench.answer(bench.fetches.started[0], size=500 * KIB)
    first = bench.receive()
    bench.answer(bench.fetches.started[1], size=500 * KIB)

    assert first == [1]
    assert bench.receive() == [2]
    assert not bench.is_open


def test_a_client_that_left_costs_no_turns_of_the_loop_while_a_request_is_under_way(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(COORDINATOR, 1), frame(COORDINATOR, 2))

    leave(bench, "closed")

    for _ in range(3):
        assert bench.control._poller.wait(0.0) == []


def test_an_answer_that_comes_after_the_end_is_dropped(bench: ConnectionBench) -> None:
    bench.send(frame(FETCH, 1))
    bench.connection.close("")

    bench.answer(bench.fetches.started[0], size=10)

    assert not bench.is_open


def test_a_connection_says_whether_it_is_owed_something(bench: ConnectionBench) -> None:
    bench.send(frame(FETCH, 1))
    waiting = (bench.connection.is_owed, bench.connection.is_idle)

    bench.answer(bench.fetches.started[0], size=500 * KIB)
    unread = (bench.connection.is_owed, bench.connection.is_idle)
    bench.receive()
    read = (bench.connection.is_owed, bench.connection.is_idle)

    assert waiting == (True, False)
    assert unread == (False, False)
    assert read == (False, True)


def test_a_broker_that_stops_starts_nothing_new_and_finishes_what_it_began(
    bench: ConnectionBench,
) -> None:
    bench.send(frame(FETCH, 1), frame(FETCH, 2))

    bench.router.is_stopping = True
    bench.answer(bench.fetches.started[0])
    bench.send(frame(METADATA, 3))

    assert bench.receive() == [1]
    assert ids(bench.fetches.started) == [1]


def test_a_closed_connection_is_freed_without_a_search_for_garbage() -> None:
    bench = ConnectionBench()
    bench.send(frame(METADATA, 1))
    kept = weakref.ref(bench.connection._socket)

    with without_collector():
        bench.close()
        del bench.connection

        assert kept() is None
