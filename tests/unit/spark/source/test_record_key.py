"""The records of one key, chosen from a run without looking at each in Python."""

from pathlib import Path

import cordwood
from cordwood.format.record import Record
from cordwood.log.reading.record_walk import read_runs
from cordwood.spark.source.record_key import rows_of_key


def test_the_records_of_a_key_are_chosen_in_order(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("a").partition(0)
        log.append_many([(b"k%d" % (n % 3), b"v%d" % n) for n in range(10)])

        found: list[Record] = []
        for run in read_runs(log.source, 2, 9):
            chosen = rows_of_key(run, b"k1")
            found += [] if chosen is None else chosen.records()

    assert [(record.offset, record.value) for record in found] == [(4, b"v4"), (7, b"v7")]


def test_a_run_without_the_key_gives_nothing(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("a").partition(0)
        log.append_many([(None, b"v"), (b"kk", b"v"), (b"", b"v")])
        runs = read_runs(log.source, 0, 3)

        run = next(runs)

        assert rows_of_key(run, b"k") is None
        empty = rows_of_key(run, b"")
        assert empty is not None
        assert [record.offset for record in empty.records()] == [2]
