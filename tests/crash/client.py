"""The one client of a simulated store: does things to it and writes down what it was told.

Scripts drive it. Everything it decides comes from one seeded generator, so a run is repeated
exactly by its seed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from random import Random
from typing import Final, cast
from unittest.mock import patch

from cordwood.errors import LogClosedError, StorageError, TransactionError
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.topic_registry import NewTopic
from cordwood.log.transactions import store_transaction
from cordwood.quantities import MIB, ProducerId
from cordwood.storage.disk.flusher import InlineFlusher
from crash.history import (
    BrokenPromise,
    Content,
    History,
    LogHistory,
    PublicationHistory,
    TopicHistory,
    TransactionHistory,
    read_all,
)
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem

DATA = "/data"
REFUSALS = (OSError, StorageError, LogClosedError)
# Without threads the coordinator answers before a wait begins, or never: nobody ends what a fault
# has left open.
_PATIENCE_S: Final = 0.1


def open_store(
    fs: SimulatedFileSystem,
    directories: tuple[str, ...] = (DATA,),
    *,
    preallocates: bool | str = False,
) -> Store:
    """A store without threads, whose every choice is repeatable."""
    setup = StoreSetup(
        fs=fs,
        clock=fs.clock,
        random=Random(0),
        flusher=InlineFlusher(),
        has_housekeeping=False,
        opening_threads=1,
        defaults=TopicConfig.parse({"preallocate": preallocates}),
    )
    return Store(list(directories), setup)


class Client:
    """Uses a store as an application would, and keeps the history of it.

    With `expects_faults` a refused request is part of the run: what it attempted stays in
    doubt, and the script goes on. Otherwise any error ends the run. A client that `preallocates`
    has zeros ahead of its logs.
    """

    def __init__(
        self,
        fs: SimulatedFileSystem,
        rng: Random,
        *,
        directories: tuple[str, ...] = (DATA,),
        expects_faults: bool = False,
    ) -> None:
        assert isinstance(fs.clock, ManualClock)
        self.fs = fs
        self.rng = rng
        self.clock = fs.clock
        self.history = History()
        self.refusals: list[Exception] = []
        self.preallocates: bool | str = False
        self.failed_syncs: list[tuple[int, str]] = []  # (call, path): see `io_faults`
        self.directories = directories
        self._expects_faults = expects_faults
        self._counter = 0
        self._store: Store | None = None
        self._opened_at = 0
        self._sequences: dict[tuple[str, int, int], int] = {}

    # --- the store ------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        if self._store is None:
            self.open()
        assert self._store is not None
        return self._store

    @property
    def has_store(self) -> bool:
        return self._store is not None

    def forget_store(self) -> None:
        """Let go of a store that was closed, or that could not be."""
        self._store = None

    def open(self) -> None:
        self._opened_at = self.fs.calls
        try:
            self._store = self._open()
        except REFUSALS as error:
            self._refused(error)
            self._opened_at = self.fs.calls
            self._store = self._open()  # a fault strikes once

    def _open(self) -> Store:
        return open_store(self.fs, self.directories, preallocates=self.preallocates)

    def close(self) -> None:
        with self._attempt():
            self.store.close()

    def reopen(self) -> None:
        """Close in order and open again."""
        self.close()
        self.forget_store()
        self._sequences.clear()
        self.open()

    def maintain(self) -> None:
        """What the housekeeping does in the background, checkpoints and retention included."""
        with self._attempt():
            topics = [self.store.topic(name) for name in self.store.topics()]
            logs = [log for topic in topics for log in topic.partitions]
            for log in logs:
                plan = log.upkeep.plan_retention(self.clock.now_ms())
                self.history.log(log.topic, log.partition).deleting(plan.start_offset)
            self.store.maintain()
            offline = {d.path for d in self.store.directories if d.health.failure is not None}
            for log in logs:
                # A failed log is left alone until it is reopened, and so is an offline directory.
                if log.state.failure is None and posixpath.dirname(log.directory) not in offline:
                    self.history.log(log.topic, log.partition).deleted(log.start_offset)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    # --- topics ---------------------------------------------------------------------------------

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        texts = TopicConfig.parse(config or {}).render()
        new = TopicHistory(
            partitions=partitions,
            config=texts,
            logs={number: LogHistory() for number in range(partitions)},
        )
        old = self.history.topics.get(name, [None])
        self.history.topics[name] = [*old, new]
        for _ in range(2 if self._expects_faults else 1):
            with self._attempt():
                topic = self.store.create_topic(name, partitions=partitions, config=config)
                new.topic_id = topic.topic_id
                self.history.topics[name] = [new]
                return

    def create_topics(self, names: Sequence[str], *, config: Mapping[str, object]) -> None:
        """Several topics of two partitions by one change, as in one request of a client."""
        made = {
            name: TopicHistory(
                partitions=2,
                config=TopicConfig.parse(config).render(),
                logs={number: LogHistory() for number in range(2)},
            )
            for name in names
        }
        for name, new in made.items():
            self.history.topics[name] = [*self.history.topics.get(name, [None]), new]
        wanted = [NewTopic(name=name, partitions=2, config=config) for name in names]
        for name, created in zip(names, self.store.registry.create_all(wanted), strict=True):
            with self._attempt():
                if isinstance(created, Exception):
                    raise created
                made[name].topic_id = created.topic_id
                self.history.topics[name] = [made[name]]

    def delete_topics(self, names: Sequence[str]) -> None:
        for name in names:
            self.history.topics[name] = [*self.history.topics[name], None]
        with self._attempt():
            self.store.delete_topics(names)
            for name in names:
                self.history.topics[name] = [None]

    def delete_topic(self, name: str) -> None:
        self.delete_topics([name])

    def alter_topic(self, name: str, config: Mapping[str, object]) -> None:
        before = self.history.topics[name]
        changed: list[TopicHistory | None] = []
        for outcome in before:
            if outcome is not None:
                after = copy(outcome)
                after.config = TopicConfig.parse({**outcome.config, **config}).render()
                changed.append(after)
        self.history.topics[name] = [*before, *changed]
        with self._attempt():
            self.store.alter_topic(name, config=config)
            self.history.topics[name] = changed

    def add_partitions(self, name: str, partitions: int) -> None:
        before = self.history.topics[name]
        grown: list[TopicHistory | None] = []
        for outcome in before:
            if outcome is not None:
                after = copy(outcome)
                after.partitions = partitions
                for number in range(outcome.partitions, partitions):
                    after.logs.setdefault(number, LogHistory())
                grown.append(after)
        self.history.topics[name] = [*before, *grown]
        with self._attempt():
            self.store.alter_topic(name, partitions=partitions)
            self.history.topics[name] = grown

    def has_topic(self, name: str) -> bool:
        return name in self.store.topics()

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        log = self.store.topic(topic).partition(partition)
        assert isinstance(log, PartitionLog)
        return log

    # --- records --------------------------------------------------------------------------------

    def use_contents_from(self, number: int) -> None:
        """Stay clear of contents that an earlier client of the same history may have used."""
        self._counter = number

    def new_content(self, size_max: int = 400) -> Content:
        """Content that no other record of the run has."""
        self._counter += 1
        key = self.rng.choice((None, b"a", b"b", b"key %d" % self._counter))
        size = self.rng.randint(0, size_max)
        return key, b"%d:" % self._counter + self.rng.randbytes(size)

    def _content_for(self, topic: str, size_max: int) -> Content:
        key, value = self.new_content(size_max)
        needs_key = self.store.topic(topic).config.is_compacted
        return b"c" if key is None and needs_key else key, value

    def append(self, topic: str, partition: int = 0, *, size_max: int = 400) -> None:
        content = self._content_for(topic, size_max)
        with self._appending(topic, partition, [content]) as acknowledge:
            key, value = content
            acknowledge(self.log(topic, partition).append(value, key=key).offset)

    def append_many(
        self, topic: str, partition: int = 0, *, count: int, size_max: int = 200
    ) -> None:
        contents = [self._content_for(topic, size_max) for _ in range(count)]
        with self._appending(topic, partition, contents) as acknowledge:
            acknowledge(self.log(topic, partition).append_many(list(contents)).first_offset)

    def publish(self, application: str, places: Mapping[tuple[str, int], int]) -> None:
        """Publish so many records to each place, under the next number.

        What was refused before is published first: numbers go in order.
        """
        if not self.publish_again():
            return
        numbers = [p.number for p in self.history.publications if p.application == application]
        publication = PublicationHistory(
            application=application,
            number=max(numbers, default=-1) + 1,
            parts={
                place: [self._content_for(place[0], 200) for _ in range(count)]
                for place, count in places.items()
            },
        )
        self.history.publications.append(publication)
        for place, contents in publication.parts.items():
            self.history.log(*place).attempt(contents)
            self.log(*place)
        self._publish(publication)

    def publish_again(self) -> bool:
        """Repeat all that was ever published, as one would who does not know what was.

        False when something was refused, and what comes behind it was not tried.
        """
        for publication in self.history.publications:
            last = self.store.publisher.last_of(publication.application)
            if last is None or last < publication.number:
                for place, contents in publication.parts.items():
                    self.history.log(*place).attempt(contents)
            if not self._publish(publication):
                return False
        return True

    def _publish(self, publication: PublicationHistory) -> bool:
        last = self.store.publisher.last_of(publication.application)
        is_old = last is not None and last >= publication.number
        is_done = False
        with self._attempt():
            published = self.store.publish(
                publication.application, publication.number, publication.parts
            )
            if published.is_repeated != is_old:
                raise BrokenPromise(f"{publication} after {last}: {published}")
            for place, (first, _) in published.offsets.items():
                told = self.history.log(*place)
                told.acknowledge(int(first), publication.parts[place], is_durable=True)
            is_done = True
        return is_done

    def append_group(self, topic: str, partition: int = 0, *, batches: int) -> None:
        """Several appends that one sync acknowledges, as threads that wait together would."""
        groups = [[self.new_content(), self.new_content(40)] for _ in range(batches)]
        with self._appending(topic, partition, [c for group in groups for c in group]) as ack:
            log = self.log(topic, partition)
            placed = [log.batches.append_batch(self._encode(group), wait=False) for group in groups]
            log.promises.await_durable(log.end_offset)
            ack(placed[0].base_offset)
            if [p.base_offset for p in placed[1:]] != [p.last_offset + 1 for p in placed[:-1]]:
                raise BrokenPromise(f"a group of appends is not in a row: {placed}")

    def append_joined(self, topic: str, partition: int = 0, *, batches: int) -> None:
        """Batches of several clients in one write and a sync in parts: the broker's way."""
        contents = [[self.new_content(), self.new_content(40)] for _ in range(batches)]
        with self._appending(topic, partition, [c for group in contents for c in group]) as ack:
            log = self.log(topic, partition)
            group, gate = BatchGroup(), BatchGate(log.config)
            for batch in map(self._encode, contents):
                survey = gate.survey(memoryview(batch), self.clock.now_ms())
                assert survey is not None
                group.add(memoryview(batch), survey)
            placed = log.batches.append_group(group)
            refused = next((answer for answer in placed if isinstance(answer, Exception)), None)
            if refused is not None:
                raise refused
            if not log.promises.is_kept(log.end_offset):
                self._sync_in_parts(log)
            ack(cast("int", placed[0]))
            if placed != list(range(cast("int", placed[0]), log.end_offset, 2)):
                raise BrokenPromise(f"a group of appends is not in a row: {placed}")

    def _sync_in_parts(self, log: PartitionLog) -> None:
        sync = log.syncing.begin()
        if sync is None:
            log.promises.await_durable(log.end_offset)
            return
        sync.finish(sync.wait())
        if log.state.failure is not None:
            raise log.state.failure

    def produce(self, topic: str, producer: int, partition: int = 0) -> None:
        """One batch of an idempotent producer, sent twice: the second must be known."""
        contents = [self._content_for(topic, 100), self._content_for(topic, 100)]
        place = (topic, partition, producer)
        sequence = self._sequences.get(place, 0)
        stamp = ProducerStamp(
            producer_id=ProducerId(producer), producer_epoch=0, base_sequence=sequence
        )
        with self._appending(topic, partition, contents) as acknowledge:
            log = self.log(topic, partition)
            first = log.batches.append_batch(self._encode(contents, stamp))
            acknowledge(first.base_offset)
            self._sequences[place] = sequence + len(contents)
            again = log.batches.append_batch(self._encode(contents, stamp))
            if not again.is_duplicate or again.base_offset != first.base_offset:
                raise BrokenPromise(f"a batch sent twice was stored twice: {first}, {again}")

    def _encode(self, contents: list[Content], stamp: ProducerStamp | None = None) -> bytearray:
        style = BatchStyle(bytes_max=MIB)
        records = [Record(value, key) for key, value in contents]
        built = build_batch(records, self.clock.now_ms(), style, stamp or ProducerStamp())
        return bytearray(built.data)

    @contextmanager
    def _appending(
        self, topic: str, partition: int, contents: list[Content]
    ) -> Iterator[Callable[[int], None]]:
        told = self.history.log(topic, partition)
        told.attempt(contents)
        if self.store.topic(topic).config.durability != "disk":
            told.is_exact = False

        was_failed = self._has_failed(self.log(topic, partition))

        def acknowledge(first_offset: int) -> None:
            log = self.log(topic, partition)
            is_durable = log.config.durability == "disk"
            # Where the kernel's word is enough, a sync that this append set off may have failed.
            if was_failed or (is_durable and self._has_failed(log)):
                raise BrokenPromise(f"{log.name} failed and acknowledged offset {first_offset}")
            told.acknowledge(int(first_offset), contents, is_durable=is_durable)

        with self._attempt():
            yield acknowledge

    def _has_failed(self, log: PartitionLog) -> bool:
        """Once a sync of its batches failed, a log cannot vouch for anything until reopened."""
        return log.state.failure is not None or any(
            call > self._opened_at and path.startswith(log.directory + "/")
            for call, path in self.failed_syncs
        )

    # --- upkeep of one log ----------------------------------------------------------------------

    def roll(self, topic: str, partition: int = 0) -> None:
        with self._attempt():
            self.log(topic, partition).roll()

    def sync(self, topic: str, partition: int = 0) -> None:
        with self._attempt():
            self.log(topic, partition).sync()
            self.history.log(topic, partition).synced()

    def truncate_to(self, topic: str, offset: int, partition: int = 0) -> None:
        told = self.history.log(topic, partition)
        told.cutting(offset)
        with self._attempt():
            log = self.log(topic, partition)
            log.truncation.truncate_to(offset)
            told.cut(log.end_offset)

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        told = self.history.log(topic, partition)
        told.deleting(offset)
        with self._attempt():
            told.deleted(self.log(topic, partition).delete_before(offset))

    def compact(self, topic: str, partition: int = 0) -> None:
        """Compact all of a topic, sealing its active segment first."""
        self.history.log(topic, partition).compacting()
        with self._attempt():
            self.store.compact(topic, force=True)

    # --- readers and groups ---------------------------------------------------------------------

    def read_beside(self) -> None:
        """Another process looks at everything it may see."""
        with self._attempt():
            look_beside(self.fs, self.history, self.directories)

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        place = (topic, partition)
        allowed = self.history.commits.setdefault((group, place), {None})
        allowed.add(offset)
        with self._attempt():
            self.store.group(group).commit({place: offset})
            allowed.clear()
            allowed.add(offset)

    def transaction(
        self, transactional_id: str, places: Sequence[tuple[str, int]], *, commits: bool
    ) -> None:
        """One transaction with a record or two for each place, committed or aborted."""
        parts = {
            place: [self._content_for(place[0], 100) for _ in range(self.rng.randint(1, 2))]
            for place in places
        }
        told = TransactionHistory(parts=parts)
        self.history.transactions.append(told)
        offsets: list[tuple[tuple[str, int], Content, int]] = []
        for place, contents in parts.items():
            log = self.history.log(*place)
            log.attempt(contents)
            log.has_gaps = True  # a marker takes an offset, and is no record
            self.log(*place)
        try:
            with (
                patch.object(store_transaction, "_PATIENCE_S", _PATIENCE_S),
                self._attempt(),
                self.store.transaction(transactional_id) as transaction,
            ):
                for (topic, partition), contents in parts.items():
                    for content in contents:
                        key, value = content
                        placed = transaction.append(topic, value, key=key, partition=partition)
                        offsets.append(((topic, partition), content, int(placed.offset)))
                if commits:
                    transaction.commit()
                    told.is_committed = True
                    for place, content, offset in offsets:
                        acknowledged = self.history.log(*place)
                        acknowledged.acknowledge(offset, [content], is_durable=True)
                else:
                    transaction.abort()
                    told.is_committed = False
        except TransactionError as error:
            self._refused(error)

    # --- refusals -------------------------------------------------------------------------------

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        try:
            yield
        except REFUSALS as error:
            self._refused(error)

    def _refused(self, error: Exception) -> None:
        if not self._expects_faults:
            raise error
        self.refusals.append(error)


def look_beside(
    fs: SimulatedFileSystem, history: History, directories: tuple[str, ...] = (DATA,)
) -> None:
    """Read all logs without owning them, and note what was seen."""
    with ReadOnlyStore(directories, fs=fs, clock=fs.clock, defaults=TopicConfig()) as beside:
        for name in beside.topics():
            for log in beside.topic(name).partitions:
                told = history.find_log(name, log.partition)
                if told is None:
                    continue
                found = read_all(log)
                if found.damaged and told.is_exact:
                    raise BrokenPromise(f"a reader of {log.name} was shown {found.damaged}")
                for offset, content in found.records:
                    told.saw(offset, content)
