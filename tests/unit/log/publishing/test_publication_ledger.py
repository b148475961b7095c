"""The ledger of publications: what it says survives, and what is not it is told apart."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from cordwood.errors import FormatError, StorageError
from cordwood.log.publishing.publication_ledger import (
    NOTHING_PUBLISHED,
    TRANSIENT_MAX,
    LastPublished,
    Place,
    Publications,
    parse_publications,
    read_publications,
    render_publications,
    write_publications,
)
from cordwood.quantities import Offset, TimestampMs
from fakes.simulated_fs import SimulatedFileSystem

ORDERS = Place(topic="orders", topic_id=UUID(int=7), partition=3)
AUDIT = Place(topic="audit", topic_id=UUID(int=8), partition=0)
WEEK_MS = 7 * 24 * 3600 * 1000


def last(number: int, *, at_ms: int = 0, is_transient: bool = False) -> LastPublished:
    return LastPublished(number=number, at_ms=TimestampMs(at_ms), is_transient=is_transient)


FULL = Publications(
    generation=41,
    applications={"etl → lake": last(9), "job": last(0, at_ms=5, is_transient=True)},
    cuts={ORDERS: Offset(120)},
    latest={ORDERS: (Offset(100), Offset(120)), AUDIT: (Offset(0), Offset(1))},
)


@pytest.mark.parametrize("publications", [NOTHING_PUBLISHED, FULL])
def test_what_is_rendered_is_parsed_as_it_was(publications: Publications) -> None:
    assert parse_publications(render_publications(publications)) == publications


def test_any_flipped_bit_is_found() -> None:
    content = render_publications(FULL)
    rng = Random(1)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)

        with pytest.raises(FormatError):
            parse_publications(bytes(damaged))


@pytest.mark.parametrize(
    "content", [b"", b"cordwood-topics 1 1 00000000\n{}", b"cordwood-publications"]
)
def test_other_files_are_not_taken_for_it(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_publications(content)


def test_a_publication_takes_its_own_cuts_off_the_list_and_no_others() -> None:
    begun = NOTHING_PUBLISHED.with_cuts({ORDERS: Offset(5), AUDIT: Offset(9)})

    done = begun.with_published("etl", last(3), {ORDERS: (Offset(5), Offset(8))})

    assert done.cuts == {AUDIT: 9}
    assert done.last_of("etl") == 3
    assert done.latest == {ORDERS: (5, 8)}
    assert done.generation > begun.generation > NOTHING_PUBLISHED.generation


def test_transient_applications_are_forgotten_after_a_week_and_others_never() -> None:
    known = NOTHING_PUBLISHED.with_published("query", last(0, is_transient=True), {})
    known = known.with_published("stream", last(4), {})

    later = known.with_published("other", last(0, at_ms=WEEK_MS - 1), {})
    much_later = known.with_published("other", last(0, at_ms=WEEK_MS), {})

    assert set(later.applications) == {"query", "stream", "other"}
    assert set(much_later.applications) == {"stream", "other"}


def test_the_newest_sound_copy_counts() -> None:
    fs = SimulatedFileSystem()
    for directory in ("/a", "/b", "/c"):
        fs.make_directory(directory)
    write_publications(fs, ["/a", "/b", "/c"], FULL)
    write_publications(fs, ["/b", "/c"], FULL.without_cuts([ORDERS]))
    file = fs.open_write("/c/cordwood-publications")
    file.truncate_to(30)
    file.close()

    assert read_publications(fs, ["/a", "/b", "/c"]) == FULL.without_cuts([ORDERS])
    assert read_publications(fs, ["/a"]) == FULL


def test_without_any_sound_copy_nobody_can_tell_what_was_published() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("/a")
    fs.create("/a/cordwood-publications").close()

    with pytest.raises(StorageError, match="stored twice"):
        read_publications(fs, ["/a"])


def test_where_there_is_no_ledger_nothing_was_published() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("/a")

    assert read_publications(fs, ["/a"]) == NOTHING_PUBLISHED


def test_of_transient_applications_only_the_newest_are_kept() -> None:
    publications = NOTHING_PUBLISHED
    lasting = LastPublished(number=0, at_ms=TimestampMs(0), is_transient=False)
    publications = publications.with_published("etl", lasting, {})
    for number in range(TRANSIENT_MAX + 5):
        last = LastPublished(number=0, at_ms=TimestampMs(number), is_transient=True)
        publications = publications.with_published(f"batch {number}", last, {})

    assert publications.last_of("etl") == 0
    assert publications.last_of("batch 0") is None
    assert publications.last_of(f"batch {TRANSIENT_MAX + 4}") == 0
    assert len(publications.applications) == 1 + TRANSIENT_MAX + 1
