"""From a frame to its handler and back: which thread does it, what it costs, what goes wrong.

    produce, fetch       on the data loop, where their connection lives, straight from the frame
    control handlers     on the control loop; they never touch the disk
    worker handlers      on a pool of threads; they may block

A request that cannot be understood costs its connection and nothing else.
"""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from time import perf_counter
from typing import Final, Protocol

from cordwood.broker.net.answer import Answer
from cordwood.broker.net.client_connection import ClientConnection
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.net.memory_budget import MemoryBudget
from cordwood.broker.net.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import Fields, decode_request, encode_response
from cordwood.protocol.request_header import decode_request_header, skip_header_tags

logger = logging.getLogger(__name__)

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_IS_FLEXIBLE: Final[Mapping[tuple[int, int], bool]] = {
    (api.key, version): api.is_flexible(version)
    for api in API_CATALOG.values()
    for version in range(api.min_version, api.max_version + 1)
}


class FrameHandler(Protocol):
    """Produce or fetch: reads the body where it lies, answers now or later."""

    def handle(self, answer: Answer, body: memoryview) -> None: ...
    def disconnected(self, answer: Answer) -> None: ...


class QuickHandler(Protocol):
    """Takes a frame without ceremony, if it is of the kind it knows."""

    def take(
        self, connection: ClientConnection, data: memoryview, start: int, end: int
    ) -> bool: ...


class RequestObserver(Protocol):
    """Where the counting is done. See `broker.metrics`."""

    def received(self, size: int) -> None: ...
    def sent(self, size: int) -> None: ...
    def observe(self, api_key: int, latency_s: float) -> None: ...
    def observe_all(self, api_key: int, latencies_s: Iterable[float]) -> None: ...
    def failed(self, api_key: int, error_code: int) -> None: ...
    def accepted(self) -> None: ...
    def refused(self) -> None: ...


class UnsupportedVersionAnswer(Protocol):
    """What ApiVersions says to a version it does not know."""

    def __call__(self, correlation_id: int) -> bytes: ...


class Dispatcher:
    """Knows every handler and every thread. Its loops call it from their own threads."""

    def __init__(
        self,
        *,
        control: EventLoop,
        data: EventLoop,
        workers: Executor,
        memory: MemoryBudget,
        metrics: RequestObserver,
        frame_bytes_max: int,
        unsupported_version: UnsupportedVersionAnswer,
    ) -> None:
        self.memory = memory
        self.metrics = metrics
        self.frame_bytes_max = frame_bytes_max
        self.is_stopping = False
        self._control = control
        self._data = data
        self._workers = workers
        self._unsupported_version = unsupported_version
        self._routes: dict[int, Route] = {}
        self._frame_handlers: dict[int, FrameHandler] = {}
        self._quick: QuickHandler | None = None
        self._connections: dict[EventLoop, set[ClientConnection]] = {control: set(), data: set()}

    def add_routes(self, routes: Iterable[Route]) -> None:
        for route in routes:
            assert route.api not in self._routes, route
            self._routes[route.api] = route

    def add_frame_handler(self, api: ApiKey, handler: FrameHandler) -> None:
        self._frame_handlers[api] = handler

    def set_quick_handler(self, handler: QuickHandler) -> None:
        """Ask `handler` first, on connections that live in the data loop."""
        self._quick = handler

    @property
    def served_apis(self) -> set[int]:
        return {*self._routes, *self._frame_handlers}

    # --- connections -------------------------------------------------------------------------

    def connected(self, connection: ClientConnection) -> None:
        self._connections[connection.loop].add(connection)

    def moved(self, connection: ClientConnection, old: EventLoop, new: EventLoop) -> None:
        self._connections[old].discard(connection)
        new.call_soon(lambda: self._connections[new].add(connection))

    def disconnected(self, connection: ClientConnection, unanswered: Iterable[Answer]) -> None:
        self._connections[connection.loop].discard(connection)
        for answer in unanswered:
            handler = self._frame_handlers.get(answer.header.api_key)
            if handler is not None:
                handler.disconnected(answer)

    def connections(self, loop: EventLoop) -> list[ClientConnection]:
        """Those that live in `loop`; asked in its own thread."""
        return list(self._connections[loop])

    def all_connections(self) -> list[ClientConnection]:
        """A snapshot, from any thread."""
        return [c for connections in self._connections.values() for c in connections.copy()]

    @property
    def connection_count(self) -> int:
        return sum(map(len, self._connections.values()))

    def loop_for(self, api_key: int) -> EventLoop | None:
        """The loop a connection has to be in for a request; None: whichever it is in."""
        return self._data if api_key in self._frame_handlers else None

    # --- requests ----------------------------------------------------------------------------

    def take_quickly(
        self, connection: ClientConnection, data: memoryview, start: int, end: int
    ) -> bool:
        """Whether the frame ``data[start:end]`` was taken, and will be answered, without more."""
        quick = self._quick
        if quick is None or connection.loop is not self._data:
            return False
        return quick.take(connection, data, start, end)

    def take_alone(self, connection: ClientConnection, data: memoryview, size: int) -> bool:
        """As `take_quickly`, for ``data[:size]`` if that is exactly one frame with its size."""
        quick = self._quick
        if quick is None or connection.loop is not self._data or self.is_stopping or size < 18:
            return False
        if int.from_bytes(data[:4], "big") != size - 4:
            return False
        return quick.take(connection, data, 4, size)

    def begin(self, connection: ClientConnection, frame: memoryview) -> Answer:
        """The answer that a frame will get. Raises `FormatError` where there can be none."""
        header, body_at = decode_request_header(frame)
        return Answer(connection, header, body_at, allows_next=header.api_key == _PRODUCE)

    def run(self, answer: Answer, frame: memoryview) -> None:
        header = answer.header
        is_flexible = _IS_FLEXIBLE.get((header.api_key, header.api_version))
        handler = self._frame_handlers.get(header.api_key)
        if is_flexible is None or (handler is None and header.api_key not in self._routes):
            self._run_unknown(answer)
            return
        at = answer.body_at
        body = frame[skip_header_tags(frame, at) if is_flexible else at :]
        if handler is not None:
            handler.handle(answer, body)
            return
        self._run_route(self._routes[header.api_key], answer, body)

    def _run_unknown(self, answer: Answer) -> None:
        header = answer.header
        if header.api_key != _API_VERSIONS:
            what = f"version {header.api_version} of API {header.api_key}"
            raise UnsupportedFormatError("request", what)
        answer.give([self._unsupported_version(header.correlation_id)])

    def _run_route(self, route: Route, answer: Answer, body: memoryview) -> None:
        header = answer.header
        fields = decode_request(header.api_key, header.api_version, body)
        context = RequestContext(header=header, client_host=answer.connection.client_host)
        if route.runs_on is RunsOn.WORKER:
            self._workers.submit(self._run_handler, route, answer, context, fields)
        elif answer.connection.loop is self._control:
            self._run_handler(route, answer, context, fields)
        else:
            self._control.call_soon(lambda: self._run_handler(route, answer, context, fields))

    def _run_handler(
        self, route: Route, answer: Answer, context: RequestContext, fields: Fields
    ) -> None:
        try:
            result = route.handler(context, fields)
        except FormatError as error:
            answer.abandon(str(error))
            return
        except Exception:
            self._failed(answer)
            return
        if isinstance(result, Deferred):
            result.when_done(lambda response, error: self._respond(answer, response, error))
        else:
            self._respond(answer, result, None)

    def _respond(
        self, answer: Answer, response: Response | None, error: BaseException | None
    ) -> None:
        header = answer.header
        try:
            if error is not None:
                raise error
            assert response is not None
            if response.get("error_code"):
                self.metrics.failed(header.api_key, int(response["error_code"]))
            frame = encode_response(
                header.api_key, header.api_version, header.correlation_id, response
            )
        except Exception:
            self._failed(answer)
            return
        answer.give([frame])

    def _failed(self, answer: Answer) -> None:
        """Our own fault: say where, and do not leave the client waiting."""
        header = answer.header
        name = API_CATALOG[header.api_key].name
        logger.exception("%s version %d failed", name, header.api_version)
        answer.abandon(f"{name} failed")

    def finished(self, answer: Answer) -> None:
        """An answer was handed to its connection."""
        self.metrics.observe(answer.header.api_key, perf_counter() - answer.started_s)
