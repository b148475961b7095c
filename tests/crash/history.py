"""What a client was told, and whether a store keeps to it.

A history is written while a script runs: what was attempted, what was acknowledged, what a
reader saw. After the power went, or the process, `check_store` holds the store that comes up
to it, and `settle` takes what was found as the history of the next run: what was not found
then must never come back.

Every record of a run has a content of its own, so a record in two places is seen.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from cordwood.errors import CorruptSegmentError
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.store.store import Store

Content = tuple[bytes | None, bytes | None]  # key, value
Place = tuple[str, int]


class BrokenPromise(AssertionError):  # noqa: N818  it is the finding, not an error
    """The store did what it must never do."""


@dataclass(slots=True)
class LogHistory:
    """One partition.

    kept       acknowledged, or seen by a reader: survives the end of the process
    durable    the part of it that survives a power cut as well
    maybe      attempted: found or not, at the offset given where one is known
    is_exact   every acknowledgement was of a sync: a power cut damages nothing
    superseded  compaction may have removed these; `has_gaps`: offsets may be missing for that
    start      nothing below may be read; `start_max` while a deletion is not acknowledged
    """

    kept: dict[int, Content] = field(default_factory=dict)
    durable: dict[int, Content] = field(default_factory=dict)
    maybe: dict[Content, int | None] = field(default_factory=dict)
    group_starts: list[int] = field(default_factory=list)
    is_exact: bool = True
    start: int = 0
    start_max: int = 0
    superseded: dict[int, Content] = field(default_factory=dict)
    has_gaps: bool = False

    def attempt(self, contents: list[Content]) -> None:
        for content in contents:
            self.maybe[content] = None

    def acknowledge(self, first_offset: int, contents: list[Content], *, is_durable: bool) -> None:
        for offset, content in enumerate(contents, first_offset):
            if offset in self.kept:
                raise BrokenPromise(f"offset {offset} was given to two records")
            self.maybe.pop(content, None)
            self.kept[offset] = content
            if is_durable:
                self.durable[offset] = content
        self.group_starts.append(first_offset)
        # What an unfinished truncation left in doubt made way for these.
        for content, at in list(self.maybe.items()):
            if at is not None and at >= first_offset:
                del self.maybe[content]

    def synced(self) -> None:
        self.durable.update(self.kept)

    def saw(self, offset: int, content: Content) -> None:
        """A reader was shown this: where readers see only what is synced, it stays."""
        if self.superseded.get(offset) == content:
            return
        if self.kept.get(offset, content) != content:
            raise BrokenPromise(f"a reader saw another record at offset {offset}")
        self.maybe.pop(content, None)
        self.kept[offset] = content
        if self.is_exact:
            self.durable[offset] = content

    def compacting(self) -> None:
        """From here on only the newest record of each key is promised.

        One that is in doubt may be the newest of its key; so then the others may be gone.
        """
        self.has_gaps = True
        in_doubt = {key for key, _ in self.maybe}
        newest = {key: offset for offset, (key, _) in sorted(self.kept.items())}
        for offset, (key, _) in list(self.kept.items()):
            if key is None or key in in_doubt or newest[key] != offset:
                self.superseded[offset] = self.kept.pop(offset)
                self.durable.pop(offset, None)

    def cutting(self, offset: int) -> None:
        """The batch that holds `offset` goes whole, so all that was appended with it may."""
        first = max((start for start in self.group_starts if start <= offset), default=offset)
        for at in [at for at in self.kept if at >= first]:
            self.maybe[self.kept.pop(at)] = at
            self.durable.pop(at, None)

    def cut(self, end: int) -> None:
        """Nothing at or past `end` is left, and nothing of it comes back."""
        for content, at in list(self.maybe.items()):
            if at is not None:
                del self.maybe[content]
                if at < end:
                    self.kept[at] = self.durable[at] = content
        self.group_starts = [start for start in self.group_starts if start < end]

    def deleting(self, offset: int) -> None:
        self.start_max = max(self.start_max, offset)

    def deleted(self, start: int) -> None:
        self.start = self.start_max = start
        for offset in [offset for offset in self.kept if offset < start]:
            del self.kept[offset]
            self.durable.pop(offset, None)


@dataclass(slots=True)
class TopicHistory:
    """One topic as it was, or may be. `topic_id` is None until the creation is acknowledged."""

    partitions: int
    config: dict[str, str]
    logs: dict[int, LogHistory]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class PublicationHistory:
    """Something that was published, or is to be: all of it or nothing of it is in the store."""

    application: str
    number: int
    parts: dict[Place, list[Content]]


@dataclass(slots=True)
class TransactionHistory:
    """A transaction: committed readers see all of it or nothing.

    `is_committed` is None while nobody was told how it ended.
    """

    parts: dict[Place, list[Content]]
    is_committed: bool | None = None


@dataclass(slots=True)
class History:
    """`topics` lists what may be found under each name; None is "no such topic"."""

    topics: dict[str, list[TopicHistory | None]] = field(default_factory=dict)
    publications: list[PublicationHistory] = field(default_factory=list)
    commits: dict[tuple[str, Place], set[int | None]] = field(default_factory=dict)
    transactions: list[TransactionHistory] = field(default_factory=list)

    def copy(self) -> History:
        """A deep copy. A cut copies it at many moments, and pickle is the quickest way."""
        copied: History = pickle.loads(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))
        return copied

    def log(self, topic: str, partition: int) -> LogHistory:
        found = self.find_log(topic, partition)
        assert found is not None, (topic, partition)
        return found

    def find_log(self, topic: str, partition: int) -> LogHistory | None:
        """The newest log of that name; None for one that nobody was told of."""
        for outcome in reversed(self.topics.get(topic, ())):
            if outcome is not None and partition in outcome.logs:
                return outcome.logs[partition]
        return None


# --- reading ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Readable:
    """All that can be read of a log, and the stretches [first, next) that cannot."""

    records: list[tuple[int, Content]] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)


def read_all(log: LogReader) -> Readable:
    """Read a log from start to end, going on behind whatever is damaged."""
    found = Readable()
    offset, end = log.start_offset, log.high_watermark
    while True:
        try:
            for record in log.read(offset, stop=end):
                assert record.offset is not None
                found.records.append((record.offset, (record.key, record.value)))
            return found
        except CorruptSegmentError as error:
            following = end if error.next_offset is None else error.next_offset
            first = max(error.first_offset, offset)
            if following <= offset:
                raise BrokenPromise(f"no way past the damage at {offset}: {error}") from error
            found.damaged.append((first, following))
            if following >= end:
                return found
            offset = following


# --- checking -----------------------------------------------------------------------------------


def check_store(history: History, store: Store, *, after_power_cut: bool) -> None:
    """Raise `BrokenPromise` unless the store is what the history allows."""
    problems = list(_store_problems(history, store, after_power_cut))
    if problems:
        raise BrokenPromise("\n".join(problems))


def settle(history: History, store: Store) -> None:
    """What was found is what there is: nothing is in doubt any more."""
    for name in list(history.topics):
        outcome = _matching(history, store, name)
        if outcome is None:
            history.topics[name] = [None]
            continue
        topic = store.topic(name)
        outcome.topic_id = topic.topic_id
        for number in range(outcome.partitions):
            log = outcome.logs.setdefault(number, LogHistory())
            opened = topic.partition(number)
            log.kept = dict(read_all(opened).records)
            if topic.config.durability == "disk":
                log.durable = dict(log.kept)
            else:  # recovery syncs only where the topic promises the disk
                log.durable = {o: c for o, c in log.durable.items() if log.kept.get(o) == c}
            log.maybe = {}
            log.superseded = {}
            log.start = log.start_max = opened.start_offset
        history.topics[name] = [outcome]
    for (group, place), allowed in history.commits.items():
        allowed.clear()
        allowed.add(store.group(group).committed(place))


def _store_problems(history: History, store: Store, after_power_cut: bool) -> Iterator[str]:
    for name in store.topics():
        if name not in history.topics:
            yield f"topic {name} was never created"
    for name in history.topics:
        outcome = _matching(history, store, name)
        is_there = name in store.topics()
        if outcome is None and (is_there or None not in history.topics[name]):
            yield _describe_mismatch(history, store, name)
        if outcome is not None:
            for number in range(outcome.partitions):
                place = f"{name}-{number}: "
                log = store.topic(name).partition(number)
                told = outcome.logs.get(number, LogHistory())
                for problem in log_problems(told, log, after_power_cut=after_power_cut):
                    yield place + problem
    for publication in history.publications:
        yield from _publication_problems(publication, store)
    if history.transactions:
        for found in store.transactions.all():
            # As its time-out would: an open transaction hides what was committed behind it.
            store.transactions.abort(found.transactional_id, lambda _: None)
    for transaction in history.transactions:
        yield from _transaction_problems(transaction, store)
    for (group, committed_place), allowed in history.commits.items():
        at = store.group(group).committed(committed_place)
        if at not in allowed:
            yield f"group {group} is at {at} of {committed_place}, expected one of {allowed}"


def _publication_problems(publication: PublicationHistory, store: Store) -> Iterator[str]:
    last = store.publisher.last_of(publication.application)
    is_published = last is not None and last >= publication.number
    for (topic, partition), contents in publication.parts.items():
        records = read_all(store.topic(topic).partition(partition)).records
        there = sum(content in contents for _, content in records)
        if there != (len(contents) if is_published else 0):
            yield (
                f"{publication.application} {publication.number} was "
                f"{'' if is_published else 'not '}published, and {topic}-{partition} has {there} "
                f"of its {len(contents)} records"
            )


def _transaction_problems(transaction: TransactionHistory, store: Store) -> Iterator[str]:
    found: dict[Place, int] = {}
    for (topic, partition), contents in transaction.parts.items():
        log = store.topic(topic).partition(partition)
        records = log.read(isolation="read_committed")
        found[topic, partition] = sum((r.key, r.value) in contents for r in records)
    is_whole = all(found[place] == len(contents) for place, contents in transaction.parts.items())
    if not is_whole and any(found.values()):
        yield f"a transaction is torn: committed readers see {found} of {transaction.parts}"
    if transaction.is_committed and not is_whole:
        yield f"a committed transaction is lost: {found}"
    if transaction.is_committed is False and any(found.values()):
        yield f"committed readers see an aborted transaction: {found}"


def _matching(history: History, store: Store, name: str) -> TopicHistory | None:
    """Which of the allowed outcomes the store shows."""
    if name not in store.topics():
        return None
    topic = store.topic(name)
    shown = topic.config.effective()
    for outcome in history.topics[name]:
        if (
            outcome is not None
            and outcome.partitions == topic.partition_count == len(topic.partitions)
            and outcome.topic_id in (None, topic.topic_id)
            and all(shown.get(key) == text for key, text in outcome.config.items())
        ):
            return outcome
    return None


def _describe_mismatch(history: History, store: Store, name: str) -> str:
    allowed = [
        "none" if outcome is None else f"{outcome.partitions} partitions {outcome.config}"
        for outcome in history.topics[name]
    ]
    if name not in store.topics():
        return f"topic {name} is gone, expected {' or '.join(allowed)}"
    topic = store.topic(name)
    return (
        f"topic {name} has {topic.partition_count} partitions ({len(topic.partitions)} open), "
        f"id {topic.topic_id}, {topic.config.render()}; expected {' or '.join(allowed)}"
    )


def log_problems(history: LogHistory, log: LogReader, *, after_power_cut: bool) -> Iterator[str]:
    """What is wrong with a log that came up after a crash without rot."""
    promised = history.durable if after_power_cut else history.kept
    found = read_all(log)
    start, end = log.start_offset, log.high_watermark
    by_offset = dict(found.records)
    if not history.start <= start <= history.start_max:
        yield f"starts at {start}, expected {history.start} to {history.start_max}"
    if found.damaged and (history.is_exact or not after_power_cut):
        yield f"damage where nothing rotted: {found.damaged}"
    if len(by_offset) != len(found.records):
        yield "an offset was read twice"
    for offset, content in promised.items():
        if offset >= start and by_offset.get(offset) != content:
            yield f"offset {offset} was promised as {_short(content)}, {_at(by_offset, offset)}"
    yield from _unpromised_problems(history, found.records)
    missing = set() if history.has_gaps else set(range(start, end)) - set(by_offset)
    unexplained = [o for o in missing if not any(a <= o < b for a, b in found.damaged)]
    if unexplained:
        yield f"offsets {sorted(unexplained)} are missing and no damage was reported"


def _unpromised_problems(history: LogHistory, records: list[tuple[int, Content]]) -> Iterator[str]:
    seen: dict[Content, int] = {}
    for offset, content in records:
        if content in seen:
            yield f"{_short(content)} is at offset {seen[content]} and again at {offset}"
        seen[content] = offset
        if content in (history.kept.get(offset), history.superseded.get(offset)):
            continue
        if content not in history.maybe:
            yield f"offset {offset} holds {_short(content)}, which does not belong there"
        elif history.maybe[content] not in (None, offset):
            yield f"{_short(content)} moved from {history.maybe[content]} to {offset}"


def _at(by_offset: dict[int, Content], offset: int) -> str:
    if offset not in by_offset:
        return "it is gone"
    return f"it is {_short(by_offset[offset])}"


def _short(content: Content) -> str:
    key, value = content
    return f"({key!r}, {value[:12]!r}...)" if value else f"({key!r}, {value!r})"
