"""After `close` every method of every handle raises `LogClosedError`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import LogClosedError
from cordwood.log.topics.group_session import ReaderOptions

# What a method is called with, by the names of its required parameters.
ARGUMENTS: dict[str, object] = {
    "start": "end",
    "name": "orders",
    "topic": "orders",
    "number": 0,
    "application": "app",
    "records": [(b"k", b"v")],
    "value": b"v",
    "key": b"k",
    "offset": 1,
    "offsets": {("orders", 0): 1},
    "timestamp_ms": 0,
    "path": "copy",
    "url": "file:///archive",
    "names": ["orders"],
    "isolation": "read_committed",
    "transactional_id": "billing",
    "now_ms": 0,
    "options": ReaderOptions(),
}
# These end a handle, tell whether it has ended, or are facts that need no open file. The last ones
# are called by the store itself.
ALLOWED = {
    "close", "abandon", "is_closed", "partition", "has_partition", "view",
    "opened", "add_log", "add_partitions", "end", "reconfigure", "attach_archive",
    "check_current", "refresh", "choose_partition", "host", "is_here", "replace_log",
    "split_by_partition",
}  # fmt: skip
# Plans that only a store makes.
INTERNAL = {"cleaned_up_to", "forecast_compaction"}


def methods(handle: object) -> Iterator[tuple[str, Callable[..., object]]]:
    for name, _ in inspect.getmembers(type(handle), inspect.isfunction):
        if not name.startswith("_") and name not in ALLOWED | INTERNAL:
            yield f"{type(handle).__name__}.{name}", getattr(handle, name)


def call(method: Callable[..., object]) -> None:
    required = {
        parameter.name: ARGUMENTS[parameter.name]
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    if "application" in required:
        required["records"] = {("orders", 0): [(b"k", b"v")]}
    result = method(**required)
    if inspect.isgenerator(result) or isinstance(result, Iterator):
        next(result)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders").append(b"v", key=b"k")
        store.group("readers").commit({("orders", 0): 1})
    return tmp_path / "data"


@pytest.mark.parametrize("read_only", [True, False])
def test_every_method_of_every_handle_raises_alike_after_close(
    path: Path, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    store = cordwood.open(path, read_only=True) if read_only else cordwood.open(path)
    topic = store.topic("orders")
    handles: list[object] = [store, topic, topic.partition(0), store.group("readers")]
    store.close()
    found: dict[str, object] = {}

    for handle in handles:
        for name, method in methods(handle):
            try:
                call(method)
            except LogClosedError as error:
                found[name] = "is closed" in str(error)
            except Exception as error:
                found[name] = repr(error)
            else:
                found[name] = "nothing raised"

    assert len(found) > 20
    assert {name: what for name, what in found.items() if what is not True} == {}


def test_a_closed_read_only_log_reads_no_file(path: Path) -> None:
    store = cordwood.open(path, read_only=True)
    log = store.topic("orders").partition(0)
    store.close()

    for name in ("high_watermark", "start_offset", "size_bytes"):
        with pytest.raises(LogClosedError):
            getattr(log, name)
