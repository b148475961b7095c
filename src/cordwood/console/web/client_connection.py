"""A connection of a browser, with an end to waiting.

uvicorn waits for as long as a client wants: for the end of a request, and until an answer is read.
Some hundred clients that do neither would take all connections.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_RECEIVED: Final = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)


class ClientConnection(H11Protocol):
    """Ends if a request does not arrive in time, or if the client stops reading an answer.

    For the thread of the event loop.
    """

    request_s = 20.0  # from the first byte to the end of a request
    stalled_s = 30.0  # without a byte that the client takes

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._request_end: asyncio.TimerHandle | None = None
        self._stall_end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._request_end = self._later(self.request_s, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_arrived()
        self._client_reads()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in _RECEIVED:
            self._request_arrived()
        elif self._request_end is None:
            self._request_end = self._later(self.request_s, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_end is None:
            self._stall_end = self._later(self.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._client_reads()
        super().resume_writing()

    def _request_arrived(self) -> None:
        if self._request_end is not None:
            self._request_end.cancel()
            self._request_end = None

    def _client_reads(self) -> None:
        if self._stall_end is not None:
            self._stall_end.cancel()
            self._stall_end = None

    def _later(self, delay_s: float, end: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_s, end)
