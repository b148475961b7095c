"""`cordwood.open` and the names of the package: the front door."""

import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ConfigError, StorageError


def test_a_store_is_opened_created_and_read_back(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data", config={"durability": "os"}) as store:
        orders = store.create_topic("orders", partitions=3)
        where = orders.append(b"paid", key=b"user:42", headers=[("src", b"web")])
        assert orders.config.durability == "os"

    with cordwood.open(str(tmp_path / "data")) as store:
        log = store.topic("orders").partition(where.partition)
        [record] = log.read()
    assert record == cordwood.Record(
        b"paid", b"user:42", [("src", b"web")], where.timestamp_ms, where.offset
    )


def test_further_directories_share_the_partitions(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "a", data_dirs=[tmp_path / "b"]) as store:
        store.create_topic("orders", partitions=2)

    assert sorted(path.name for path in tmp_path.glob("*/orders-*")) == ["orders-0", "orders-1"]
    assert (tmp_path / "b" / "meta.properties").exists()


def test_a_reader_takes_no_lock_and_creates_nothing(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("orders").append(b"x")
        with cordwood.open(tmp_path, read_only=True) as reader:
            assert [r.value for r in reader.topic("orders").partition(0).read()] == [b"x"]
    with pytest.raises(StorageError):
        cordwood.open(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()


def test_an_unknown_key_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retention"):
        cordwood.open(tmp_path / "data", config={"retention.msec": 5})

    assert not (tmp_path / "data").exists()


def test_every_public_name_is_there() -> None:
    for name in cordwood.__all__:
        assert getattr(cordwood, name) is not None
    assert set(cordwood.__all__) <= set(dir(cordwood))
    with pytest.raises(AttributeError):
        cordwood.no_such_name  # noqa: B018


def test_importing_the_package_imports_next_to_nothing() -> None:
    script = (
        "import sys, cordwood; "
        "print(sorted(m for m in sys.modules if 'arrow' in m or 'cordwood.' in m))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.strip() == "[]"
