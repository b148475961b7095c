"""Server-sent events: a live tail, and the results of a search as they are found."""

import json
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import asdict
from typing import Final

import anyio
from anyio.to_thread import run_sync
from starlette.concurrency import iterate_in_threadpool

from cordwood.console.finding.query_syntax import QuerySyntaxError, parse_query
from cordwood.console.finding.search_run import Hit, Progress, search
from cordwood.console.pages.live_tail import LiveTail
from cordwood.console.pages.message_pages import decoders_of
from cordwood.console.pages.page import PARAMETER_CHARS_MAX, BadParameterError, PageRequest
from cordwood.console.views.message_rows import message_row
from cordwood.console.views.words import moment_in_words
from cordwood.errors import CordwoodError

_LOOK_S: Final = 0.25
_LOOK_SHARE: Final = 0.1  # of the time of a tail
_SILENCE_S: Final = 10.0  # then a comment is sent, so that a dead connection is noticed


def event(name: str, content: object, place: str = "") -> bytes:
    """One event. JSON has no line breaks, so the content cannot end the event.

    A browser that connects again sends the last `place` that it got.
    """
    head = f"id: {place}\n" if place else ""
    text = json.dumps(content, ensure_ascii=True)
    return f"{head}event: {name}\ndata: {text}\n\n".encode("ascii")


def row_as_json(row: object) -> dict[str, object]:
    content = asdict(row)  # type: ignore[call-overload]
    content["time"] = moment_in_words(content["timestamp_ms"])
    return content  # type: ignore[no-any-return]


def open_tail(request: PageRequest, resumed: str = "") -> LiveTail:
    """A tail that goes on at `resumed`, else at the parameter `positions`, else at the end."""
    topic = request.topic()
    request.check_may_read(topic.name)
    return LiveTail(
        request.console.records(topic.name, request.viewer),
        partition=request.number("partition"),
        masking=request.console.config.masking.of_topic(topic.name),
        decoders=decoders_of(request),
        positions=_parse_positions(resumed or request.text("positions")),
    )


def _parse_positions(text: str) -> dict[int, int] | None:
    """``0:100,1:250``"""
    if not text:
        return None
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError as error:
        raise BadParameterError("positions must be partition:offset,…") from error


def _render_positions(positions: dict[int, int]) -> str:
    """Empty if they do not fit into an address: then a tail goes on at the end."""
    text = ",".join(f"{number}:{offset}" for number, offset in positions.items())
    return text if len(text) <= PARAMETER_CHARS_MAX else ""


async def tail_events(tail: LiveTail) -> AsyncGenerator[bytes]:
    quiet_s = 0.0
    place = _render_positions(tail.positions)
    yield event("ready", {"positions": place}, place)
    while True:
        started_s = time.monotonic()
        try:
            step = await run_sync(tail.step)
        except (CordwoodError, OSError) as error:
            yield event("problem", {"text": str(error)})
            await anyio.sleep(2.0)
            continue
        if step.arrived:
            quiet_s = 0.0
            place = _render_positions(step.positions)
            content = {
                "rows": [row_as_json(row) for row in step.rows],
                "arrived": step.arrived,
                "dropped": step.dropped,
                "positions": place,
            }
            yield event("records", content, place)
        else:
            quiet_s += _LOOK_S
            if quiet_s >= _SILENCE_S:
                quiet_s = 0.0
                yield b": nothing new\n\n"
        # With thousands of partitions a look takes long; the next one comes later then.
        await anyio.sleep(max(_LOOK_S, (time.monotonic() - started_s) / _LOOK_SHARE))


def open_search(request: PageRequest, is_cancelled: threading.Event) -> Iterator[bytes]:
    """Starts a search. Raises `BadParameterError` if the query is wrong."""
    topic = request.topic()
    request.check_may_read(topic.name)
    try:
        query = parse_query(request.text("q"))
    except QuerySyntaxError as error:
        raise BadParameterError(f"This search cannot be understood: {error}") from error
    partition = request.number("partition")
    masking = request.console.config.masking.of_topic(topic.name)
    decoders = decoders_of(request)
    found = search(
        request.console.records(topic.name, request.viewer),
        query,
        masking,
        is_cancelled=is_cancelled.is_set,
        partitions=None if partition is None else frozenset({partition}),
    )

    def events() -> Iterator[bytes]:
        try:
            for item in found:
                if isinstance(item, Hit):
                    row = message_row(topic.name, item.partition, item.record, masking, decoders)
                    yield event("hit", row_as_json(row))
                else:
                    yield event("progress", _progress(item))
        except (CordwoodError, OSError) as error:
            yield event("problem", {"text": str(error)})

    return events()


def _progress(progress: Progress) -> dict[str, object]:
    return {
        **asdict(progress),
        "share": round(progress.share, 4),
        "bytes_per_s": round(progress.bytes_per_s),
    }


async def until_left(
    parts: Iterator[bytes], is_cancelled: threading.Event
) -> AsyncGenerator[bytes]:
    """The parts, made in threads; when the viewer goes away, their maker is told."""
    try:
        async for part in iterate_in_threadpool(parts):
            yield part
    finally:
        is_cancelled.set()
