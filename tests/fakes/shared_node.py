"""Several processes of one node over a simulated disk: their stores, without the processes."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, cast
from uuid import UUID

from cordwood.log.partition.state.replica_role import OWNED
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.process_state import split_state
from cordwood.log.topics.store_share import KEEPER, StoreShare, owner_of, worker_name
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import LeaderEpoch
from cordwood.storage.disk.flusher import InlineFlusher
from cordwood.storage.files import FileSystem
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store


class _HeldLock:
    def release(self) -> None:
        """It was not taken."""


class _WithoutLocks:
    """The simulated disk, whose locks are of one process each."""

    def __init__(self, fs: SimulatedFileSystem) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def lock(self, path: str) -> _HeldLock:
        return _HeldLock()


class SharedNode:
    """The keeper's store and those of its workers, which follow the keeper at once."""

    def __init__(self, fs: SimulatedFileSystem, count: int) -> None:
        self.count = count
        self.fs = cast("FileSystem", _WithoutLocks(fs))
        store = open_store(fs)
        topics = store.topics(include_internal=True)
        epochs = [log.epochs.current for log in store.directories.logs()]
        self._epoch = max(epochs, default=-1) + 1
        store.close()
        split_state(
            fs,
            DATA,
            [KEEPER, *map(worker_name, range(count))],
            lambda name: worker_name(owner_of(*name, count)) if name[0] in topics else None,
        )
        self.keeper = self._store(StoreShare(count=count))
        self.workers = [self._worker(index) for index in range(count)]

    def _worker(self, index: int) -> Store:
        self._epoch += 1
        share = StoreShare(count=self.count, index=index, begin=partial(_begin, self.keeper))
        worker = self._store(share)
        self._follow(worker, share)
        return worker

    def _store(self, share: StoreShare) -> Store:
        return Store(
            [DATA],
            StoreSetup(
                fs=self.fs,
                clock=ManualClock(),
                random=Random(1),
                flusher=InlineFlusher(),
                has_housekeeping=False,
                opening_threads=1,
                role=OWNED,
                share=share,
            ),
        )

    def restart(self, index: int) -> None:
        """Kill a worker and start it again."""
        self.workers[index].abandon()
        self.workers[index] = self._worker(index)

    def follow(self) -> None:
        """Let all workers learn what the keeper has. They lead in a new epoch then."""
        self._epoch += 1
        for index, worker in enumerate(self.workers):
            self._follow(worker, StoreShare(count=self.count, index=index))

    def _follow(self, worker: Store, share: StoreShare) -> None:
        entries = self.keeper.registry.entries()
        for topic_id, name in worker.registry.names_by_id().items():
            if name not in entries or entries[name].topic_id != topic_id:
                worker.hosting.unhost(name, topic_id)
        for name, entry in entries.items():
            absent = share.absent(name, entry.partitions)
            here = frozenset(n for n in range(entry.partitions) if not absent >> n & 1)
            wanted = HostedTopic(
                name=name,
                topic_id=entry.topic_id,
                partitions=entry.partitions,
                here=here,
                config=entry.config,
            )
            topic = worker.hosting.host(wanted)
            for number in here:
                topic.partition(number).replica.lead(LeaderEpoch(self._epoch))

    def append(self, topic: str, partition: int, value: bytes) -> None:
        """Append by the owner of the partition; on the disk on return."""
        worker = self.workers[owner_of(topic, partition, self.count)]
        log = worker.topic(topic).partition(partition)
        log.batches.append_batch(client_batch(value))
        log.sync()

    def close(self) -> None:
        for store in [*self.workers, self.keeper]:
            store.close()


def _begin(keeper: Store, topic: str, topic_id: UUID, partition: int) -> None:
    keeper.registry.begin(topic, topic_id, partition)
