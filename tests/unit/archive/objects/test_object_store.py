"""Objects as files, and how URLs are read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.archive.objects.object_store import (
    LocalObjects,
    ObjectStore,
    get,
    open_object_store,
    shown_url,
)
from cordwood.errors import ConfigError
from cordwood.storage.files import RealFileSystem
from fakes.object_store_rules import ObjectStoreRules
from fakes.simulated_fs import SimulatedFileSystem


class TestOnASimulatedDisk(ObjectStoreRules):
    @pytest.fixture
    def objects(self) -> ObjectStore:
        return LocalObjects(SimulatedFileSystem(), "/archive")


class TestOnTheRealDisk(ObjectStoreRules):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return open_object_store(tmp_path.as_uri() + "/a%20b", RealFileSystem())

    def test_the_url_is_decoded(self, tmp_path: Path, objects: ObjectStore) -> None:
        objects.put("key", [b"1"])

        assert (tmp_path / "a b" / "key").read_bytes() == b"1"


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_leaves_the_old_object_or_the_new(seed: int) -> None:
    rng = random.Random(seed)
    fs = SimulatedFileSystem()
    LocalObjects(fs, "/archive").put("t/manifest", [b"old"])
    cut_at = fs.calls + rng.randrange(1, 9)
    left: list[SimulatedFileSystem] = []

    def watch(_operation: str, _path: str) -> None:
        if fs.calls >= cut_at and not left:
            fs.watch = None
            left.append(fs.crash(rng))

    fs.watch = watch
    LocalObjects(fs, "/archive").put("t/manifest", [b"new ", b"one"])
    fs.watch = None

    after = LocalObjects(left[0] if left else fs.crash(rng), "/archive")
    assert get(after, "t/manifest", limit=10) in {b"old", b"new one"}


def test_a_put_is_durable_on_return() -> None:
    fs = SimulatedFileSystem()
    LocalObjects(fs, "/new/archive").put("t/1/a", [b"content"])

    for seed in range(10):
        after = LocalObjects(fs.crash(random.Random(seed)), "/new/archive")
        assert get(after, "t/1/a", limit=10) == b"content"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:secret@bucket/dir?region=x&secret_key=y", "s3://bucket/dir"),
        ("s3://bucket/dir/", "s3://bucket/dir"),
        ("file:///srv/archive", "file:///srv/archive"),
    ],
)
def test_secrets_are_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("url", ["", "/srv/archive", "file://host/dir", "file:dir", "s3:///dir"])
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"archive\.url"):
        open_object_store(url, RealFileSystem())


def test_a_scheme_nobody_knows_is_refused_when_it_is_used() -> None:
    objects = open_object_store("gopher://hole/dir", RealFileSystem())

    with pytest.raises(ConfigError, match="gopher"):
        objects.size("key")
