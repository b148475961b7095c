"""Routes each frame once, by its API key, to the handler and the thread that serve it.

    produce, fetch       on the data loop, straight from the received bytes
    control handlers     on the control loop; they never touch the disk
    worker handlers      on a pool of threads; they may block

A large request other than these two is read, and its response written, in a thread of its own, one
after the other: a million items take seconds. If its handler may run anywhere, it runs there too.
That thread waits for nothing: a worker handler runs on the pool, however large its request is.

A client that has to authenticate has a gate in its session, which sees every request first.

A request that cannot be read closes its own connection and affects no other.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import Final, Protocol

from cordwood.broker.net.loop.event_loop import RECEIVE_BYTES, EventLoop
from cordwood.broker.net.requests.answer import Answer, Connection, begin_answer
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.net.rows.gathered_frames import GatheredFrames, Gathering, TakesFrames
from cordwood.broker.security.client_quotas import ClientQuotas, to_ms
from cordwood.broker.security.security_events import UNWATCHED, SecurityEvents
from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.protocol.api_catalog import API_CATALOG, KNOWN_APIS, ApiKey
from cordwood.protocol.message_codec import ITEMS_MAX
from cordwood.protocol.messages import (
    Fields,
    decode_request,
    encode_response,
    has_throttle_time,
)
from cordwood.protocol.request_header import decode_request_header

logger = logging.getLogger(__name__)

_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_HEADER_BYTES_MIN: Final = 10
_LARGE_BODY: Final = 8 * 1024  # reading it takes some milliseconds, if it is made of tiny items
# The most items of a request whose handler must run in the control loop: 2 to 6 microseconds each.
_CONTROL_ITEMS_MAX: Final = 20_000


class FrameHandler(Protocol):
    """Produce, fetch, and parts of transactions: reads the frame where it was received, answers
    now or later."""

    def start(self, connection: Connection, data: memoryview, begin: int, end: int) -> None: ...


class TakesFrame(Protocol):
    """A short way of small requests: see `RequestRouter.take_frames`."""

    def __call__(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool: ...


class UnsupportedVersionAnswer(Protocol):
    """The answer to an ApiVersions request in a version that is not served."""

    def __call__(self, correlation_id: int) -> bytes: ...


class RequestRouter:
    """The table of all handlers. Connections call it from the threads of their loops."""

    def __init__(
        self,
        *,
        control: EventLoop,
        data: EventLoop,
        workers: Executor,
        long_work: Executor,
        metrics: RequestMetrics,
        unsupported_version: UnsupportedVersionAnswer,
        events: SecurityEvents = UNWATCHED,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.is_stopping = False  # no request is started any more
        self.data_loop = data
        # By API key: whether the frame ``data[begin:end]``, all that a connection of the data loop
        # received and owes, is taken, and will be answered. If not, nothing was done. Not asked
        # under quotas.
        self.take_frames: dict[int, TakesFrame] = {}
        self.gathered: GatheredFrames | None = None  # of the data loop
        self._control = control
        self._workers = workers
        self._long_work = long_work
        self._metrics = metrics
        self._unsupported_version = unsupported_version
        self._events = events
        self.quotas = ClientQuotas() if quotas is None else quotas
        self._routes: dict[int, Route] = {}
        self._frame_handlers: dict[int, FrameHandler] = {}

    def add_routes(self, routes: Iterable[Route]) -> None:
        for route in routes:
            assert route.api not in self._routes, route
            self._routes[route.api] = route

    def add_frame_handler(self, api: ApiKey, handler: FrameHandler) -> None:
        self._frame_handlers[api] = handler

    def gather_frames(self, take: TakesFrame, take_all: TakesFrames) -> None:
        """Have small produces taken this way, and together if they come in the same turn.

        Not while the broker stops, or counts what clients use of their quotas.
        """

        def take_all_now(
            connections: Sequence[Gathering],
            data: memoryview,
            ends: list[int],
            start: Callable[[int], None],
        ) -> None:
            if self.is_stopping or self.quotas.is_set:
                for index in range(len(ends)):
                    start(index)
            else:
                take_all(connections, data, ends, start)

        self.take_frames[ApiKey.PRODUCE] = take
        self.gathered = GatheredFrames(self.data_loop, take_all_now)

    @property
    def served_apis(self) -> set[int]:
        return {*self._routes, *self._frame_handlers}

    def start(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool:
        """Start the request in ``data[begin:end]``.

        False: nothing was done, because the connection must move to the data loop first.
        """
        gate = connection.session.gate
        if gate is not None and not gate.admits(connection, data, begin, end):
            return True
        if end - begin < _HEADER_BYTES_MIN:
            raise TruncatedInputError("request header", needed=_HEADER_BYTES_MIN, got=end - begin)
        api_key, api_version = _KEY_AND_VERSION.unpack_from(data, begin)
        handler = self._frame_handlers.get(api_key)
        if handler is not None:
            if connection.loop is not self.data_loop:
                return False
            handler.start(connection, data, begin, end)
            return True
        if api_key == _API_VERSIONS and not API_CATALOG[api_key].serves(api_version):
            self._answer_unsupported(connection, data[begin:end])
            return True
        self.start_route(connection, data, begin, end)
        return True

    def start_route(self, connection: Connection, data: memoryview, begin: int, end: int) -> None:
        """Start the request in ``data[begin:end]`` by its route, whatever else may handle it."""
        api_key, _ = _KEY_AND_VERSION.unpack_from(data, begin)
        route = self._routes.get(api_key)
        if route is None:
            raise UnsupportedFormatError("request", f"API {api_key}")
        answer, body = begin_answer(connection, data, begin, end)
        self._run_route(route, answer, body)

    def _answer_unsupported(self, connection: Connection, frame: memoryview) -> None:
        header, _ = decode_request_header(frame)
        answer = Answer(connection, header)
        answer.give([self._unsupported_version(header.correlation_id)])

    def _run_route(self, route: Route, answer: Answer, body: memoryview) -> None:
        if len(body) > _LARGE_BODY:
            # A copy, if it lies in the buffer that is used for the next receive.
            kept = memoryview(bytes(body)) if len(body) <= RECEIVE_BYTES else body
            self._long_work.submit(self._run_large, route, answer, kept)
            return
        header = answer.header
        began_s = perf_counter()
        fields = decode_request(header.api_key, header.api_version, body)
        read_s = perf_counter() - began_s
        if route.runs_on is RunsOn.WORKER:
            self._workers.submit(self._run_handler, route, answer, fields, read_s)
        elif answer.connection.loop is self._control:
            self._run_handler(route, answer, fields, read_s)
        else:
            self._control.call_soon(lambda: self._run_handler(route, answer, fields, read_s))

    def _run_large(self, route: Route, answer: Answer, body: memoryview) -> None:
        """In the thread for long work."""
        header = answer.header
        is_control = route.runs_on is RunsOn.CONTROL
        items_max = _CONTROL_ITEMS_MAX if is_control else ITEMS_MAX
        began_s = perf_counter()
        try:
            fields = decode_request(header.api_key, header.api_version, body, items_max=items_max)
        except FormatError as error:
            answer.abandon(str(error))
            return
        except Exception:
            self._failed(answer)
            return
        read_s = perf_counter() - began_s
        if is_control:
            self._control.call_soon(
                lambda: self._run_handler(route, answer, fields, read_s, is_large=True)
            )
        elif route.runs_on is RunsOn.WORKER:
            try:
                self._workers.submit(
                    self._run_handler, route, answer, fields, read_s, is_large=True
                )
            except Exception:  # the system has no thread for it
                self._failed(answer)
        else:
            self._run_handler(route, answer, fields, read_s)

    def _run_handler(
        self, route: Route, answer: Answer, fields: Fields, read_s: float, *, is_large: bool = False
    ) -> None:
        """It took `read_s` to read the request, which counts as time of the handler."""
        header = answer.header
        context = RequestContext(
            header=header,
            session=answer.connection.session,
            events=self._events,
            quotas=self.quotas,
        )
        started_s = perf_counter()
        try:
            result = route.handler(context, fields)
        except FormatError as error:
            answer.abandon(str(error))
            return
        except Exception:
            self._failed(answer)
            return
        busy_s = read_s + perf_counter() - started_s
        if isinstance(result, Deferred):
            result.when_done(lambda response, error: self._respond(answer, response, error, busy_s))
        elif is_large:
            self._long_work.submit(self._respond, answer, result, None, busy_s)
        else:
            self._respond(answer, result, None, busy_s)

    def _respond(
        self,
        answer: Answer,
        response: Response | None,
        error: BaseException | None,
        busy_s: float,
    ) -> None:
        header = answer.header
        try:
            if error is not None:
                raise error
            assert response is not None
            code = response.get("error_code")
            if isinstance(code, int) and code:
                self._metrics.failed(header.api_key, code)
            # A client that has not authenticated yet has nobody's quota.
            if self.quotas.is_set and answer.connection.session.is_somebody:
                response = self._throttled(answer, response, busy_s)
            frame = encode_response(
                header.api_key, header.api_version, header.correlation_id, response
            )
        except Exception:
            self._failed(answer)
            return
        answer.give([frame])

    def _throttled(self, answer: Answer, response: Response, busy_s: float) -> Response:
        """Count the time of the handler, and mute the client if that, or what it did, was much."""
        header = answer.header
        user = answer.connection.session.principal.name
        asked_ms = response.get("throttle_time", 0)  # by the handler
        pause_s = asked_ms / 1000 if isinstance(asked_ms, int) else 0.0
        if self.quotas.times_requests:
            pause_s = max(pause_s, self.quotas.took(user, header.client_id or "", busy_s))
        if not pause_s:
            return response
        answer.pause_s = pause_s
        if not has_throttle_time(header.api_key):
            return response
        return {**response, "throttle_time": to_ms(pause_s)}

    def _failed(self, answer: Answer) -> None:
        """A bug of ours: log it, and close the connection instead of leaving the client waiting."""
        header = answer.header
        name = KNOWN_APIS[header.api_key].name
        logger.exception("%s version %d failed", name, header.api_version)
        answer.abandon(f"{name} failed")
