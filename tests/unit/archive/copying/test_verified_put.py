"""An object counts as put only if the store proves that it has it: by a checksum or its bytes."""

from collections.abc import Iterable

import pytest

from cordwood.archive.copying.verified_put import VerifiedPut
from cordwood.archive.objects.content_checksum import content_checksum
from cordwood.archive.objects.object_store import LocalObjects, get
from cordwood.errors import StorageError
from cordwood.storage.files import Buffer
from fakes.failing_objects import FailingObjects
from fakes.simulated_fs import SimulatedFileSystem


class ChecksumObjects(LocalObjects):
    """Keeps checksums as S3 does; with `other`, those of a bucket with a key of the customer.

    `loses` drops the last byte of everything that is put.
    """

    def __init__(self, *, other: bool = False, loses: bool = False) -> None:
        super().__init__(SimulatedFileSystem(), "/archive")
        self._is_other = other
        self._loses = loses
        self.is_trusted = True

    @property
    def checksum_part_bytes(self) -> int | None:
        return 1000 if self.is_trusted else None

    def checksum(self, key: str) -> str | None:
        found = content_checksum(get(self, key, limit=1 << 20), 1000)
        return found[::-1] if self._is_other else found

    def distrust_checksums(self) -> None:
        self.is_trusted = False

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        whole = b"".join(map(bytes, pieces))
        super().put(key, [whole[:-1] if self._loses else whole])


def put(inner: LocalObjects, content: bytes = b"0123456789" * 250) -> FailingObjects:
    objects = FailingObjects(inner)
    verified = VerifiedPut(objects, "a/b", lambda: None)
    verified.run([content[:700], content[700:]])
    assert verified.size == len(content)
    return objects


def calls(objects: FailingObjects) -> list[str]:
    return [name for name, _ in objects.call_log]


def test_a_store_with_checksums_is_not_read_back() -> None:
    assert calls(put(ChecksumObjects())) == ["put", "checksum"]


def test_a_store_without_checksums_is_read_back() -> None:
    assert calls(put(LocalObjects(SimulatedFileSystem(), "/archive"))) == ["put", "read"]


def test_checksums_of_another_kind_prove_nothing_and_are_not_asked_for_again() -> None:
    inner = ChecksumObjects(other=True)

    assert calls(put(inner)) == ["put", "checksum", "read"]
    assert calls(put(inner)) == ["put", "read"]


@pytest.mark.parametrize("other", [False, True])
def test_an_object_that_is_not_what_was_put_is_an_error(other: bool) -> None:
    with pytest.raises(StorageError, match="2499 bytes were read back, 2500 bytes were put"):
        put(ChecksumObjects(other=other, loses=True))


def test_it_stops_between_pieces_when_told() -> None:
    def stop() -> None:
        raise InterruptedError

    objects = FailingObjects(ChecksumObjects())

    with pytest.raises(InterruptedError):
        VerifiedPut(objects, "a/b", stop).run([b"x"])
