"""A proxy between clients and a broker that treats requests of transactions badly.

It understands frames and the beginning of their headers: API key, correlation id, client id. To a
request that concerns a transaction one of these happens, by chance:

    delay         it waits, and everything behind it on its connection with it
    cut before    it never arrives; the connection breaks
    cut after     it arrives; the connection breaks before its answer
    hold          the connection breaks; the request arrives later, when the client has gone on
    repeat        it arrives, and later it arrives once more

Late deliveries are noted in the history: for transactions of version 1 they explain violations.
The proxy outlives the broker. While there is none, it refuses connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from weakref import WeakSet

from cordwood.protocol.api_catalog import ApiKey
from crash.exactly_once.history import HistoryWriter, LateFrame, now

DISTURBED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
FRAME_BYTES_MAX: Final = 1 << 24
_START_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mischief:
    """How probable each is, for one request; and for how long requests are late."""

    delay: float = 0.02
    cut_before: float = 0.01
    cut_after: float = 0.01
    hold: float = 0.01
    repeat: float = 0.03
    late_s: tuple[float, float] = (0.005, 0.4)


SOME: Final = Mischief()
NONE: Final = Mischief(delay=0, cut_before=0, cut_after=0, hold=0, repeat=0)


class _CutError(Exception):
    """The connection of a client breaks."""


class Proxy:
    """Runs in a thread of its own. `start`, `stop` and `upstream` are for its owner."""

    def __init__(self, rng: Random, mischief: Mischief, history: HistoryWriter) -> None:
        self.upstream_port = 0  # where the broker is; 0: there is none
        self.mischief = mischief
        self.counts: Counter[str] = Counter()
        self.port = 0
        self._rng = rng
        self._history = history
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: WeakSet[asyncio.WriteTransport] = WeakSet()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(_START_TIMEOUT_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=FRAME_BYTES_MAX)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for transport in list(self._transports):
            transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))  # the sockets are closed in the next turn
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- connections -------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._transports.add(writer.transport)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            broker_reader, broker_writer = await self._connect()
            back = asyncio.ensure_future(_copy(broker_reader, writer))
            is_kept = False
            try:
                await self._forward(reader, broker_writer, back)
            except _CutError:
                is_kept = True  # what was sent is on its way, and arrives
            finally:
                back.cancel()
                writer.close()
                if is_kept:
                    self._later(_close_later(broker_reader, broker_writer))
                else:
                    broker_writer.close()
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.upstream_port:
            raise ConnectionRefusedError
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.upstream_port, limit=FRAME_BYTES_MAX
        )
        self._transports.add(writer.transport)
        return reader, writer

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        broker: asyncio.StreamWriter,
        back: asyncio.Future[None],
    ) -> None:
        while not back.done():
            get = asyncio.ensure_future(_frame(reader))
            either: set[asyncio.Future[Any]] = {get, back}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not get.done():
                get.cancel()
                return  # the broker closed the connection
            frame = get.result()
            api, client = _header(frame)
            if api in DISTURBED:
                await self._disturb(frame, api, client, broker)
            else:
                broker.write(frame)
            await broker.drain()

    async def _disturb(
        self, frame: bytes, api: int, client: str, broker: asyncio.StreamWriter
    ) -> None:
        what = self._choose()
        self.counts[what] += 1
        pause_s = self._rng.uniform(*self.mischief.late_s)
        if what == "cut before":
            raise _CutError
        if what == "hold":
            self._later(self._deliver(frame, api, client, pause_s))
            raise _CutError
        if what == "delay":
            await asyncio.sleep(pause_s)
        broker.write(frame)
        if what == "repeat":
            self._later(self._deliver(frame, api, client, pause_s))
        if what == "cut after":
            await broker.drain()
            raise _CutError

    def _choose(self) -> str:
        drawn = self._rng.random()
        mischief = self.mischief
        for what, chance in (
            ("delay", mischief.delay),
            ("cut before", mischief.cut_before),
            ("cut after", mischief.cut_after),
            ("hold", mischief.hold),
            ("repeat", mischief.repeat),
        ):
            drawn -= chance
            if drawn < 0:
                return what
        return "pass"

    async def _deliver(self, frame: bytes, api: int, client: str, pause_s: float) -> None:
        """Send a request later, over a connection of its own; its answer interests nobody."""
        taken_at = now()
        await asyncio.sleep(pause_s)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await self._connect()
            try:
                writer.write(frame)
                await writer.drain()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_frame(reader), 5.0)
            finally:
                writer.close()
        self._history.add(LateFrame(taken_at=taken_at, at=now(), client=client, api=api))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A frame with its size."""
    prefix = await reader.readexactly(4)
    (size,) = struct.unpack(">i", prefix)
    if not 0 <= size <= FRAME_BYTES_MAX:
        raise OSError(f"a frame of {size} bytes")
    return prefix + await reader.readexactly(size)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def _close_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the broker answer what it has, then close."""
    try:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1 << 16), 2.0)
    finally:
        writer.close()


def _header(frame: bytes) -> tuple[int, str]:
    """The API key and the client id of a request."""
    if len(frame) < 14:
        return -1, ""
    api, _version, _correlation_id, length = struct.unpack_from(">hhih", frame, 4)
    return api, frame[14 : 14 + max(length, 0)].decode(errors="replace")
