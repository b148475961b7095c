"""The configuration of a topic: every key with its source and meaning, and what a change does."""

from typing import Final

from cordwood.console.facts.cluster_facts import TopicFacts
from cordwood.console.pages.page import BadParameterError, PageRequest
from cordwood.console.views.words import duration_in_words, size_in_words
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.remote.remote_topics import RemoteTopics
from cordwood.value_class import dataclass, fields

_PARTITIONS_MAX: Final = 200  # that a preview looks at

KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key for key in (field.metadata["key"] for field in fields(TopicConfig))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One key. `source` is topic, broker or default; `rule` says which values are allowed.

    `words` is a duration or a size as people read it; empty for other values.
    """

    key: str
    value: str
    words: str
    source: str
    meaning: str
    default: str
    rule: str
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEffect:
    """What a change does to segments: those that go soon, and those that no longer do."""

    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    topic: TopicFacts
    rows: tuple[ConfigRow, ...]
    edited: ConfigRow | None
    new_value: str | None
    effect: ConfigEffect | None
    problem: str | None
    may_change: bool


def show_config(request: PageRequest) -> ConfigView:
    topic = request.topic()
    rows = config_rows(request, topic.name)
    key = request.text("key")
    edited = next((row for row in rows if row.key == key), None)
    value = request.parameters.get("value")
    effect, problem = None, None
    if edited is not None and value is not None:
        try:
            check_value(key, value)
            effect = effect_of(request, topic, {key: value or None})
        except (ConfigError, BadParameterError) as error:
            problem = str(error)
    return ConfigView(
        topic=topic,
        rows=tuple(rows),
        edited=edited,
        new_value=None if value is None else value.strip(),
        effect=effect,
        problem=problem,
        may_change=request.viewer.may_change,
    )


def config_rows(request: PageRequest, topic: str) -> list[ConfigRow]:
    found = _of_files(request, topic) if request.console.opened else _of_broker(request, topic)
    rows = [_row(key, value, source) for key, (value, source) in found.items()]
    return sorted(rows, key=lambda row: (row.source != "topic", row.key))


def _of_files(request: PageRequest, topic: str) -> dict[str, tuple[str, str]]:
    opened = request.console.opened
    assert opened is not None
    overrides = opened.store.topic_overrides(topic)
    standard = TopicConfig().effective()
    return {
        key: (
            value,
            "topic" if key in overrides else "default" if standard.get(key) == value else "broker",
        )
        for key, value in opened.store.topic_config(topic).effective().items()
    }


def _of_broker(request: PageRequest, topic: str) -> dict[str, tuple[str, str]]:
    assert request.viewer.access is not None
    with request.viewer.access.connected() as cluster:
        configs = RemoteTopics(cluster).configs([topic])[topic]
        return {key: (fact.value, fact.source) for key, fact in configs.items()}


def _row(key: str, value: str, source: str) -> ConfigRow:
    known = KEYS.get(key)
    return ConfigRow(
        key=key,
        value=value,
        words=_words(key, value),
        source=source,
        meaning="" if known is None else known.doc,
        default="" if known is None else known.default_text,
        rule="" if known is None else known.rule,
        is_known=known is not None,
    )


def _words(key: str, value: str) -> str:
    if not value.isdigit() or len(value) > 15 or value == "0":
        return ""
    if key.endswith(".ms"):
        return duration_in_words(int(value))
    return size_in_words(int(value)) if key.endswith(".bytes") else ""


def check_value(key: str, value: str) -> None:
    """Raise `ConfigError` if the value is not allowed. Keys of other brokers are not checked."""
    known = KEYS.get(key)
    if known is not None and value.strip():
        known.parse(value.strip())


def effect_of(
    request: PageRequest, topic: TopicFacts, changes: dict[str, str | None]
) -> ConfigEffect | None:
    """What retention would delete now and with the change; None if the files are not here."""
    survey = request.console.survey
    if survey is None:
        return None
    numbers = [facts.partition for facts in topic.partitions[:_PARTITIONS_MAX]]
    plans = survey.retention_with(topic.name, numbers, changes)
    return ConfigEffect(
        segments_before=sum(len(now.deleted) for now, _ in plans),
        segments_after=sum(len(then.deleted) for _, then in plans),
        bytes_before=sum(s.size_bytes for now, _ in plans for s in now.deleted),
        bytes_after=sum(s.size_bytes for _, then in plans for s in then.deleted),
        partitions=len(plans),
    )
