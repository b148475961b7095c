"""Which partitions a query reads: `subscribe`, `subscribePattern` or `assign`.

Exactly one of the three must be set, as in Spark's Kafka source. A pattern may match any part of a
name, and never matches Kafka's internal topics.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from cordwood.errors import ConfigError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass

TopicPartition = tuple[str, int]

CHOICES: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """Exactly one of the three is set."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] = frozenset()

    def __post_init__(self) -> None:
        assert bool(self.names) + (self.pattern is not None) + bool(self.assigned) == 1, self

    def wants(self, topic: str, partition: int) -> bool:
        """Whether this partition is selected, if it exists."""
        if self.pattern is not None:
            return topic not in INTERNAL_TOPICS and self.pattern.search(topic) is not None
        return topic in self.names or (topic, partition) in self.assigned

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics that must exist, because the options name them."""
        return self.names | {topic for topic, _ in self.assigned}

    @property
    def in_words(self) -> str:
        """For people."""
        if self.pattern is not None:
            return f"topics that match {self.pattern.pattern}"
        return ", ".join(sorted(self.named_topics))


def parse_choice(given: Mapping[str, str]) -> TopicChoice:
    """The choice in the options; `given` holds those of `CHOICES` that are set."""
    if len(given) != 1:
        found = ", ".join(given) or "none of them"
        rule = f"set exactly one of {', '.join(CHOICES)}"
        raise ConfigError("subscribe", given.get("subscribe", ""), f"{rule}; got {found}")
    [(option, text)] = given.items()
    match option:
        case "subscribe":
            return TopicChoice(names=_parse_names(text))
        case "subscribePattern":
            return TopicChoice(pattern=_parse_pattern(text))
        case _:
            return TopicChoice(assigned=_parse_assigned(text))


def _parse_names(text: str) -> frozenset[str]:
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    if not names:
        raise ConfigError("subscribe", text, "must be topic names separated by commas")
    return names


def _parse_pattern(text: str) -> re.Pattern[str]:
    if not text.strip():
        raise ConfigError("subscribePattern", text, "must be a regular expression")
    try:
        return re.compile(text)
    except re.error as error:
        rule = f"must be a regular expression: {error}"
        raise ConfigError("subscribePattern", text, rule) from error


def _parse_assigned(text: str) -> frozenset[TopicPartition]:
    rule = 'must be JSON like {"orders": [0, 1]}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError("assign", text, f"{rule}: {error}") from error
    if not isinstance(found, dict) or not found:
        raise ConfigError("assign", text, rule)
    assigned: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not numbers:
            raise ConfigError("assign", text, rule)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError("assign", text, rule)
            if not 0 <= number <= INT32_MAX:
                raise ConfigError("assign", text, f"unknown partition {number}")
            assigned.add((topic, number))
    return frozenset(assigned)
