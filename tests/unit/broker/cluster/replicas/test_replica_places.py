"""Which data directory has which replica, and when the controllers are told."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from cordwood.broker.cluster.replicas.replica_places import LOST, ReplicaPlaces
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from fakes.replication_bench import TOPIC_ID, partition
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log

ONE, TWO = UUID(int=1001), UUID(int=1002)
PLACE = PartitionPlace(TOPIC_ID, 0)
UNASSIGNED = UUID(int=0)


class Told:
    """Places of node 1, whose log is in the first directory."""

    def __init__(self, log: PartitionLog, *others: UUID) -> None:
        self.told: list[tuple[UUID, int, UUID]] = []
        self.path = log.directory.rpartition("/")[0]
        self.places = ReplicaPlaces(
            {self.path: ONE, **{f"/other-{each.int}": each for each in others}},
            node_id=1,
            assign=lambda *place: self.told.append(place),
        )


@pytest.fixture
def log() -> Iterator[PartitionLog]:
    store, made = new_log(SimulatedFileSystem())
    assert isinstance(store, Store)
    yield made
    store.close()


def test_a_broker_with_one_directory_has_nothing_to_tell(log: PartitionLog) -> None:
    told = Told(log)

    told.places.hosted(PLACE, log, partition(2, 1, directories=(UNASSIGNED, TWO, TWO)))

    assert not told.told


@pytest.mark.parametrize("known", [(UNASSIGNED, ONE, ONE), (TWO, ONE, ONE), ()])
def test_a_place_that_the_controllers_do_not_know_is_told(
    log: PartitionLog, known: tuple[UUID, ...]
) -> None:
    told = Told(log, TWO)

    told.places.hosted(PLACE, log, partition(2, 1, directories=known))

    assert told.told == [(TOPIC_ID, 0, ONE)]


def test_a_place_that_the_controllers_know_is_not_told(log: PartitionLog) -> None:
    told = Told(log, TWO)

    told.places.hosted(PLACE, log, partition(2, 1, directories=(ONE, TWO, TWO)))

    assert not told.told


def test_a_directory_fails_once(log: PartitionLog) -> None:
    told = Told(log, TWO)
    assert not told.places.has_failed(log)

    assert told.places.fail(told.path) == ONE
    assert told.places.fail(told.path) is None

    assert told.places.has_failed(log)
    assert told.places.has_any
    told.places.fail(f"/other-{TWO.int}")
    assert not told.places.has_any


def test_replicas_of_a_failed_directory_are_lost_if_the_controllers_did_not_know_it(
    log: PartitionLog,
) -> None:
    told = Told(log, TWO)
    told.places.fail(told.path)

    told.places.lost(PLACE, told.path, partition(2, 1, directories=(ONE, TWO, TWO)))
    assert not told.told
    told.places.lost(PLACE, told.path, partition(2, 1, directories=(UNASSIGNED, TWO, TWO)))

    assert told.told == [(TOPIC_ID, 0, LOST)]
