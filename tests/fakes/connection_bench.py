"""A client's connection and what is behind it, turned by hand: no threads, no waiting."""

import socket
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from cordwood.broker.handlers.api_versions import unsupported_version_response
from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.connections.connection_registry import ConnectionRegistry
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.memory.memory_budget import MemoryBudget
from cordwood.broker.net.requests.answer import Answer, Connection, begin_answer
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.net.requests.session import UNLIMITED
from cordwood.broker.net.routing.request_router import RequestRouter
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields, encode_request
from fakes.sessions import LOCAL_SESSION

TURNS = 20


class InlineExecutor(Executor):
    """Runs what it is given at once."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(function(*args, **named))
        return done


class HeldAnswers:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.started: list[Answer] = []
        self.left: list[Answer] = []
        self.error: Exception | None = None
        self.are_alone = False

    def start(self, connection: Connection, data: memoryview, begin: int, end: int) -> None:
        answer, _ = begin_answer(connection, data, begin, end)
        if self.error is not None:
            raise self.error
        answer.is_alone = self.are_alone
        self.started.append(answer)
        answer.when_left = lambda: self.left.append(answer)


class ConnectionBench:
    """One connection. `send` is the client, `turn` the broker's loops, `received` the client again.

    Produce and fetch are held until the test gives their answers; FindCoordinator is answered
    when the test resolves it, Metadata at once.
    """

    def __init__(self, *, memory: int = 1 << 20, frame_bytes_max: int = 1 << 20) -> None:
        self.control, self.data = EventLoop("control"), EventLoop("data")
        self.memory = MemoryBudget(memory)
        metrics = RequestMetrics()
        self.router = RequestRouter(
            control=self.control,
            data=self.data,
            workers=InlineExecutor(),
            long_work=InlineExecutor(),
            metrics=metrics,
            unsupported_version=unsupported_version_response,
        )
        self.registry = ConnectionRegistry([self.control, self.data])
        host = ConnectionHost(
            router=self.router,
            registry=self.registry,
            memory=self.memory,
            metrics=metrics,
            frame_bytes_max=frame_bytes_max,
            access_of=lambda _principal, _host: UNLIMITED,
        )
        self.produces, self.fetches = HeldAnswers(), HeldAnswers()
        self.deferred: list[Deferred] = []
        self.router.add_frame_handler(ApiKey.PRODUCE, self.produces)
        self.router.add_frame_handler(ApiKey.FETCH, self.fetches)
        self.router.add_routes(
            [
                Route(api=ApiKey.FIND_COORDINATOR, handler=self._defer, runs_on=RunsOn.CONTROL),
                Route(api=ApiKey.METADATA, handler=lambda *_: {}, runs_on=RunsOn.CONTROL),
            ]
        )
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        self.connection = ClientConnection(
            ours, replace(LOCAL_SESSION, frame_bytes_max=frame_bytes_max), self.control, host
        )
        self.registry.add(self.connection)
        self.connection.attach()
        self._received = bytearray()

    def close(self) -> None:
        self.connection.close("")
        self.client.close()
        for loop in (self.control, self.data):
            loop._close()

    def _defer(self, _context: RequestContext, _fields: Fields) -> Response | Deferred:
        self.deferred.append(Deferred())
        return self.deferred[-1]

    # --- the client --------------------------------------------------------------------------

    def send(self, *frames: bytes) -> None:
        """Send, and let the broker work."""
        data = b"".join(frames)
        while data:
            try:
                data = data[self.client.send(data) :]
            except BlockingIOError:
                self.turn()
        self.turn()

    def receive(self) -> list[int]:
        """The correlation ids of the answers that are there whole."""
        self.turn()
        try:
            while part := self.client.recv(1 << 20):
                self._received += part
                self.turn()
        except BlockingIOError:
            pass
        ids = []
        while len(self._received) >= 8:
            size, correlation_id = struct.unpack_from(">ii", self._received)
            if len(self._received) < 4 + size:
                break
            ids.append(correlation_id)
            del self._received[: 4 + size]
        return ids

    @property
    def is_open(self) -> bool:
        return not self.connection.is_closed

    # --- the broker --------------------------------------------------------------------------

    def turn(self) -> None:
        """Let both loops do all there is to do."""
        for _ in range(TURNS):
            for loop in (self.control, self.data):
                loop.call_soon(lambda: None)  # so that it does not wait
                loop._turn()

    def answer(self, answer: Answer, size: int = 0) -> None:
        """Answer a produce or fetch with `size` bytes behind the correlation id."""
        frame = struct.pack(">ii", 4 + size, answer.header.correlation_id) + bytes(size)
        answer.give([frame])
        self.turn()


def frame(api_key: ApiKey, correlation_id: int, size: int = 0) -> bytes:
    """A request of a version that is not flexible; `size` bytes of body for produce and fetch."""
    version = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 11, ApiKey.METADATA: 1}.get(api_key, 0)
    body = bytes(size)
    if api_key not in {ApiKey.PRODUCE, ApiKey.FETCH}:
        request: dict[str, Any] = {"topics": []} if api_key == ApiKey.METADATA else {"key": "g"}
        body = encode_request(api_key, version, request)
    header = struct.pack(">hhih", api_key, version, correlation_id, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def ids(answers: Iterable[Answer]) -> list[int]:
    return [answer.header.correlation_id for answer in answers]
