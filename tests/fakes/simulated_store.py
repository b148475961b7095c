"""Stores on a simulated disk: quick, and the same at every run."""

from __future__ import annotations

from random import Random

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import SOLE_REPLICA, ReplicaRole
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from cordwood.storage.disk.flusher import InlineFlusher, Syncable
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem

DATA = "/data"
TOPIC = "events"


class IdleFlusher:
    """Notes who asks to be synced and does nothing: what is unsynced stays so."""

    def __init__(self) -> None:
        self.asked: list[Syncable] = []

    def request(self, log: Syncable) -> None:
        self.asked.append(log)


def open_store(
    fs: SimulatedFileSystem,
    *,
    clock: ManualClock | None = None,
    flusher: IdleFlusher | None = None,
    directories: tuple[str, ...] = (DATA,),
    defaults: dict[str, object] | None = None,
    role: ReplicaRole = SOLE_REPLICA,
) -> Store:
    return Store(
        list(directories),
        StoreSetup(
            fs=fs,
            clock=clock or ManualClock(),
            random=Random(1),
            defaults=TopicConfig.parse(defaults or {}),
            flusher=flusher or InlineFlusher(),
            has_housekeeping=False,
            opening_threads=1,
            role=role,
        ),
    )


def log_of(store: Store, topic: str = TOPIC, partition: int = 0) -> PartitionLog:
    log = store.topic(topic).partition(partition)
    assert isinstance(log, PartitionLog)
    return log


def new_log(
    fs: SimulatedFileSystem,
    config: dict[str, object] | None = None,
    *,
    clock: ManualClock | None = None,
    flusher: IdleFlusher | None = None,
    role: ReplicaRole = SOLE_REPLICA,
) -> tuple[Store, PartitionLog]:
    """A store with one topic of one partition."""
    store = open_store(fs, clock=clock, flusher=flusher, role=role)
    store.create_topic(TOPIC, config=config or {})
    return store, log_of(store)
