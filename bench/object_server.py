"""An object store that speaks enough of S3's protocol for pyarrow, as quick as loopback allows.

python -m bench.object_server PORT DIRECTORY [--delay-ms MS] [--rate-mb MB]

Objects are files, and a range of one is sent by `sendfile`, so the interpreter sees requests and
not bytes. A thread serves each connection. Nothing is authenticated, and nothing is synced.

Several servers can share a directory: one that is quick, and one that is like a store across a
network, which waits before each answer and sends on each connection at a limited rate.
`GET /_requests` returns and forgets the requests since it was last called.
"""

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from bench.object_files import Objects
from bench.object_wire import ChunkDecoder, Request, parse_head, wanted_range
from bench.wire_load import HOST
from cordwood.quantities import KIB, MIB

ROOT = Path(__file__).resolve().parent.parent
_START_TIMEOUT_S: Final = 30.0
_HEAD_BYTES_MAX: Final = 64 * KIB
_RECEIVE_BYTES: Final = MIB
_PACED_BYTES: Final = 256 * KIB  # sent at once on a connection with a rate
_REQUESTS: Final = "/_requests"


# --- called by the suite ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """How a store answers. No rate: as quick as it can."""

    name: str
    delay_ms: float = 0.0
    rate_mb: float | None = None  # of one connection, per second

    @property
    def options(self) -> list[str]:
        rate = [] if self.rate_mb is None else ["--rate-mb", str(self.rate_mb)]
        return ["--delay-ms", str(self.delay_ms), *rate]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStore:
    """A server process, and what to ask it."""

    port: int
    pid: int

    def url(self, bucket: str) -> str:
        place = f"endpoint_override={HOST}:{self.port}&scheme=http&region=us-east-1"
        return f"s3://{bucket}/archive?{place}"

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of the requests since the last call."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}{_REQUESTS}", timeout=30) as answer:
            return [(method, path) for method, path in json.loads(answer.read())]


@contextmanager
def object_server(
    directory: Path, kind: StoreKind, port: int, *, command_prefix: Sequence[str] = ()
) -> Iterator[RunningStore]:
    """The server runs inside the `with`."""
    arguments = [str(port), str(directory), *kind.options]
    with subprocess.Popen(
        [*command_prefix, sys.executable, "-m", "bench.object_server", *arguments], cwd=ROOT
    ) as process:
        try:
            store = RunningStore(port=port, pid=process.pid)
            deadline = time.monotonic() + _START_TIMEOUT_S
            while True:
                try:
                    store.requests()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
            yield store
        finally:
            process.kill()


# --- in its process ---------------------------------------------------------------------------


class _Connection:
    """One client. For one thread."""

    def __init__(self, server: "ObjectServer", client: socket.socket) -> None:
        self._server = server
        self._client = client
        self._rest = b""  # received, not used yet

    def serve(self) -> None:
        while (head := self._head()) is not None:
            request = parse_head(head)
            if request.path == _REQUESTS:
                self._answer("200 OK", json.dumps(self._server.take_seen()).encode())
                continue
            self._server.note(request)
            if "100-continue" in request.headers.get("expect", ""):
                self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            getattr(self, f"_do_{request.method.lower()}")(request, request.path.strip("/"))

    # --- receiving ---------------------------------------------------------------------------

    def _head(self) -> bytes | None:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            assert len(self._rest) < _HEAD_BYTES_MAX, self._rest[:100]
            received = self._client.recv(_HEAD_BYTES_MAX)
            if not received:
                return None
            self._rest += received
        head, self._rest = self._rest[:end], self._rest[end + 4 :]
        return head

    def _body(self, request: Request) -> Iterator[memoryview]:
        """The pieces of the object, without frames: HTTP has some, and S3 its own inside."""
        pieces = self._chunks() if request.is_chunked else self._bytes(request.length)
        if not request.is_framed:
            yield from pieces
            return
        frames = ChunkDecoder()
        for piece in pieces:
            yield from frames.feed(piece)

    def _bytes(self, size: int) -> Iterator[memoryview]:
        taken, self._rest = self._rest[:size], self._rest[size:]
        if taken:
            yield memoryview(taken)
        left = size - len(taken)
        buffer = memoryview(bytearray(min(left, _RECEIVE_BYTES)))
        while left:
            got = self._receive(buffer[: min(left, len(buffer))])
            yield buffer[:got]
            left -= got

    def _chunks(self) -> Iterator[memoryview]:
        chunks, buffer = ChunkDecoder(), memoryview(bytearray(_RECEIVE_BYTES))
        rest, self._rest = self._rest, b""
        yield from chunks.feed(memoryview(rest))
        while not chunks.is_done:
            got = self._receive(buffer)
            yield from chunks.feed(buffer[:got])
        self._rest = chunks.rest

    def _receive(self, buffer: memoryview) -> int:
        got = self._client.recv_into(buffer)
        if not got:
            raise ConnectionError("the client left in the middle of a body")
        return got

    def _store(self, request: Request) -> tuple[Path, str]:
        """Write the body to a file; return it, and the MD5."""
        path, digest = self._server.objects.begin(), hashlib.md5(usedforsecurity=False)
        with path.open("wb", buffering=0) as file:
            for piece in self._body(request):
                digest.update(piece)
                written = 0
                while written < len(piece):
                    written += file.write(piece[written:])
        return path, digest.hexdigest()

    # --- requests ----------------------------------------------------------------------------

    def _do_put(self, request: Request, name: str) -> None:
        written, tag = self._store(request)
        objects, query = self._server.objects, request.query
        if "uploadId" in query:
            objects.finish_part(written, query["uploadId"], int(query["partNumber"]), tag)
        elif not objects.finish_if(written, name, tag, request.headers):
            self._answer("412 Precondition Failed", _error("PreconditionFailed"))
            return
        self._answer("200 OK", headers=[f'ETag: "{tag}"'])

    def _do_post(self, request: Request, name: str) -> None:
        for _ in self._body(request):
            pass
        bucket, _, key = name.partition("/")
        place = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key>"
        if "uploads" in request.query:
            what, more = (
                "InitiateMultipartUpload",
                f"<UploadId>{self._server.objects.begin_upload()}</UploadId>",
            )
        else:
            tag = self._server.objects.finish_upload(name, request.query["uploadId"])
            what, more = "CompleteMultipartUpload", f'<ETag>"{tag}"</ETag>'
        self._answer("200 OK", _xml(f"{what}Result", place + more))

    def _do_delete(self, request: Request, name: str) -> None:
        self._server.objects.delete(name)
        self._answer("204 No Content")

    def _do_head(self, request: Request, name: str) -> None:
        if "/" not in name:
            self._answer("200 OK")
            return
        self._send(request, name, has_body=False)

    def _do_get(self, request: Request, name: str) -> None:
        if "/" not in name:
            self._answer("200 OK", _listing(self._server.objects, name, request.query))
            return
        self._send(request, name, has_body=True)

    def _send(self, request: Request, name: str, *, has_body: bool) -> None:
        objects = self._server.objects
        try:
            size, modified_s = objects.size_and_time(name)
            tag = objects.tag(name)
        except FileNotFoundError:
            self._answer("404 Not Found", _error("NoSuchKey") if has_body else b"")
            return
        first, end, status = 0, size, "200 OK"
        headers = [
            f'ETag: "{tag}"',
            f"Last-Modified: {formatdate(modified_s, usegmt=True)}",
            "Accept-Ranges: bytes",
        ]
        if "range" in request.headers:
            part = wanted_range(request.headers["range"], size)
            if part is None:
                self._answer("416 Requested Range Not Satisfiable")
                return
            first, end = part
            status = "206 Partial Content"
            headers.append(f"Content-Range: bytes {first}-{end - 1}/{size}")
        self._answer(status, headers=headers, length=end - first)
        if has_body:
            self._send_files(objects.files(name), first, end)

    # --- sending -----------------------------------------------------------------------------

    def _answer(
        self,
        status: str,
        body: bytes = b"",
        *,
        headers: Sequence[str] = (),
        length: int | None = None,
    ) -> None:
        """The head of an answer, after the store's delay, and a small body."""
        if self._server.delay_s:
            time.sleep(self._server.delay_s)
        size = len(body) if length is None else length
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""]
        self._client.sendall("\r\n".join(lines).encode() + body)

    def _send_files(self, files: Sequence[Path], first: int, end: int) -> None:
        """Bytes [first, end) of the files, as if they were one."""
        began, sent, start = time.monotonic(), 0, 0
        for path in files:
            with path.open("rb", buffering=0) as file:
                stop = start + os.fstat(file.fileno()).st_size
                at = max(first, start)
                while at < min(end, stop):
                    sent += self._send_some(file.fileno(), at - start, min(end, stop) - at)
                    at = first + sent
                    self._pace(began, sent)
            start = stop
            if start >= end:
                return

    def _send_some(self, source: int, position: int, size: int) -> int:
        wanted = min(size, _PACED_BYTES) if self._server.rate else size
        return os.sendfile(self._client.fileno(), source, position, wanted)

    def _pace(self, began: float, sent: int) -> None:
        """Wait until `sent` bytes may have left."""
        if self._server.rate:
            time.sleep(max(began + sent / self._server.rate - time.monotonic(), 0))


class ObjectServer:
    """Accepts connections. `rate` is in bytes per second, 0 without a limit."""

    def __init__(self, directory: Path, *, delay_s: float = 0.0, rate: float = 0.0) -> None:
        self.objects = Objects(directory)
        self.delay_s = delay_s
        self.rate = rate
        self._lock = threading.Lock()
        self._seen: list[tuple[str, str]] = []

    def note(self, request: Request) -> None:
        with self._lock:
            self._seen.append((request.method, request.path))

    def take_seen(self) -> list[tuple[str, str]]:
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def serve(self, listener: socket.socket) -> None:
        """Serve until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(ConnectionError):
            _Connection(self, client).serve()


def _listing(objects: Objects, bucket: str, query: dict[str, str]) -> bytes:
    """All keys in one page."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    contents: list[str] = []
    folders: dict[str, None] = {}
    for name in objects.names(f"{bucket}/{prefix}"):
        key = name[len(bucket) + 1 :]
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            folders[prefix + rest[: rest.index(delimiter) + 1]] = None
            continue
        with suppress(FileNotFoundError):  # deleted meanwhile
            size, modified_s = objects.size_and_time(name)
            modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(modified_s))
            contents.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
                f'<ETag>"{objects.tag(name)}"</ETag><Size>{size}</Size></Contents>'
            )
    common = [f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders]
    count = len(contents) + len(common)
    return _xml(
        "ListBucketResult",
        f"<Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{count}</KeyCount><MaxKeys>1000000</MaxKeys><IsTruncated>false</IsTruncated>"
        + "".join([*contents, *common]),
    )


def _xml(name: str, inner: str) -> bytes:
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<?xml version="1.0"?><{name} xmlns="{space}">{inner}</{name}>'.encode()


def _error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'.encode()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.object_server")
    parser.add_argument("port", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--rate-mb", type=float, default=0.0, help="of each connection, per second")
    options = parser.parse_args(arguments)
    server = ObjectServer(
        options.directory, delay_s=options.delay_ms / 1e3, rate=options.rate_mb * 1e6
    )
    server.serve(socket.create_server((HOST, options.port), backlog=128))


if __name__ == "__main__":
    main(sys.argv[1:])
