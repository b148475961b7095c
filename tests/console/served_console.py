"""A console in this process, on a port of its own."""

import http.client
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from cordwood.console.console import Console
from cordwood.console.console_config import ConsoleConfig
from cordwood.console.console_server import ConsoleServer

START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """Talks to a console as a browser does, without being one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._cookie = ""

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._cookie:
            named.setdefault("Cookie", self._cookie)
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            if "set-cookie" in found:
                self._cookie = found["set-cookie"].partition(";")[0]
            return Answer(status=answer.status, headers=found, body=answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, **headers)

    def token(self, page: str = "/") -> str:
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.get(page).text)
        assert found is not None, page
        return found[1]

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        sent = {
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/x-www-form-urlencoded",
            **headers,
        }
        return self.send("POST", path, urlencode(fields).encode(), **sent)


class ServedConsole(Visitor):
    """A visitor of a console that runs in this process."""

    def __init__(self, server: ConsoleServer) -> None:
        super().__init__(server.port)
        self.server = server
        self.address = server.address
        self.login_status = 0

    @property
    def console(self) -> Console:
        assert self.server._console is not None
        return self.server._console


@contextmanager
def served(config: ConsoleConfig) -> Iterator[ServedConsole]:
    """A console, until the block ends."""
    server = ConsoleServer(config)
    has_started = threading.Event()
    thread = threading.Thread(
        target=server.run, kwargs={"on_start": lambda _: has_started.set()}, name="console"
    )
    thread.start()
    try:
        assert has_started.wait(START_S), "the console did not start"
        yield ServedConsole(server)
    finally:
        server.stop()
        thread.join(START_S)
        assert not thread.is_alive()
