"""The subscriptions of a group, by name and by pattern, and the topics they match now."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.patterns.topic_pattern import TopicPattern
from cordwood.broker.patterns.topic_pattern_syntax import InvalidPatternError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.groups.consumer_group_records import MemberValue

logger = logging.getLogger(__name__)


Sight = Callable[[str], bool] | None  # whether a client may know of a topic; None: of all


class TopicShape(NamedTuple):
    """What a group needs to know about a topic."""

    topic_id: UUID
    partition_count: int


class TopicDirectory(Protocol):
    """The topics of the broker. Never waits for a disk."""

    def find(self, name: str) -> TopicShape | None:
        """The topic of that name; None if there is none."""
        ...

    def names(self) -> Collection[str]:
        """The topics that a pattern may match: all except internal ones."""
        ...


class ViewTopics:
    """The topics of the cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def find(self, name: str) -> TopicShape | None:
        topic = self._view.topic(name)
        return None if topic is None else TopicShape(topic.topic_id, topic.partition_count)

    def names(self) -> Collection[str]:
        return set(self._view.topic_names()) - INTERNAL_TOPICS


class TopicSubscriptions:
    """The subscriptions of a group's members, and the topics they match.

    `add` and `remove` count the members. `resolve` looks up the topics; all answers are as of the
    last call to it.

    shapes            the subscribed topics that exist, by name
    partition_counts  the same topics, by id
    """

    def __init__(self, directory: TopicDirectory) -> None:
        self._directory = directory
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._patterns: dict[str, TopicPattern] = {}
        self._matched: dict[str, frozenset[str]] = {}  # by each expression, seen or not
        self._matches: dict[str, frozenset[str]] = {}  # those that its members may see
        self._sights: dict[str, Sight] = {}
        self._latest_sight: Sight = None
        self._tried_names: Collection[str] = ()
        self._topics: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
        self.shapes: Mapping[str, TopicShape] = {}
        self.partition_counts: Mapping[UUID, int] = {}

    def check_regex(self, regex: str) -> None:
        """Raise `InvalidPatternError` if the expression is invalid or too expensive."""
        if regex not in self._patterns:
            pattern = TopicPattern(regex)
            _matching(pattern, self._directory.names())
            self._patterns[regex] = pattern

    def see(self, regex: str | None, sight: Sight) -> bool:
        """An expression matches only topics that `sight` lets through, from the next `resolve` on.

        The first member with the expression decides for all of them: if each did, a group whose
        members have different rights would be assigned again and again. For expressions that no
        member was heard of yet, as after a restart, the latest sight counts. Return whether the
        expression has another sight now.
        """
        self._latest_sight = sight
        if not regex or regex in self._sights:
            return False
        self._sights[regex] = sight
        return sight is not None

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
        """Look up the topics. Return whether a subscribed topic changed."""
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
        """The ids of the existing topics that a member subscribes to."""
        key = (about.topic_names, about.topic_regex)
        found = self._topics.get(key)
        if found is None:
            names = set(about.topic_names) | self._matches.get(about.topic_regex or "", frozenset())
            found = frozenset(self.shapes[name].topic_id for name in names & self.shapes.keys())
            self._topics[key] = found
        return found

    def names(self) -> frozenset[str]:
        """All subscribed topics, whether they exist or not."""
        return frozenset(self._names).union(*self._matches.values())

    def topic_names(self) -> dict[UUID, str]:
        """The names of the subscribed topics that exist, by id."""
        return {shape.topic_id: name for name, shape in self.shapes.items()}

    def digest(self) -> int:
        """A hash of the subscribed topics, as a signed 64-bit integer; 0 if there are none."""
        if not self.shapes:
            return 0
        import hashlib  # not at the top: it loads OpenSSL, which few brokers need

        hashed = hashlib.blake2b(digest_size=8)
        for name, shape in sorted(self.shapes.items()):
            hashed.update(f"{name} {shape.topic_id.hex} {shape.partition_count}\n".encode())
        return int.from_bytes(hashed.digest(), "big", signed=True)

    def _all_matches(self) -> dict[str, frozenset[str]]:
        """The topics that each expression matches; computed again if the topics changed."""
        if not self._regexes:
            self._patterns.clear()
            self._sights.clear()
            self._matched = {}
            return {}
        self._patterns = {
            regex: self._patterns.get(regex) or self._compiled(regex) for regex in self._regexes
        }
        self._sights = {
            regex: sight for regex, sight in self._sights.items() if regex in self._regexes
        }
        names = self._directory.names()
        known = self._matched if names == self._tried_names else {}
        self._tried_names = names
        matched: dict[str, frozenset[str]] = {}
        for regex, pattern in self._patterns.items():
            try:
                matched[regex] = known[regex] if regex in known else _matching(pattern, names)
            except InvalidPatternError as error:
                # It was accepted when its first member joined. Many topics were created since.
                logger.warning("subscription to pattern %r not updated: %s", regex, error)
                matched[regex] = self._matched.get(regex, frozenset())
        self._matched = matched
        return {regex: self._seen(regex, names) for regex, names in matched.items()}

    def _seen(self, regex: str, names: frozenset[str]) -> frozenset[str]:
        sight = self._sights.get(regex, self._latest_sight)
        return names if sight is None else frozenset(filter(sight, names))

    @staticmethod
    def _compiled(regex: str) -> TopicPattern:
        try:
            return TopicPattern(regex)
        except InvalidPatternError as error:
            # The log may be written by another broker, which has other limits.
            logger.warning("subscription to pattern %r matches no topic: %s", regex, error)
            return TopicPattern(r"[^\S]")


def _matching(pattern: TopicPattern, names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if pattern.matches(name))


def _uncount(counter: Counter[str], item: str) -> None:
    counter[item] -= 1
    if counter[item] <= 0:
        del counter[item]
