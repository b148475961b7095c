"""An archive that does not answer: calls end, other archives go on, and a store closes."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.objects import arrow_objects
from cordwood.archive.objects.object_store import (
    LocalObjects,
    ObjectStore,
    endpoint,
    open_object_store,
)
from cordwood.archive.store_archives import StoreArchives
from cordwood.clock import SystemClock
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.log.store.store import Store, StoreSetup
from cordwood.storage.files import FileSystem, RealFileSystem
from fakes.silent_objects import SilentObjects

SILENT = "s3://silent/archive"


class Bench:
    """A store with a topic in a silent archive and one in an archive that works."""

    def __init__(self, directory: Path) -> None:
        fs, clock = RealFileSystem(), SystemClock()
        self.silent = SilentObjects(SILENT)
        self.answering = LocalObjects(fs, str(directory / "archive"))
        cache = SegmentCache(fs, str(directory / "cache"), bytes_max=CACHE_BYTES)
        self.archives = StoreArchives(fs=fs, clock=clock, cache=cache, open_objects=self._open)
        setup = StoreSetup(archives=self.archives, has_housekeeping=False, free_bytes_min=0)
        self.store = Store([str(directory / "data")], setup)
        for name, url in (("a", SILENT), ("b", self.answering.url)):
            topic = self.store.create_topic(name, config={"archive.url": url, "segment.records": 1})
            for value in (b"one", b"two", b"three"):
                topic.append(value)

    def _open(self, url: str, fs: FileSystem) -> ObjectStore:
        return self.silent if url == SILENT else self.answering


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.silent.give_up()
    bench.store.close()


def test_an_archive_that_is_silent_holds_up_no_other(bench: Bench) -> None:
    archived: dict[str, int] = {}
    for _ in range(100):  # one or two passes, unless the machine is busy
        bench.archives.run(bench.store, patience_s=0.2)
        archived = {status.topic: status.segment_count for status in bench.store.archive_status()}
        if archived["b"] == 2:
            break

    assert bench.silent.called.is_set()
    assert archived == {"a": 0, "b": 2}


def test_a_store_closes_without_waiting_longer_for_it_than_told(bench: Bench) -> None:
    bench.archives.run(bench.store, patience_s=0.1)
    began_s = time.monotonic()

    bench.store.close(archive_timeout_s=0.2)

    assert time.monotonic() - began_s < 10
    assert bench.store.is_closed


def test_a_pass_that_was_asked_for_waits_until_the_store_closes(bench: Bench) -> None:
    bench.archives.run(bench.store, ["b"])
    assert bench.store.archive_status()[1].segment_count == 2


def test_nothing_is_recorded_in_an_archive_after_the_store_was_closed(bench: Bench) -> None:
    bench.archives.run(bench.store, ["b"])
    before = {info.key: info.modified_ms for info in bench.answering.listing("")}
    bench.store.topic("b").append(b"four")
    bench.archives.close(0)

    bench.archives.run(bench.store, ["b"])

    assert {info.key: info.modified_ms for info in bench.answering.listing("")} == before


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are accepted and nothing is ever sent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_call_to_a_silent_s3_ends_and_the_next_ones_fail_at_once(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    answer_s = 1.0
    monkeypatch.setattr(arrow_objects, "_ANSWER_S", answer_s)
    monkeypatch.setattr(arrow_objects, "_ATTEMPTS", 1)
    monkeypatch.setattr(arrow_objects, "_SLOW_S", 0.5)
    options = f"endpoint_override=127.0.0.1:{silent_port}&scheme=http&region=us-east-1"
    objects = open_object_store(f"s3://bucket/archive?{options}", RealFileSystem())
    with pytest.raises(OSError, match="archive/key"):
        objects.size("key")
    began_s = time.monotonic()

    with pytest.raises(TimeoutError, match="does not answer"):
        objects.size("key")

    assert time.monotonic() - began_s < answer_s


def test_archives_on_one_server_take_turns() -> None:
    assert endpoint("s3://bucket/a?region=x") == endpoint("s3://bucket/b/c?region=x")
    assert endpoint("s3://bucket/a?region=x") != endpoint("s3://bucket/a?region=y")
    assert endpoint("s3://bucket/a") != endpoint("s3://other/a")
