"""A broker vouches for the records of its last life only if it has them all."""

from __future__ import annotations

import random

from cordwood.cluster.replication.vouching import BrokerEpochFile, vouched_epoch
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.files import replace_file
from cordwood.storage.recovery import Damage
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store

DATA = "/data"


def test_the_epoch_survives_a_power_cut() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    fs.sync_directory("/")
    assert BrokerEpochFile(fs, DATA).read(was_orderly=False) == -1

    BrokerEpochFile(fs, DATA).save(41)
    BrokerEpochFile(fs, DATA).save(42)

    assert BrokerEpochFile(fs.crash(random.Random(1)), DATA).read(was_orderly=False) == 42


def test_an_epoch_that_was_withdrawn_is_gone() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    file = BrokerEpochFile(fs, DATA)
    file.save(42)

    file.withdraw()
    file.withdraw()

    assert file.read(was_orderly=False) == -1


def test_a_life_that_counted_unsynced_records_is_vouched_for_after_an_orderly_stop_only() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    fs.sync_directory("/")
    life = BrokerEpochFile(fs, DATA)
    life.save(42)

    life.note_unsynced()

    after = BrokerEpochFile(fs.crash(random.Random(1)), DATA)
    assert after.read(was_orderly=False) == -1
    assert after.read(was_orderly=True) == 42
    after.save(43)
    assert after.read(was_orderly=False) == 43


def test_a_life_that_is_registered_again_still_counted_unsynced_records() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    life = BrokerEpochFile(fs, DATA)
    life.note_unsynced()

    life.save(42)

    assert life.read(was_orderly=False) == -1


def test_unsynced_records_bring_back_no_epoch_that_was_withdrawn() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    life = BrokerEpochFile(fs, DATA)
    life.save(42)

    life.withdraw()
    life.note_unsynced()

    assert life.read(was_orderly=True) == -1


def test_a_file_that_is_no_epoch_vouches_for_nothing() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(DATA)
    for content in (b"", b"0\n", b"1\n42\n", b"0\nforty\n", b"0\n" + b"4" * 100):
        fs.create(f"{DATA}/cordwood-broker-epoch", exclusive=False).write_at(0, content)

        assert BrokerEpochFile(fs, DATA).read(was_orderly=False) == -1


def test_a_power_cut_takes_nothing_from_a_topic_that_promises_the_disk() -> None:
    _, log = new_log(SimulatedFileSystem(), role=AMONG_OTHERS)
    log.replica.lead(LeaderEpoch(1))

    assert vouched_epoch(7, [log], was_orderly=False) == 7


def test_a_topic_that_promises_less_is_vouched_for_after_an_orderly_stop_only() -> None:
    _, log = new_log(SimulatedFileSystem(), {"durability": "os"}, role=AMONG_OTHERS)

    assert vouched_epoch(7, [log], was_orderly=True) == 7
    assert vouched_epoch(7, [log], was_orderly=False) == -1


def test_damage_vouches_for_nothing() -> None:
    _, log = new_log(SimulatedFileSystem(), role=AMONG_OTHERS)
    log.damages.append(
        Damage(path="x", position=0, first_offset=Offset(0), next_offset=Offset(1), reason="rot")
    )

    assert vouched_epoch(7, [log], was_orderly=True) == -1


def test_damage_is_remembered_over_restarts_until_the_replica_is_filled_again() -> None:
    fs = SimulatedFileSystem()
    _, log = new_log(fs, role=AMONG_OTHERS)
    log.replica.follow(LeaderEpoch(1))
    replace_file(fs, f"{log.directory}/cordwood-damaged", b"3\n")

    again = log_of(open_store(fs.kill(), role=AMONG_OTHERS))
    found = again.replica.damaged_from
    assert found == 3
    assert vouched_epoch(7, [again], was_orderly=True) == -1
    again.replica.follow(LeaderEpoch(2))
    again.replica.restart_at(Offset(0), leader_epoch=LeaderEpoch(2))

    assert again.replica.damaged_from is None
    assert vouched_epoch(7, [again], was_orderly=True) == 7


def test_all_directories_must_have_the_same_epoch() -> None:
    fs = SimulatedFileSystem()
    for path in ("/one", "/two", "/new"):
        fs.make_directory(path)
    BrokerEpochFile(fs, "/one", "/two").save(42)

    assert BrokerEpochFile(fs, "/one", "/two").read(was_orderly=False) == 42
    assert BrokerEpochFile(fs, "/one", "/two", "/new").read(was_orderly=False) == -1
    BrokerEpochFile(fs, "/two").save(43)
    assert BrokerEpochFile(fs, "/one", "/two").read(was_orderly=False) == -1


def test_a_broker_without_all_its_replicas_vouches_for_nothing() -> None:
    _, log = new_log(SimulatedFileSystem(), role=AMONG_OTHERS)

    assert vouched_epoch(7, [log], was_orderly=True, is_complete=False) == -1
