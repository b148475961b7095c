"""An archived segment fetches each file when it is needed, and none for what the manifest says."""

import pytest

from cordwood.archive.fetching.fetched_segment import FetchedSegment
from cordwood.format.file_names import FileKind
from cordwood.quantities import FilePosition, Offset
from cordwood.value_class import replace
from fakes.archived_store import URL, ArchivedStore
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC


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
    assert segment.boundaries.before(Offset(5)) is None

    assert fetched(archived) == []


def test_a_place_in_the_log_is_looked_up_with_the_index_alone(
    archived: ArchivedStore, segment: FetchedSegment
) -> None:
    assert segment.hint(Offset(5))[1] >= 0

    assert fetched(archived) == ["packed"]


def test_a_file_is_fetched_once(archived: ArchivedStore, segment: FetchedSegment) -> None:
    for _ in range(2):
        assert segment.reader().locate(Offset(3), (Offset(3), FilePosition(0))) == 0
        segment.release()

    assert fetched(archived) == ["packed", "log"]


def test_a_file_that_vanished_from_the_cache_is_fetched_again(
    archived: ArchivedStore, fs: SimulatedFileSystem, segment: FetchedSegment
) -> None:
    content = segment.file().read_at(0, segment.size)
    segment.release()
    fs.remove(segment.path(FileKind.LOG))

    assert segment.file().read_at(0, segment.size) == content

    assert fetched(archived) == ["packed", "log", "log"]


def test_one_record_costs_one_range_of_each_object(
    archived: ArchivedStore, segment: FetchedSegment
) -> None:
    assert archived.log[4].value == b"v4"

    assert archived.objects.call_log == [
        ("get_range", segment.name.removeprefix(f"{URL}/").replace(".log", ".packed")),
        ("get_range", segment.name.removeprefix(f"{URL}/")),
    ]


def test_what_cannot_be_verified_in_parts_is_fetched_whole(
    archived: ArchivedStore, segment: FetchedSegment
) -> None:
    archive = archived.archives.archive_of(archived.log, archived.store.topic(TOPIC).topic_id)
    assert archive is not None
    whole = archive._open(
        replace(archive.manifest.segments[1], sums=None, copy_id=segment._copy.copy_id),
        archive.manifest,
    )

    content = whole.file().read_at(0, whole.size)

    assert content == segment.file().read_at(0, segment.size)
    assert [name for name, key in archived.objects.call_log if key.endswith(".log")] == [
        "read",
        "get_range",
    ]


def test_a_file_for_sendfile_has_the_bytes_that_were_asked_for(
    archived: ArchivedStore, segment: FetchedSegment
) -> None:
    part = segment.file_at(10, 20)

    assert part.read_at(10, 20) == segment.file().read_at(10, 20)
