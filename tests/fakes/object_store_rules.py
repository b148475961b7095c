"""What every object store promises, as tests: subclass, and give `objects`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.archive.objects.object_port import ConditionalObjects
from cordwood.archive.objects.object_store import PIECE_BYTES, ObjectStore, get
from cordwood.errors import LimitExceededError


class ObjectStoreRules:
    """Inherited by the test class of each kind of store."""

    def test_what_was_put_is_read_back(self, objects: ObjectStore) -> None:
        objects.put("a/b/one", [b"some ", b"bytes"])

        assert get(objects, "a/b/one", limit=100) == b"some bytes"
        assert objects.size("a/b/one") == 10

    def test_an_object_may_be_empty(self, objects: ObjectStore) -> None:
        objects.put("a/empty", [])

        assert get(objects, "a/empty", limit=0) == b""

    def test_large_objects_come_in_pieces(self, objects: ObjectStore) -> None:
        content = bytes(range(256)) * (PIECE_BYTES // 128)
        objects.put("large", [content[:1000], content[1000:]])

        pieces = list(objects.read("large"))

        assert b"".join(pieces) == content
        assert max(map(len, pieces)) <= PIECE_BYTES

    def test_a_put_replaces_what_was_there(self, objects: ObjectStore) -> None:
        objects.put("a/one", [b"the first, longer one"])

        objects.put("a/one", [b"second"])

        assert get(objects, "a/one", limit=100) == b"second"

    @pytest.mark.parametrize(
        ("position", "size", "found"), [(0, 3, b"012"), (7, 9, b"789"), (10, 5, b""), (99, 1, b"")]
    )
    def test_a_range_ends_with_the_object(
        self, objects: ObjectStore, position: int, size: int, found: bytes
    ) -> None:
        objects.put("digits", [b"0123456789"])

        assert objects.get_range("digits", position, size) == found

    def test_what_is_not_there_is_a_file_not_found(self, objects: ObjectStore) -> None:
        for ask in (
            lambda: list(objects.read("no/such")),
            lambda: objects.size("no/such"),
            lambda: objects.get_range("no/such", 0, 1),
        ):
            with pytest.raises(FileNotFoundError):
                ask()

    def test_more_than_the_limit_is_not_held(self, objects: ObjectStore) -> None:
        objects.put("large", [b"x" * 100])

        with pytest.raises(LimitExceededError):
            get(objects, "large", limit=99)

    def test_the_listing_is_of_everything_below(self, objects: ObjectStore) -> None:
        for key in ("t/1/b", "t/1/a", "t/2/c", "u/d"):
            objects.put(key, [b"1234"])

        assert [info.key for info in objects.listing("t")] == ["t/1/a", "t/1/b", "t/2/c"]
        assert [info.key for info in objects.listing("")] == ["t/1/a", "t/1/b", "t/2/c", "u/d"]
        assert {info.size for info in objects.listing("t/1")} == {4}
        assert objects.listing("nothing") == []

    def test_names_are_of_the_next_part_alone(self, objects: ObjectStore) -> None:
        for key in ("t/1/b", "t/1/a", "t/2/c", "u/d"):
            objects.put(key, [b"1234"])

        assert objects.names("") == ["t", "u"]
        assert objects.names("t") == ["1", "2"]
        assert objects.names("nothing") == []

    def test_deleted_it_is_gone(self, objects: ObjectStore) -> None:
        objects.put("t/a", [b"1"])
        objects.put("t/b", [b"1"])

        objects.delete("t/a")
        objects.delete("t/a")

        assert [info.key for info in objects.listing("t")] == ["t/b"]

    def test_a_source_that_fails_is_told_and_harms_no_other_object(
        self, objects: ObjectStore
    ) -> None:
        def failing() -> Iterator[bytes]:
            yield b"half"
            raise RuntimeError("the source is gone")

        objects.put("t/manifest", [b"old"])

        with pytest.raises(RuntimeError):
            objects.put("t/other", failing())

        assert get(objects, "t/manifest", limit=10) == b"old"

    def test_an_object_is_created_by_one_of_two(self, objects: ObjectStore) -> None:
        assert isinstance(objects, ConditionalObjects)
        tag = objects.put_if("a/one", b"first", replaces=None)

        with pytest.raises(FileExistsError):
            objects.put_if("a/one", b"second", replaces=None)

        assert objects.get_tagged("a/one", limit=100) == (b"first", tag)

    def test_an_object_is_replaced_by_one_who_knows_what_is_there(
        self, objects: ObjectStore
    ) -> None:
        assert isinstance(objects, ConditionalObjects)
        old = objects.put_if("a/one", b"old", replaces=None)
        tag = objects.put_if("a/one", b"new", replaces=old)

        with pytest.raises(FileExistsError):
            objects.put_if("a/one", b"late", replaces=old)

        assert objects.get_tagged("a/one", limit=100) == (b"new", tag)
        assert [info.key for info in objects.listing("a")] == ["a/one"]

    def test_a_tagged_object_has_a_limit_and_may_be_missing(self, objects: ObjectStore) -> None:
        assert isinstance(objects, ConditionalObjects)
        objects.put("a/one", [b"0123456789"])

        with pytest.raises(LimitExceededError):
            objects.get_tagged("a/one", limit=9)
        with pytest.raises(FileNotFoundError):
            objects.get_tagged("a/two", limit=9)
        with pytest.raises(FileExistsError):
            objects.put_if("a/two", b"x", replaces="another")
