"""Serves a console over HTTP until it is stopped."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn

from cordwood.console.console import Console
from cordwood.console.console_config import ConsoleConfig
from cordwood.console.web.client_connection import ClientConnection
from cordwood.console.web_app import web_app
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

_CONNECTIONS_MAX: Final = 500
_BACKLOG: Final = 128
_IDLE_S: Final = 20
_STOP_S: Final = 3
_HEADER_BYTES_MAX: Final = 32 * 1024


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `OSError` with what was tried."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(_BACKLOG)  # now, so that a second console on the port fails at once
    except OSError as error:
        opened.close()
        error.add_note(f"while opening the console on {host}:{port}")
        raise
    return opened


class ConsoleServer:
    """One console on one socket. `run` blocks; any thread may call `stop`."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._socket = listen(config.host, config.port)
        self.port: int = self._socket.getsockname()[1]
        self.config = config
        self._console: Console | None = None
        self._server: uvicorn.Server | None = None
        self._is_stopped = threading.Event()

    @property
    def address(self) -> str:
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{self.config.scheme}://{host}:{self.port}"

    def run(self, on_start: Callable[[str], None] | None = None) -> None:
        """Serve until `stop`, or a signal that the caller turns into it."""
        console = self._console = Console(replace(self.config, port=self.port))
        try:
            application = web_app(console)
            server = self._server = _Server(
                uvicorn.Config(
                    application,
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    date_header=True,
                    proxy_headers=False,
                    lifespan="off",
                    ws="none",
                    http=ClientConnection,
                    loop="asyncio",
                    limit_concurrency=_CONNECTIONS_MAX,
                    timeout_keep_alive=_IDLE_S,
                    timeout_graceful_shutdown=_STOP_S,
                    h11_max_incomplete_event_size=_HEADER_BYTES_MAX,
                    ssl_certfile=self.config.tls_certificate,
                    ssl_keyfile=self.config.tls_key,
                ),
            )
            console.start()
            if on_start is not None:
                server.when_started = lambda: on_start(self.address)
            if not self._is_stopped.is_set():
                server.run(sockets=[self._socket])
        finally:
            console.close()
            self._socket.close()

    def stop(self) -> None:
        """Safe to repeat, and from a signal handler."""
        self._is_stopped.set()
        if self._server is not None:
            self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: the caller has them."""

    when_started: Callable[[], None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.when_started is not None:
            self.when_started()


def end_with_parent(stop: Callable[[], None]) -> threading.Thread:
    """Call `stop` when standard input ends: the process that started this one has ended."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        stop()

    thread = threading.Thread(target=wait, name="cordwood-console-parent", daemon=True)
    thread.start()
    return thread
