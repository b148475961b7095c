"""What members of a group subscribe to, by name and by pattern, and which topics that is now."""

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.groups.consumer.topic_pattern import TopicPattern
from cordwood.broker.groups.consumer.topic_pattern_syntax import InvalidPatternError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.groups.consumer_group_records import MemberValue
from cordwood.log.store.store import Store

logger = logging.getLogger(__name__)


class TopicShape(NamedTuple):
    """What a group must know of a topic."""

    topic_id: UUID
    partition_count: int


class TopicDirectory(Protocol):
    """The topics there are. Never waits for a disk."""

    def find(self, name: str) -> TopicShape | None:
        """The topic of that name; None when there is none."""
        ...

    def names(self) -> Collection[str]:
        """The topics a pattern may mean: all but internal ones."""
        ...


class StoreTopics:
    """The topics of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, name: str) -> TopicShape | None:
        topic = self._store.registry.find(name)
        return None if topic is None else TopicShape(topic.topic_id, topic.partition_count)

    def names(self) -> Collection[str]:
        return set(self._store.registry.names_by_id().values()) - INTERNAL_TOPICS


class TopicSubscriptions:
    """The subscriptions of a group's members, and the topics they come to.

    Members are counted with `add` and `remove`; `resolve` looks at the topics there are. Until it
    is called the answers stay those of the last time.

    shapes            the topics subscribed to that exist, by name
    partition_counts  the same, by id
    """

    def __init__(self, directory: TopicDirectory) -> None:
        self._directory = directory
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._patterns: dict[str, TopicPattern] = {}
        self._matches: dict[str, frozenset[str]] = {}
        self._tried_names: Collection[str] = ()
        self._topics: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
        self.shapes: Mapping[str, TopicShape] = {}
        self.partition_counts: Mapping[UUID, int] = {}

    def check_regex(self, regex: str) -> None:
        """Raise `InvalidPatternError` unless the expression can be subscribed to."""
        if regex not in self._patterns:
            pattern = TopicPattern(regex)
            _matching(pattern, self._directory.names())
            self._patterns[regex] = pattern

    def add(self, about: MemberValue) -> None:
        self._names.update(about.topic_names)
        if about.topic_regex:
            self._regexes[about.topic_regex] += 1

    def remove(self, about: MemberValue) -> None:
        for name in about.topic_names:
            _uncount(self._names, name)
        if about.topic_regex:
            _uncount(self._regexes, about.topic_regex)

    def resolve(self) -> bool:
        """Look at the topics there are now; tell whether any that matters changed."""
        matches = self._all_matches()
        names = set(self._names).union(*matches.values())
        shapes = {
            name: shape for name in names if (shape := self._directory.find(name)) is not None
        }
        if matches != self._matches:
            self._matches = matches
            self._topics.clear()
        if shapes == self.shapes:
            return False
        self._topics.clear()
        self.shapes = shapes
        self.partition_counts = dict(shapes.values())
        return True

    def topics(self, about: MemberValue) -> frozenset[UUID]:
        """The ids of the topics a member subscribes to, of those that exist."""
        key = (about.topic_names, about.topic_regex)
        found = self._topics.get(key)
        if found is None:
            names = set(about.topic_names) | self._matches.get(about.topic_regex or "", frozenset())
            found = frozenset(self.shapes[name].topic_id for name in names & self.shapes.keys())
            self._topics[key] = found
        return found

    def names(self) -> frozenset[str]:
        """Everything subscribed to, whether it exists or not."""
        return frozenset(self._names).union(*self._matches.values())

    def topic_names(self) -> dict[UUID, str]:
        """The topics subscribed to that exist, ids to names."""
        return {shape.topic_id: name for name, shape in self.shapes.items()}

    def digest(self) -> int:
        """A number that is another one when the topics are; 0 for none. A signed 64-bit integer."""
        if not self.shapes:
            return 0
        hashed = hashlib.blake2b(digest_size=8)
        for name, shape in sorted(self.shapes.items()):
            hashed.update(f"{name} {shape.topic_id.hex} {shape.partition_count}\n".encode())
        return int.from_bytes(hashed.digest(), "big", signed=True)

    def _all_matches(self) -> dict[str, frozenset[str]]:
        """The topics that each expression matches; looked at anew when there are other topics."""
        if not self._regexes:
            self._patterns.clear()
            return {}
        self._patterns = {
            regex: self._patterns.get(regex) or self._compiled(regex) for regex in self._regexes
        }
        names = self._directory.names()
        known = self._matches if names == self._tried_names else {}
        self._tried_names = names
        matches: dict[str, frozenset[str]] = {}
        for regex, pattern in self._patterns.items():
            try:
                matches[regex] = known[regex] if regex in known else _matching(pattern, names)
            except InvalidPatternError as error:
                # It was found good when its first member came; then came many more topics.
                logger.warning("subscription to topics like %r stays as it is: %s", regex, error)
                matches[regex] = self._matches.get(regex, frozenset())
        return matches

    @staticmethod
    def _compiled(regex: str) -> TopicPattern:
        try:
            return TopicPattern(regex)
        except InvalidPatternError as error:
            # In a log that another broker wrote: its limits may be others.
            logger.warning("subscription to topics like %r means none: %s", regex, error)
            return TopicPattern(r"[^\S]")


def _matching(pattern: TopicPattern, names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if pattern.matches(name))


def _uncount(counter: Counter[str], item: str) -> None:
    counter[item] -= 1
    if counter[item] <= 0:
        del counter[item]
