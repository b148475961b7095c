"""Shell completion: topics, partitions, groups, configuration keys, values of a choice.

Names come from the target on the command line so far, by `--at` or CORDWOOD_AT. An error is never
shown to a user who is typing; there is just nothing to complete.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target
    from cordwood.log.rules.config_key import ConfigKey
    from cordwood.remote.remote_cluster import RemoteCluster

_CONNECT_TIMEOUT_S: Final = 0.3
_ANSWER_TIMEOUT_S: Final = 0.7


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Topics of the target, without internal topics."""
    return _starting(incomplete, sorted(_partition_counts(context)))


def complete_partition(context: typer.Context, incomplete: str) -> list[str]:
    """Partitions of the topic on the command line."""
    # While an option still lacks its value, arguments are not yet assigned to parameters.
    topic = context.params.get("topic") or next(iter(context.args), None)
    count = _partition_counts(context).get(topic, 0) if isinstance(topic, str) else 0
    return _starting(incomplete, [str(number) for number in range(count)])


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Groups that have committed offsets or have members."""
    from cordwood.cli.at.target import DirectoryTarget
    from cordwood.errors import CordwoodError

    names: list[str] = []
    with contextlib.suppress(CordwoodError, OSError):
        at = _target(context)
        names = _groups_in(at) if isinstance(at, DirectoryTarget) else _groups_of(at)
    return _starting(incomplete, sorted(names))


def completion_of(*choices: str) -> Callable[[str], list[str]]:
    """Completes to one of `choices`; the command itself checks the value."""

    def complete(incomplete: str) -> list[str]:
        return _starting(incomplete, choices)

    return complete


def complete_topic_key(incomplete: str) -> list[str]:
    """Configuration keys of a topic, each with its ``=``."""
    from cordwood.log.rules.topic_config import CONFIG_KEYS

    return _assignments_of(CONFIG_KEYS, incomplete)


def complete_setting(incomplete: str) -> list[str]:
    """Keys of `cordwood config show`, each with its ``=``."""
    from cordwood.settings import SETTING_KEYS

    return _assignments_of(SETTING_KEYS, incomplete)


def _assignments_of(keys: "Sequence[ConfigKey]", incomplete: str) -> list[str]:
    names = sorted(key.name for key in keys if not key.is_internal)
    return _starting(incomplete, [f"{name}=" for name in names])


def _starting(incomplete: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _target(context: typer.Context) -> "Target":
    from cordwood.cli.at.target import AT_VARIABLE, parse_target

    at: str | None = context.params.get("at")
    return parse_target(at if at else os.environ.get(AT_VARIABLE))


def _partition_counts(context: typer.Context) -> dict[str, int]:
    """The topics of the target, each with its number of partitions."""
    from cordwood.cli.at.target import DirectoryTarget
    from cordwood.errors import CordwoodError
    from cordwood.format.file_names import INTERNAL_TOPICS

    try:
        at = _target(context)
        found = _topics_in(at) if isinstance(at, DirectoryTarget) else _topics_of(at)
    except (CordwoodError, OSError):
        return {}
    return {name: count for name, count in found.items() if name not in INTERNAL_TOPICS}


# --- a directory, by its catalog ----------------------------------------------------------------


def _topics_in(target: "DirectoryTarget") -> dict[str, int]:
    from cordwood.log.topics.catalog_files import read_catalog
    from cordwood.storage.files import RealFileSystem

    catalog = read_catalog(RealFileSystem(), target.paths)
    if catalog is not None:
        return {name: entry.partitions for name, entry in catalog.topics.items()}
    return _topics_by_names(target)


def _topics_by_names(target: "DirectoryTarget") -> dict[str, int]:
    """Topics by the names of directories, for a directory that Kafka wrote."""
    from cordwood.log.topics.directory_listing import find_partitions
    from cordwood.storage.files import RealFileSystem

    found: dict[str, int] = {}
    for path in target.paths:
        for partition in find_partitions(RealFileSystem(), path).live:
            found[partition.topic] = max(found.get(partition.topic, 0), partition.number + 1)
    return found


def _groups_in(target: "DirectoryTarget") -> list[str]:
    from cordwood.clock import SystemClock
    from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
    from cordwood.log.rules.topic_config import TopicConfig
    from cordwood.log.store.read_only_store import ReadOnlyStore
    from cordwood.storage.files import RealFileSystem

    with ReadOnlyStore(
        target.paths,
        fs=RealFileSystem(),
        clock=SystemClock(),
        defaults=TopicConfig(),
        wants=lambda topic, _: topic == CONSUMER_OFFSETS_TOPIC,
    ) as store:
        return store.groups()


# --- a broker, within short time limits ---------------------------------------------------------


def _connected(target: "BrokerTarget") -> "RemoteCluster":
    from cordwood.remote.remote_cluster import RemoteCluster
    from cordwood.remote.wire_connection import Connector

    connect = Connector(
        target.security,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        answer_timeout_s=_ANSWER_TIMEOUT_S,
    )
    return RemoteCluster(target.addresses[:1], connect=connect)


def _topics_of(target: "BrokerTarget") -> dict[str, int]:
    with _connected(target) as cluster:
        return {name: len(topic.leaders) for name, topic in cluster.describe(None).items()}


def _groups_of(target: "BrokerTarget") -> list[str]:
    from cordwood.remote.remote_groups import RemoteGroups

    with _connected(target) as cluster:
        return [group.name for group in RemoteGroups(cluster).listed()]
