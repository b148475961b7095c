"""Which aborted transactions a reader of some range must know of."""

import pytest

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.quantities import Offset, ProducerId
from cordwood.storage.files import read_whole, replace_file
from cordwood.storage.indexes.transaction_index import TransactionIndex
from fakes.simulated_fs import SimulatedFileSystem

BASE = Offset(0)
PATH = "/00000000000000000000.txnindex"


def aborted(producer_id: int, first: int, last: int, last_stable: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=ProducerId(producer_id),
        first_offset=Offset(first),
        last_offset=Offset(last),
        last_stable_offset=Offset(last_stable),
    )


ABORTED = [
    aborted(0, 0, 10, 11),
    aborted(1, 5, 15, 13),
    aborted(2, 18, 35, 25),
    aborted(3, 32, 50, 40),
]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def index(fs: SimulatedFileSystem) -> TransactionIndex:
    index = TransactionIndex.open_active(fs, PATH, BASE)
    for transaction in ABORTED:
        index.append(transaction)
    return index


def test_the_file_is_created_with_the_first_entry(fs: SimulatedFileSystem) -> None:
    index = TransactionIndex.open_active(fs, PATH, BASE)
    index.sync()
    before = fs.exists(PATH)

    index.append(ABORTED[0])
    index.flush()

    assert not before
    assert fs.size(PATH) == 34


def test_an_entry_is_a_version_and_four_big_endian_words(fs: SimulatedFileSystem) -> None:
    index = TransactionIndex.open_active(fs, PATH, BASE)

    index.append(aborted(1, 2, 3, 4))
    index.flush()

    words = (word.to_bytes(8, "big") for word in (1, 2, 3, 4))
    assert read_whole(fs, PATH, limit=100) == b"\0\0" + b"".join(words)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_reopened_it_has_the_same_entries(
    fs: SimulatedFileSystem, index: TransactionIndex, is_sealed: bool
) -> None:
    index.seal()

    if is_sealed:
        again = TransactionIndex.open_sealed(fs, PATH, BASE)
    else:
        again = TransactionIndex.open_active(fs, PATH, BASE)

    assert again.entries() == ABORTED
    assert again.count == 4


def test_reopened_it_goes_on_at_the_end(fs: SimulatedFileSystem, index: TransactionIndex) -> None:
    index.seal()
    again = TransactionIndex.open_active(fs, PATH, BASE)

    with pytest.raises(FormatError):
        again.append(aborted(9, 45, 50, 45))
    again.append(aborted(9, 45, 51, 45))
    again.flush()

    assert fs.size(PATH) == 5 * 34


@pytest.mark.parametrize("last_offset", [49, 50])
def test_the_last_offset_must_be_beyond_the_last_entrys(
    index: TransactionIndex, last_offset: int
) -> None:
    with pytest.raises(FormatError):
        index.append(aborted(9, 45, last_offset, 45))

    assert index.entries() == ABORTED


@pytest.mark.parametrize(
    ("start", "bound", "found", "is_complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
        (0, 5, [0], True),
        (51, 60, [], False),
    ],
)
def test_those_that_overlap_the_range_are_collected_until_no_more_can(
    index: TransactionIndex, start: int, bound: int, found: list[int], is_complete: bool
) -> None:
    collected = index.collect(fetch_start=Offset(start), upper_bound=Offset(bound))

    assert [transaction.producer_id for transaction in collected.transactions] == found
    assert collected.is_complete is is_complete


def test_a_missing_file_means_that_nothing_was_aborted(fs: SimulatedFileSystem) -> None:
    index = TransactionIndex.open_sealed(fs, PATH, BASE)

    index.sanity_check()
    collected = index.collect(fetch_start=Offset(0), upper_bound=Offset(100))

    assert collected.transactions == []
    assert not collected.is_complete
    assert not fs.exists(PATH)


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (10, 0), (11, 1), (50, 3), (51, 4)])
def test_truncating_drops_those_that_end_at_or_beyond_the_offset(
    fs: SimulatedFileSystem, index: TransactionIndex, offset: int, kept: int, is_sealed: bool
) -> None:
    index.seal() if is_sealed else index.flush()

    index.truncate_to(Offset(offset))

    assert index.entries() == ABORTED[:kept]
    assert fs.size(PATH) == kept * 34


def test_a_torn_last_entry_is_skipped_by_readers_and_refused_by_the_check(
    fs: SimulatedFileSystem, index: TransactionIndex
) -> None:
    index.seal()
    fs.open_write(PATH).truncate_to(3 * 34 + 33)

    again = TransactionIndex.open_sealed(fs, PATH, BASE)

    assert again.entries() == ABORTED[:3]
    with pytest.raises(FormatError):
        again.sanity_check()


def test_the_check_refuses_an_end_below_the_segment(
    fs: SimulatedFileSystem, index: TransactionIndex
) -> None:
    index.sanity_check()
    index.seal()

    with pytest.raises(FormatError):
        TransactionIndex.open_sealed(fs, PATH, Offset(11)).sanity_check()


def test_an_unknown_version_is_refused(fs: SimulatedFileSystem) -> None:
    replace_file(fs, PATH, b"\0\1" + bytes(32))

    with pytest.raises(UnsupportedFormatError):
        TransactionIndex.open_sealed(fs, PATH, BASE).entries()


def test_it_can_be_renamed_and_removed_with_or_without_a_file(fs: SimulatedFileSystem) -> None:
    index = TransactionIndex.open_active(fs, PATH, BASE)
    index.rename("/renamed")
    index.append(ABORTED[0])
    index.flush()
    names = [entry.name for entry in fs.list("/")]

    index.remove()
    index.remove()

    assert names == ["renamed"]
    assert fs.list("/") == []
