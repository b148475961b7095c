"""The addresses of records: live tail, search, export, and the bytes of a value."""

import threading
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Final

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cordwood.console.console import Console
from cordwood.console.pages import exports, streams
from cordwood.console.pages.page import PageForbiddenError, PageNotFoundError
from cordwood.console.web.answers import Answers, attachment, attachment_headers
from cordwood.console.web.requests import Requests

STREAMS_MAX: Final = 24
_TOO_MANY: Final = "Too many tails, searches and exports are open. Close one, and retry."


class StreamSlots:
    """Limits the streams of all viewers together. Any thread."""

    def __init__(self, count: int = STREAMS_MAX) -> None:
        self._free = threading.Semaphore(count)

    def take(self) -> bool:
        return self._free.acquire(blocking=False)

    def give_back(self) -> None:
        self._free.release()


class SlottedStream(StreamingResponse):
    """A stream that is sent only if there is a slot for it.

    The slot is taken when sending begins, and given back when it ends, whatever ends it: a viewer
    may go away before the first byte.
    """

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        slots: StreamSlots,
        media_type: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            content, media_type=media_type, headers=headers or {"Cache-Control": "no-store"}
        )
        self._content = content
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._slots.take():
            refusal = JSONResponse({"error": _TOO_MANY}, HTTPStatus.SERVICE_UNAVAILABLE)
            await refusal(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slots.give_back()
            with anyio.CancelScope(shield=True):
                await self._content.aclose()


class RecordRoutes:
    """Streams run on the event loop, their steps in threads of a pool."""

    def __init__(self, console: Console, requests: Requests, answers: Answers) -> None:
        self._console = console
        self._requests = requests
        self._answers = answers
        self._slots = StreamSlots()

    def routes(self) -> list[Route]:
        return [
            Route("/topics/{topic}/tail", self._tail),
            Route("/topics/{topic}/find", self._find),
            Route("/topics/{topic}/export", self._export),
            Route("/topics/{topic}/messages/{partition}/{offset}/value", self._value),
        ]

    async def _tail(self, request: Request) -> Response:
        # A browser that connects again sends where it was.
        resumed = request.headers.get("last-event-id", "")
        try:
            asked = await run_in_threadpool(self._requests.asked, request)
            tail = await run_in_threadpool(streams.open_tail, asked, resumed)
        except Exception as error:
            return self._answers.failed_json(error)
        return SlottedStream(streams.tail_events(tail), self._slots, "text/event-stream")

    async def _find(self, request: Request) -> Response:
        is_cancelled = threading.Event()
        try:
            asked = await run_in_threadpool(self._requests.asked, request)
            found = await run_in_threadpool(streams.open_search, asked, is_cancelled)
        except Exception as error:
            return self._answers.failed_json(error)
        events = streams.until_left(found, is_cancelled)
        return SlottedStream(events, self._slots, "text/event-stream")

    def _export(self, request: Request) -> Response:
        is_cancelled = threading.Event()

        def made() -> Response:
            asked = self._requests.asked(request)
            name, kind, content = exports.export_records(asked, is_cancelled.is_set)
            lines = streams.until_left(content, is_cancelled)
            return SlottedStream(lines, self._slots, kind, attachment_headers(name))

        return self._answers.page_or_failure(request, made)

    def _value(self, request: Request) -> Response:
        """The bytes of a value, as a file, never as a page."""

        def made() -> Response:
            asked = self._requests.asked(request)
            topic = asked.topic()
            asked.check_may_read(topic.name)
            if self._console.config.masking.of_topic(topic.name):
                raise PageForbiddenError("Masking rules apply to this topic.")
            partition, offset = asked.path_number("partition"), asked.path_number("offset")
            records = self._console.records(topic.name, asked.viewer)
            found = records.read(partition, offset, offset + 1, 1)
            if not found or found[0].offset != offset or found[0].value is None:
                raise PageNotFoundError(f"{topic.name}-{partition} has no value at {offset}.")
            name = f"{topic.name}-{partition}-{offset}.bin"
            return attachment(found[0].value, name, "application/octet-stream")

        return self._answers.page_or_failure(request, made)
