"""An object store that speaks enough of S3's protocol for pyarrow, as quick as loopback allows.

python -m bench.object_server PORT DIRECTORY [--delay-ms MS] [--rate-mb MB]

Objects are files, and a range of one is sent by `sendfile`, so the interpreter sees requests and
not bytes. A thread serves each connection. Nothing is authenticated, and nothing is synced.

    DIRECTORY/objects/NAME    the bytes; NAME is the quoted bucket and key
    DIRECTORY/tags/NAME       the ETag: the MD5, or that of the parts' MD5s
    DIRECTORY/parts/          parts of uploads that are not complete

Several servers can share a directory: one that is quick, and one that is like a store across a
network, which waits before each answer and sends on each connection at a limited rate.
`GET /_requests` returns and forgets the requests since it was last called.
"""

import argparse
import hashlib
import json
import os
import re
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
from urllib.parse import parse_qs, quote, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

from bench.wire_load import HOST
from cordwood.quantities import KIB, MIB

ROOT = Path(__file__).resolve().parent.parent
_START_TIMEOUT_S: Final = 30.0
_HEAD_BYTES_MAX: Final = 64 * KIB
_LINE_BYTES_MAX: Final = 4 * KIB
_RECEIVE_BYTES: Final = MIB
_PACED_BYTES: Final = 256 * KIB  # sent at once on a connection with a rate
_ALL: Final = 1 << 40
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The head of a request. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")

    @property
    def is_framed(self) -> bool:
        """Whether the body has the frames of S3, with a checksum at its end."""
        return "x-amz-decoded-content-length" in self.headers


def parse_head(head: bytes) -> Request:
    """The head without the empty line at its end."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    parts = urlsplit(target)
    pairs = (line.partition(":") for line in lines)
    return Request(
        method=method,
        path=unquote(parts.path),
        query={k: v[-1] for k, v in parse_qs(parts.query, keep_blank_values=True).items()},
        headers={name.strip().lower(): value.strip() for name, _, value in pairs},
    )


def wanted_range(header: str, size: int) -> tuple[int, int] | None:
    """[first, end) of a Range header; None if the object has none of it."""
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", header)
    if found is None:
        return None
    first = int(found[1])
    end = min(int(found[2]) + 1 if found[2] else size, size)
    return (first, end) if first < end else None


class ChunkDecoder:
    """Takes the frames off chunks: a line with the size, the bytes, an empty line; at the end lines
    of trailers. Its input may come in any portions."""

    def __init__(self) -> None:
        self._line = b""
        self._left = 0  # bytes of the chunk
        self._is_last = False
        self._is_between = False  # the line after a chunk is next
        self.is_done = False
        self.rest = b""  # what came after the end

    def feed(self, data: memoryview) -> Iterator[memoryview]:
        """The bytes in `data` that are not frames."""
        while data and not self.is_done:
            if self._left:
                taken, data = data[: self._left], data[self._left :]
                self._left -= len(taken)
                self._is_between = not self._left
                yield taken
                continue
            end = bytes(data[:_LINE_BYTES_MAX]).find(b"\n") + 1
            taken, data = data[: end or len(data)], data[end or len(data) :]
            self._line += bytes(taken)
            if end:
                line, self._line = self._line.strip(), b""
                self._end_line(line)
        if self.is_done:
            self.rest += bytes(data)

    def _end_line(self, line: bytes) -> None:
        if self._is_between:
            self._is_between = False
        elif self._is_last:
            self.is_done = not line  # other lines are trailers, which nobody looks at here
        else:
            self._left = int(line.partition(b";")[0], 16)
            self._is_last = not self._left


class Objects:
    """The files of the store. Any thread may use it, and several processes."""

    def __init__(self, directory: Path) -> None:
        self._objects = directory / "objects"
        self._tags = directory / "tags"
        self._parts = directory / "parts"
        self._lock = threading.Lock()
        for each in (self._objects, self._tags, self._parts):
            each.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self._objects / quote(name, safe="")

    def tag(self, name: str) -> str:
        return (self._tags / quote(name, safe="")).read_text()

    def begin(self) -> Path:
        """Where to write the bytes of a new object or part."""
        return self._parts / uuid4().hex

    def finish(self, written: Path, name: str, tag: str) -> None:
        (self._tags / quote(name, safe="")).write_text(tag)
        written.replace(self.path(name))

    def finish_if(self, written: Path, name: str, tag: str, headers: dict[str, str]) -> bool:
        """The same, if the object is what the headers of a conditional put say."""
        with self._lock:
            try:
                found = self.tag(name)
            except FileNotFoundError:
                found = None
            wanted = headers.get("if-match")
            if wanted not in (None, f'"{found}"', found) or (found and "if-none-match" in headers):
                written.unlink()
                return False
            self.finish(written, name, tag)
            return True

    def part(self, upload: str, number: int) -> Path:
        return self._parts / f"{upload}-{number:05d}"

    def finish_part(self, written: Path, upload: str, number: int, tag: str) -> None:
        part = self.part(upload, number)
        part.with_suffix(".tag").write_text(tag)
        written.replace(part)

    def join(self, name: str, upload: str) -> str:
        """Make an object of the parts; return its tag."""
        parts = sorted(each for each in self._parts.glob(f"{upload}-*") if not each.suffix)
        tags = b"".join(bytes.fromhex(part.with_suffix(".tag").read_text()) for part in parts)
        joined = parts[0]
        with joined.open("r+b") as target:
            target.seek(0, os.SEEK_END)
            for part in parts[1:]:
                with part.open("rb") as source:
                    while os.copy_file_range(source.fileno(), target.fileno(), MIB * 64):
                        pass
        tag = f"{hashlib.md5(tags, usedforsecurity=False).hexdigest()}-{len(parts)}"
        for part in parts:
            part.with_suffix(".tag").unlink()
            if part != joined:
                part.unlink()
        self.finish(joined, name, tag)
        return tag

    def delete(self, name: str) -> None:
        for folder in (self._objects, self._tags):
            (folder / quote(name, safe="")).unlink(missing_ok=True)

    def names(self, prefix: str) -> list[str]:
        return sorted(n for n in map(unquote, os.listdir(self._objects)) if n.startswith(prefix))


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
            what, more = "InitiateMultipartUpload", f"<UploadId>{uuid4().hex}</UploadId>"
        else:
            tag = self._server.objects.join(name, request.query["uploadId"])
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
            file = objects.path(name).open("rb", buffering=0)
        except FileNotFoundError:
            self._answer("404 Not Found", _error("NoSuchKey") if has_body else b"")
            return
        with file:
            found = os.fstat(file.fileno())
            first, end, status = 0, found.st_size, "200 OK"
            headers = [
                f'ETag: "{objects.tag(name)}"',
                f"Last-Modified: {formatdate(found.st_mtime, usegmt=True)}",
                "Accept-Ranges: bytes",
            ]
            if "range" in request.headers:
                part = wanted_range(request.headers["range"], found.st_size)
                if part is None:
                    self._answer("416 Requested Range Not Satisfiable")
                    return
                first, end = part
                status = "206 Partial Content"
                headers.append(f"Content-Range: bytes {first}-{end - 1}/{found.st_size}")
            self._answer(status, headers=headers, length=end - first)
            if has_body:
                self._send_file(file.fileno(), first, end)

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

    def _send_file(self, source: int, first: int, end: int) -> None:
        rate, began, at = self._server.rate, time.monotonic(), first
        while at < end:
            at += os.sendfile(
                self._client.fileno(), source, at, min(end - at, _PACED_BYTES if rate else _ALL)
            )
            if rate and at < end:
                time.sleep(max(began + (at - first) / rate - time.monotonic(), 0))


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
            found = objects.path(name).stat()
            modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.st_mtime))
            contents.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
                f'<ETag>"{objects.tag(name)}"</ETag><Size>{found.st_size}</Size></Contents>'
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
