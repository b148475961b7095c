"""Requests that connections leave in one turn: handed over together, in their order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from cordwood.broker.net.loop.event_loop import RECEIVE_BYTES, EventLoop
from cordwood.broker.net.requests.answer import Connection
from cordwood.broker.net.rows import gathered_frames
from cordwood.broker.net.rows.gathered_frames import GatheredFrames


class Client:
    """A connection as far as it is needed here."""

    def __init__(self) -> None:
        self.started: list[bytes] = []
        self.closed: list[str] = []

    def start_gathered(self, data: memoryview) -> None:
        self.started.append(bytes(data))

    def close(self, reason: str) -> None:
        self.closed.append(reason)


class Bench:
    """A loop turned by hand. Frames that begin with `refused` are not taken."""

    def __init__(self) -> None:
        self.loop = EventLoop("data")
        self.taken: list[list[bytes]] = []
        self.error: Exception | None = None
        self.gathered = GatheredFrames(self.loop, self._take)

    def _take(
        self,
        connections: Sequence[Connection],
        data: memoryview,
        ends: list[int],
        start: Callable[[int], None],
    ) -> None:
        if self.error is not None:
            raise self.error
        frames = [bytes(data[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        assert len(connections) == len(frames)
        for index, frame in enumerate(frames):
            if frame.startswith(b"refused"):
                start(index)
        self.taken.append([frame for frame in frames if not frame.startswith(b"refused")])

    def receive(self, client: Client, data: bytes) -> None:
        self.gathered.room[: len(data)] = data
        self.gathered.add(cast(Any, client), len(data))

    def turn(self) -> None:
        self.loop.call_soon(lambda: None)  # so that it does not wait
        self.loop._turn()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop._close()


def test_what_comes_in_one_turn_is_handed_over_at_its_end(bench: Bench) -> None:
    for data in (b"one", b"two", b"three"):
        bench.receive(Client(), data)
    before = list(bench.taken)

    bench.turn()
    bench.turn()

    assert before == []
    assert bench.taken == [[b"one", b"two", b"three"]]


def test_a_request_that_is_not_taken_is_started_with_its_own_bytes(bench: Bench) -> None:
    first, second = Client(), Client()
    bench.receive(first, b"refused 1")
    bench.receive(second, b"two")

    bench.turn()

    assert first.started == [b"refused 1"]
    assert second.started == []
    assert bench.taken == [[b"two"]]


def test_the_room_is_used_again_in_the_next_turn(bench: Bench) -> None:
    for data in (b"first", b"second"):
        bench.receive(Client(), data)
        bench.receive(Client(), b"behind it")
        bench.turn()

    assert bench.taken == [[b"first", b"behind it"], [b"second", b"behind it"]]
    assert bytes(bench.gathered.room[:6]) == b"second"


def test_when_much_is_gathered_it_is_handed_over_before_the_turn_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered_frames, "_GATHERED_BYTES_MAX", 5)
    for data in (b"one", b"two", b"three"):
        bench.receive(Client(), data)

    assert bench.taken == [[b"one", b"two"]]
    bench.turn()

    assert bench.taken == [[b"one", b"two"], [b"three"]]


def test_there_is_always_room_for_a_whole_receive(bench: Bench) -> None:
    for _ in range(100):
        assert len(bench.gathered.room) == RECEIVE_BYTES
        bench.receive(Client(), bytes(gathered_frames.SMALL_BYTES_MAX))


def test_a_failure_leaves_no_client_waiting(bench: Bench) -> None:
    clients = [Client(), Client()]
    bench.error = RuntimeError("a bug")
    for client in clients:
        bench.receive(client, b"data")

    bench.turn()

    assert [client.closed for client in clients] == [["the broker failed"]] * 2
