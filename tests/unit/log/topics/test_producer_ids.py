"""Producer ids: none is given twice, also after a kill, a damage, or in a foreign directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.log.topics.producer_ids import (
    PRODUCER_IDS_FILE,
    ProducerIds,
    parse_producer_ids,
    render_producer_ids,
)
from cordwood.storage.files import read_whole
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

PATH = f"{DATA}/{PRODUCER_IDS_FILE}"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    return fs


def new_ids(
    fs: SimulatedFileSystem, *known: int, directories: tuple[str, ...] = (DATA,)
) -> ProducerIds:
    return ProducerIds(
        fs, directories, lambda below: max((k for k in known if k < below), default=-1)
    )


def test_a_new_store_counts_from_zero(fs: SimulatedFileSystem) -> None:
    ids = new_ids(fs)

    assert [ids.allocate() for _ in range(3)] == [0, 1, 2]


def test_numbers_are_written_down_before_they_are_given(fs: SimulatedFileSystem) -> None:
    number = new_ids(fs).allocate()

    assert parse_producer_ids(read_whole(fs, PATH, limit=100)) > number


def test_after_a_kill_no_number_comes_again(fs: SimulatedFileSystem) -> None:
    given = [new_ids(fs).allocate() for _ in range(3)]

    assert len(set(given)) == 3
    assert given == sorted(given)


def test_one_write_covers_many_numbers(fs: SimulatedFileSystem) -> None:
    ids = new_ids(fs)
    ids.allocate()
    written = read_whole(fs, PATH, limit=100)

    numbers = {ids.allocate() for _ in range(900)}

    assert len(numbers) == 900
    assert read_whole(fs, PATH, limit=100) == written


def test_a_block_that_is_used_up_is_followed_by_the_next(fs: SimulatedFileSystem) -> None:
    ids = new_ids(fs)

    numbers = [ids.allocate() for _ in range(2500)]

    assert numbers == list(range(2500))


def test_numbers_that_logs_know_are_never_given(fs: SimulatedFileSystem) -> None:
    ids = new_ids(fs)
    ids.allocate()

    later = new_ids(fs, 5000)

    assert later.allocate() == 5001


def test_in_a_directory_of_another_broker_numbers_start_far_above_its_own(
    fs: SimulatedFileSystem,
) -> None:
    assert new_ids(fs, 17).allocate() > 2**39


def test_a_file_that_cannot_be_read_costs_numbers_and_repeats_none(
    fs: SimulatedFileSystem,
) -> None:
    first = new_ids(fs)
    used = {first.allocate() for _ in range(10)}
    file = fs.open_write(PATH)
    file.write_at(0, b"garbage")
    file.close()

    number = new_ids(fs).allocate()

    assert number > max(used) + 2**39


def test_an_id_that_a_client_made_up_does_not_use_up_the_numbers(fs: SimulatedFileSystem) -> None:
    ids = new_ids(fs, 2**63 - 1, 3)

    assert ids.allocate() < 2**41


def test_every_directory_has_the_number_and_the_largest_counts(fs: SimulatedFileSystem) -> None:
    fs.make_directory("/other")
    both = new_ids(fs, directories=(DATA, "/other"))
    number = both.allocate()
    fs.remove(PATH)

    again = new_ids(fs, directories=(DATA, "/other")).allocate()

    assert again > number


def test_nothing_is_given_when_it_cannot_be_written_down() -> None:
    ids = new_ids(SimulatedFileSystem())  # without the directory

    with pytest.raises(FileNotFoundError):
        ids.allocate()


def test_a_store_gives_numbers_across_restarts() -> None:
    fs = SimulatedFileSystem()
    store = open_store(fs)
    first = store.producer_ids.allocate()
    store.close()

    again = open_store(fs)

    assert again.producer_ids.allocate() > first


def test_a_store_gives_no_number_that_its_logs_remember() -> None:
    fs = SimulatedFileSystem()
    with open_store(fs) as store:
        store.producer_ids.allocate()
        log = store.create_topic("events").partition(0)
        log.batches.append_batch(client_batch(b"v", producer_id=5000, sequence=0))
        log.batches.append_batch(client_batch(b"v", producer_id=2**63 - 1, sequence=0))

    with open_store(fs) as again:
        assert again.producer_ids.allocate() == 5001


@given(st.integers(0, 2**63 - 1))
def test_what_is_written_reads_back(number: int) -> None:
    assert parse_producer_ids(render_producer_ids(number)) == number


@given(st.binary(max_size=60))
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_producer_ids(content)


@given(st.data())
def test_a_changed_digit_is_noticed(data: st.DataObject) -> None:
    content = bytearray(render_producer_ids(123_000))
    at = data.draw(st.integers(0, len(content) - 2))
    content[at] = data.draw(st.integers(33, 126).filter(lambda byte: byte != content[at]))

    with pytest.raises(FormatError):
        parse_producer_ids(bytes(content))


def test_ids_of_logs_are_recorded_for_who_does_not_see_the_logs(fs: SimulatedFileSystem) -> None:
    new_ids(fs, 5_000).record_known()

    assert new_ids(fs).allocate() > 5_000


def test_ids_that_are_recorded_need_no_room_to_be_recorded_again(fs: SimulatedFileSystem) -> None:
    new_ids(fs, 5_000).record_known()
    before = read_whole(fs, PATH, limit=100)

    new_ids(fs, 5_000).record_known()
    assert read_whole(fs, PATH, limit=100) == before

    new_ids(fs, parse_producer_ids(before)).record_known()
    assert parse_producer_ids(read_whole(fs, PATH, limit=100)) > parse_producer_ids(before)


def test_damaged_numbers_are_replaced_when_ids_are_recorded(fs: SimulatedFileSystem) -> None:
    new_ids(fs, 5_000).record_known()
    file = fs.open_write(PATH)
    file.write_at(24, b"x")
    file.close()

    new_ids(fs, 5_000).record_known()

    assert new_ids(fs).allocate() > 5_000
