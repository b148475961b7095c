"""An archived segment fetches each file when it is needed, and none for what the manifest says."""

import pytest

from cordwood.archive.fetched_segment import FetchedSegment
from cordwood.quantities import FilePosition, Offset
from fakes.archived_store import URL, ArchivedStore
from fakes.simulated_fs import SimulatedFileSystem


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def archived(fs: SimulatedFileSystem) -> ArchivedStore:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(7)
    bench.archive_and_drop()
    bench.objects.call_log.clear()
    return bench


@pytest.fixture
def segment(archived: ArchivedStore) -> FetchedSegment:
    """Offsets 3, 4 and 5."""
    found = archived.log.view().segments[1]
    assert isinstance(found, FetchedSegment)
    return found


def fetched(archived: ArchivedStore) -> list[str]:
    return [key.rpartition(".")[2] for _, key in archived.objects.call_log]


def test_facts_of_the_manifest_fetch_nothing(
    archived: ArchivedStore, segment: FetchedSegment
) -> None:
    assert (segment.base_offset, segment.next_offset, segment.is_archived) == (3, 6, True)
    assert segment.name.startswith(URL)
    assert segment.first_timestamp() is not None
    assert segment.largest_timestamp[1] == 5
    assert segment.modified_ms() == segment.created_ms
    assert segment.boundary_before(Offset(5)) is None

    assert fetched(archived) == []


def test_a_place_in_the_log_is_looked_up_with_the_index_alone(
    archived: ArchivedStore, segment: FetchedSegment
) -> None:
    assert segment.hint(Offset(5))[1] >= 0

    assert fetched(archived) == ["index"]


def test_a_file_is_fetched_once(archived: ArchivedStore, segment: FetchedSegment) -> None:
    for _ in range(2):
        assert segment.reader().locate(Offset(3), (Offset(3), FilePosition(0))) == 0
        segment.release()

    assert fetched(archived) == ["log"]


def test_a_file_that_vanished_from_the_cache_is_fetched_again(
    archived: ArchivedStore, fs: SimulatedFileSystem, segment: FetchedSegment
) -> None:
    path = segment.file().name
    segment.release()
    fs.remove(path)

    assert segment.file().size() == segment.size

    assert fetched(archived) == ["log", "log"]
