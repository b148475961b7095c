"""What is fetched ahead follows from how far a reader came without a jump."""

from cordwood.archive.fetching.read_streams import ReadStreams, ahead_of
from cordwood.quantities import KIB, MIB


def test_a_reader_that_goes_on_has_read_all_of_it_in_order() -> None:
    streams = ReadStreams()

    runs = [streams.note(at, at + 100 * KIB) for at in range(0, 500 * KIB, 100 * KIB)]

    assert runs == [100 * KIB, 200 * KIB, 300 * KIB, 400 * KIB, 500 * KIB]


def test_reading_the_end_of_a_piece_again_is_no_jump() -> None:
    streams = ReadStreams()
    streams.note(0, 1000)

    assert streams.note(900, 2000) == 2000


def test_a_jump_begins_anew() -> None:
    streams = ReadStreams()
    streams.note(0, 1 * MIB)

    assert streams.note(8 * MIB, 8 * MIB + 1000) == 1000
    assert streams.note(100, 200) == 100


def test_several_readers_do_not_disturb_each_other() -> None:
    streams = ReadStreams()
    starts = [number * 16 * MIB for number in range(8)]

    for step in range(4):
        for start in starts:
            at = start + step * MIB
            run = streams.note(at, at + MIB)

            assert run == (step + 1) * MIB


def test_a_reader_comes_from_the_file_before() -> None:
    streams = ReadStreams()
    streams.expect(5 * MIB)
    streams.expect(5 * MIB)

    assert streams.note(0, 1 * MIB) == 6 * MIB


def test_readers_that_were_forgotten_take_no_memory() -> None:
    streams = ReadStreams()

    for number in range(1000):
        streams.note(number * 10 * MIB, number * 10 * MIB + 1)

    assert len(streams._streams) == 16


def test_little_that_was_read_in_order_fetches_nothing_ahead() -> None:
    assert ahead_of(400 * KIB, 32 * MIB) == 0
    assert ahead_of(1 * MIB, 32 * MIB) == 4 * MIB
    assert ahead_of(900 * MIB, 32 * MIB) == 32 * MIB
    assert ahead_of(900 * MIB, 0) == 0


def test_lookups_beside_one_reader_in_order_do_not_count_as_readers() -> None:
    streams = ReadStreams()
    streams.note(0, 4 * MIB)
    for at in (6 * MIB, 7 * MIB, 8 * MIB):
        streams.note(at, at + 60 * KIB)

    assert streams.is_one
    streams.note(16 * MIB, 18 * MIB)
    assert not streams.is_one
