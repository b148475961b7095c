"""Names for the shell to complete: topics, their partitions, groups, values of a choice.

They come from what the command line names so far, by `--at` or CORDWOOD_AT. Whatever is wrong with
it is no reason to disturb someone who is typing: then there is nothing to complete.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target
    from cordwood.remote.remote_cluster import RemoteCluster

_CONNECT_TIMEOUT_S: Final = 0.3
_ANSWER_TIMEOUT_S: Final = 0.7


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Topics of the target, without those that are kept for groups and transactions."""
    return _starting(incomplete, sorted(_partition_counts(context)))


def complete_partition(context: typer.Context, incomplete: str) -> list[str]:
    """Partitions of the topic that was named."""
    # Before an option that still lacks its value, arguments are not yet told apart.
    topic = context.params.get("topic") or next(iter(context.args), None)
    count = _partition_counts(context).get(topic, 0) if isinstance(topic, str) else 0
    return _starting(incomplete, [str(number) for number in range(count)])


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Groups that have committed something, or have members."""
    from cordwood.cli.at.target import DirectoryTarget
    from cordwood.errors import CordwoodError

    names: list[str] = []
    with contextlib.suppress(CordwoodError, OSError):
        at = _target(context)
        names = _groups_in(at) if isinstance(at, DirectoryTarget) else _groups_of(at)
    return _starting(incomplete, sorted(names))


def partitions_option(text: str) -> Any:
    """`--partition`, which may be given several times."""
    return typer.Option("--partition", "-p", min=0, autocompletion=complete_partition, help=text)


TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="Its name.")
]
TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="One or several names."),
]
PartitionsOption = Annotated[list[int] | None, partitions_option("Only this one; repeatable.")]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=complete_group, help="Its name.")
]
GroupsArgument = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", autocompletion=complete_group, help="One or several names."),
]


def completion_of(*choices: str) -> Callable[[str], list[str]]:
    """Completes to one of these, for options that are checked elsewhere."""

    def complete(incomplete: str) -> list[str]:
        return _starting(incomplete, choices)

    return complete


def _starting(incomplete: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _target(context: typer.Context) -> "Target":
    from cordwood.cli.at.target import AT_VARIABLE, parse_target

    return parse_target(context.params.get("at") or os.environ.get(AT_VARIABLE))


def _partition_counts(context: typer.Context) -> dict[str, int]:
    """The topics of the target and how many partitions each has."""
    from cordwood.cli.at.target import DirectoryTarget
    from cordwood.errors import CordwoodError
    from cordwood.format.file_names import INTERNAL_TOPICS

    try:
        at = _target(context)
        found = _topics_in(at) if isinstance(at, DirectoryTarget) else _topics_of(at)
    except (CordwoodError, OSError):
        return {}
    return {name: count for name, count in found.items() if name not in INTERNAL_TOPICS}


# --- a directory, by the smallest of its files ---------------------------------------------------


def _topics_in(target: "DirectoryTarget") -> dict[str, int]:
    from cordwood.log.topics.topic_catalog import read_catalog
    from cordwood.storage.files import RealFileSystem

    catalog = read_catalog(RealFileSystem(), target.paths)
    if catalog is not None:
        return {name: entry.partitions for name, entry in catalog.topics.items()}
    return _topics_by_names(target)


def _topics_by_names(target: "DirectoryTarget") -> dict[str, int]:
    """For a directory that Kafka wrote."""
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


# --- a broker, if it answers at once -------------------------------------------------------------


def _connected(target: "BrokerTarget") -> "RemoteCluster":
    from cordwood.remote.remote_cluster import RemoteCluster
    from cordwood.remote.wire_connection import WireConnection

    connect = partial(
        WireConnection, connect_timeout_s=_CONNECT_TIMEOUT_S, answer_timeout_s=_ANSWER_TIMEOUT_S
    )
    return RemoteCluster(target.addresses[:1], connect=connect)


def _topics_of(target: "BrokerTarget") -> dict[str, int]:
    with _connected(target) as cluster:
        return {name: len(topic.leaders) for name, topic in cluster.describe(None).items()}


def _groups_of(target: "BrokerTarget") -> list[str]:
    from cordwood.remote.remote_groups import RemoteGroups

    with _connected(target) as cluster:
        return [group.name for group in RemoteGroups(cluster).listed()]
