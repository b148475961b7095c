"""The object store of the archive suite, asked by pyarrow and by plain requests."""

from __future__ import annotations

import random
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from bench.archive import row_makers
from bench.object_server import ObjectServer, RunningStore, StoreKind, object_server
from bench.object_wire import ChunkDecoder, parse_head, wanted_range
from bench.wire_load import HOST
from cordwood.archive.objects.arrow_objects import ArrowObjects
from cordwood.archive.objects.content_checksum import content_checksum
from cordwood.archive.objects.object_store import ObjectStore
from cordwood.quantities import KIB, MIB
from fakes.object_store_rules import ObjectStoreRules
from fakes.reserved_port import reserved_port


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    # A process of its own: pyarrow may wait for an answer while it holds the interpreter's lock.
    directory = tmp_path_factory.mktemp("objects")
    with (
        reserved_port() as port,
        object_server(directory, StoreKind(name="quick"), port) as store,
    ):
        yield store


@pytest.fixture
def store(running: RunningStore, monkeypatch: pytest.MonkeyPatch) -> RunningStore:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return running


@pytest.fixture
def bucket() -> str:
    return f"test-{uuid4().hex}"


class TestAsAnArchiveSeesIt(ObjectStoreRules):
    @pytest.fixture
    def objects(self, store: RunningStore, bucket: str) -> ObjectStore:
        return ArrowObjects(store.url(bucket))


@pytest.mark.parametrize("size", [0, 1, 10 * MIB - 1, 10 * MIB, 25 * MIB])
def test_the_tag_is_the_checksum_of_s3(store: RunningStore, bucket: str, size: int) -> None:
    objects = ArrowObjects(store.url(bucket))
    content = random.Random(size).randbytes(size)

    objects.put("some/key", [content])

    assert objects.checksum_part_bytes is not None
    assert objects.checksum("some/key") == content_checksum(content, objects.checksum_part_bytes)
    assert b"".join(objects.read("some/key")) == content


def test_requests_are_counted_until_they_are_asked_for(store: RunningStore, bucket: str) -> None:
    objects = ArrowObjects(store.url(bucket))
    objects.put("a", [b"0123456789"])
    store.requests()

    assert objects.get_range("a", 2, 3) == b"234"

    asked = [("HEAD", f"/{bucket}/archive/a"), ("GET", f"/{bucket}/archive/a")]
    assert store.requests() == asked
    assert store.requests() == []


def test_a_missing_object_is_an_error_of_the_client(store: RunningStore) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(f"http://{HOST}:{store.port}/bucket/missing")
    refused.value.close()


def test_an_answer_takes_the_delay_and_the_rate_of_the_store(tmp_path: Path) -> None:
    server = ObjectServer(tmp_path, delay_s=0.02, rate=10e6)
    written = server.objects.begin()
    written.write_bytes(bytes(MIB))
    server.objects.finish(written, "bucket/a", "tag")
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()

        began = time.monotonic()
        address = f"http://{HOST}:{listener.getsockname()[1]}/bucket/a"
        with urllib.request.urlopen(address) as answer:
            content = answer.read()
        taken_s = time.monotonic() - began
        listener.shutdown(socket.SHUT_RDWR)

    assert content == bytes(MIB)
    assert taken_s >= 0.02 + (MIB - 256 * KIB) / 10e6


@pytest.mark.parametrize("portion", [1, 2, 3, 7, 100])
def test_frames_are_taken_off_whatever_portions_they_come_in(portion: int) -> None:
    stream = b"5;sig=x\r\nab\r\nc\r\n3\r\ndef\r\n0\r\nsome:trailer\r\n\r\nnext"
    decoder = ChunkDecoder()

    pieces = b"".join(
        bytes(piece)
        for at in range(0, len(stream), portion)
        for piece in decoder.feed(memoryview(stream)[at : at + portion])
    )

    assert pieces == b"ab\r\ncdef"
    assert decoder.is_done
    assert b"next".endswith(decoder.rest)


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-3", (0, 4)),
        ("bytes=4-", (4, 10)),
        ("bytes=8-99", (8, 10)),
        ("bytes=10-11", None),
        ("lines=1-2", None),
    ],
)
def test_a_range_is_cut_off_at_the_end(header: str, wanted: tuple[int, int] | None) -> None:
    assert wanted_range(header, 10) == wanted


def test_names_of_headers_are_in_lower_case() -> None:
    request = parse_head(b"PUT /b/a%20b?uploadId=7&x HTTP/1.1\r\nContent-Length: 12\r\nA: b:c")

    assert (request.method, request.path, request.length) == ("PUT", "/b/a b", 12)
    assert request.query == {"uploadId": "7", "x": ""}
    assert request.headers["a"] == "b:c"
    assert not request.is_chunked


def test_the_suite_has_a_row_for_each_store_and_kind_of_work() -> None:
    assert list(row_makers()) == [
        "one record",
        "scan near",
        "scan far",
        "small segment",
        "archiving",
    ]
