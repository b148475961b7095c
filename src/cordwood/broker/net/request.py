"""A request on its way through the broker: who asks, where its handler runs, how it is answered."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from cordwood.protocol.request_header import RequestHeader

Response = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What a handler may know about who asks."""

    header: RequestHeader
    client_host: str

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""


class Deferred:
    """An answer that comes later. Given once, by any thread; what comes after is ignored."""

    __slots__ = ("_error", "_is_done", "_lock", "_on_done", "_response")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_done = False
        self._response: Response | None = None
        self._error: BaseException | None = None
        self._on_done: Callable[[Response | None, BaseException | None], None] | None = None

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def response(self) -> Response | None:
        """The answer, once it was given."""
        return self._response

    def resolve(self, response: Response) -> bool:
        """Answer; False when that happened before."""
        return self._finish(response, None)

    def fail(self, error: BaseException) -> bool:
        """There is no answer: the connection is closed. For our own faults only."""
        return self._finish(None, error)

    def when_done(self, function: Callable[[Response | None, BaseException | None], None]) -> None:
        """Call `function` with the answer or the error, now or when it comes."""
        with self._lock:
            if not self._is_done:
                self._on_done = function
                return
        function(self._response, self._error)

    def _finish(self, response: Response | None, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_done:
                return False
            self._is_done = True
            self._response, self._error = response, error
            function = self._on_done
        if function is not None:
            function(response, error)
        return True


class RunsOn(Enum):
    """Where a handler runs. What may touch the disk never runs on CONTROL."""

    CONTROL = "control"
    DATA = "data"
    WORKER = "worker"


Handler = Callable[[RequestContext, Fields], Response | Deferred]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who answers an API, and in which thread."""

    api: ApiKey
    handler: Handler
    runs_on: RunsOn
