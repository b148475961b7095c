"""The set-up of the archive suite: object stores on one core, the library on another."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cordwood
from bench.broker_servers import free_port
from bench.measure import Context
from bench.object_files import Objects
from bench.object_server import RunningStore, StoreKind, object_server
from bench.pinning import Cores, choose_cores, client_pinned
from bench.wire_load import HOST
from bench.workload import TOPIC, Values, fresh_path, make_values
from cordwood.archive.fetching.fetch_threads import THREADS_MAX
from cordwood.archive.manifests.block_sums import BLOCK_BYTES
from cordwood.archive.objects.object_port import PIECE_BYTES
from cordwood.archive.opened_archive import open_archive
from cordwood.log.beside.archived_log import ArchivedLog
from cordwood.log.store.store import Store
from cordwood.quantities import KIB, MIB

if TYPE_CHECKING:
    import pyarrow.fs as pafs

NEAR: Final = StoreKind(name="a store on this machine")
FAR: Final = StoreKind(name="a store across a network", delay_ms=20, rate_mb=80)
SEGMENT_BYTES: Final = 256 * MIB

_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_CONFIG: Final = {
    "durability": "os",
    "archive.after.ms": 0,
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
}
_BUCKET: Final = "bench"


class ArchiveStage:
    """The object stores of one run. They share their objects, and run until the end."""

    def __init__(self) -> None:
        self._stores: dict[str, RunningStore] = {}
        self._cores: Cores | None = None
        self._filled: str | None = None
        self._directory: Path | None = None
        self._number = 0

    def store(self, context: Context, kind: StoreKind) -> RunningStore:
        self._set_up(context)
        return self._stores[kind.name]

    def _set_up(self, context: Context) -> None:
        if self._stores:
            return
        self._cores = choose_cores()
        if self._cores is None:
            context.say("stores and library are not pinned: this needs taskset and two cores")
        prefix = () if self._cores is None else self._cores.server_prefix
        resources = context.resources
        resources.enter_context(client_pinned(self._cores))
        resources.enter_context(_environment(context.directory))
        self._directory = fresh_path(context.directory, "objects")
        for kind in (NEAR, FAR):
            server = object_server(self._directory, kind, free_port(), command_prefix=prefix)
            self._stores[kind.name] = resources.enter_context(server)
        context.facts["pinned"] = (
            "no"
            if self._cores is None
            else f"object stores to core {self._cores.server}, the library to {self._cores.client}"
        )
        context.facts["stores"] = (
            f"{NEAR.name}: no delay; {FAR.name}: {FAR.delay_ms:.0f} ms before each answer, "
            f"{FAR.rate_mb:.0f} MB/s for each connection"
        )

    def empty(self, bucket: str) -> None:
        """Delete what is in the bucket, so that its memory can be used again."""
        assert self._directory is not None
        objects = Objects(self._directory)
        for name in objects.names(f"{bucket}/"):
            objects.delete(name)

    def new_bucket(self) -> str:
        self._number += 1
        return f"{_BUCKET}-{self._number}"

    def filled(self, context: Context) -> str:
        """The bucket with the archive that is read, filled once: segments of 256 MiB."""
        if self._filled is None:
            bucket = self.new_bucket()
            url = self.store(context, NEAR).url(bucket)
            total = context.pick(1024, 256) * MIB
            with stored(context, url, make_values(KIB), total) as store:
                archive(store)
            self._filled = bucket
        return self._filled


@contextmanager
def _environment(directory: Path) -> Iterator[None]:
    """Keys for the stores, and caches on the measured disk."""
    before = {name: os.environ.get(name) for name in _KEYS}
    before_directory = tempfile.tempdir
    os.environ.update(_KEYS)
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before_directory
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def stored(
    context: Context, url: str, values: Values, total: int, config: dict[str, object] | None = None
) -> Iterator[Store]:
    """A store with one synced log of `total` bytes, all of it in sealed segments.

    Nothing is archived yet. It is deleted afterwards.
    """
    path = fresh_path(context.directory, "store")
    with cordwood.open(path) as store:
        sizes = {"segment.bytes": 2 * SEGMENT_BYTES, "archive.url": url}  # rolled below
        topic = store.create_topic(TOPIC, config={**_CONFIG, **sizes, **(config or {})})
        log = topic.partition(0)
        per_segment = SEGMENT_BYTES // values.size
        done = 0
        for pairs in values.calls(total // values.size):
            topic.append_many(pairs)
            done += len(pairs)
            if done % per_segment == 0:
                log.roll()
        log.sync()
        yield store
    shutil.rmtree(path)


def archive(store: Store) -> None:
    for status in store.archive_now():
        assert status.last_error is None, status


@contextmanager
def archived_log(url: str) -> Iterator[ArchivedLog]:
    """The log in an archive, with an empty cache."""
    with open_archive(url) as opened:
        yield opened.topic(TOPIC).partition(0)


# --- what the client library does by itself ---------------------------------------------------


def plain_files(store: RunningStore, bucket: str) -> "tuple[pafs.S3FileSystem, list[Any]]":
    """The log files in the archive, as the client library opens them."""
    import pyarrow.fs as arrow_fs

    fs = plain_client(store)
    selector = arrow_fs.FileSelector(f"{bucket}/archive", recursive=True)
    infos: list[Any] = list(fs.get_file_info(selector))
    paths = sorted(str(info.path) for info in infos if str(info.path).endswith(".log"))
    return fs, [fs.open_input_file(path) for path in paths]


def plain_client(store: RunningStore) -> "pafs.S3FileSystem":
    import pyarrow.fs as arrow_fs

    kind: Any = arrow_fs.S3FileSystem  # its stubs do not know all options
    client: pafs.S3FileSystem = kind(
        endpoint_override=f"{HOST}:{store.port}",
        scheme="http",
        region="us-east-1",
        allow_delayed_open=True,
    )
    return client


def fetch_plainly(files: "list[Any]", *, is_hashed: bool = False) -> int:
    """Fetch the files in ranges and with threads as the archive does, and forget the bytes.

    With `is_hashed`, compute the SHA-256 of each block, which is what verification takes at least.
    """

    def fetch(part: tuple[Any, int, int]) -> int:
        file, at, size = part
        data = memoryview(file.read_at(size, at))
        if is_hashed:
            for start in range(0, size, BLOCK_BYTES):
                hashlib.sha256(data[start : start + BLOCK_BYTES]).digest()
        return len(data)

    parts = [
        (file, at, min(PIECE_BYTES, file.size() - at))
        for file in files
        for at in range(0, file.size(), PIECE_BYTES)
    ]
    with ThreadPoolExecutor(THREADS_MAX) as threads:
        return sum(threads.map(fetch, parts))


def put_plainly(fs: "pafs.S3FileSystem", path: str, pieces: "Callable[[], Iterator[bytes]]") -> int:
    """Upload the pieces as one object."""
    size = 0
    with fs.open_output_stream(path) as stream:
        for piece in pieces():
            stream.write(piece)
            size += len(piece)
    return size
