"""Topics of a broker: their configuration and sizes, creating and changing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.remote import api_calls
from cordwood.remote.config_changes import ConfigOwner, config_changes
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import topic_messages

_SOURCES: Final = {1: "topic", 2: "broker", 3: "broker", 4: "broker", 5: "default"}
_TIMEOUT_MS: Final = 30_000
_BROKER_DECIDES: Final = -1
_OUT_OF_RANGE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """The value of a configuration key, and its source: topic, broker or default."""

    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogDir:
    """A data directory of a broker, with the size of each partition in it."""

    path: str
    sizes: Mapping[tuple[str, int], int]


class RemoteTopics:
    """Reads and changes topics. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    # --- reading -----------------------------------------------------------------------------

    def configs(
        self, topics: Iterable[str], *, hides_forbidden: bool = False
    ) -> dict[str, dict[str, RemoteConfig]]:
        """Every configuration key of each topic.

        With `hides_forbidden`, a topic whose keys the user may not see has none.
        """
        names = list(topics)
        if not names:
            return {}
        answer = self._cluster.anyone().call(
            api_calls.DESCRIBE_CONFIGS(
                {
                    "resources": [
                        {
                            "resource_type": ConfigOwner.TOPIC,
                            "resource_name": name,
                            "configuration_keys": None,
                        }
                        for name in names
                    ]
                }
            ),
        )
        found: dict[str, dict[str, RemoteConfig]] = {}
        for result in answer.results:
            name = result.resource_name
            if hides_forbidden and result.error_code == ErrorCode.topic_authorization_failed:
                found[name] = {}
                continue
            check(
                result.error_code,
                f"describe the configuration of {name}",
                message=result.error_message,
                topic=name,
            )
            found[name] = {
                entry.name: RemoteConfig(
                    value=entry.value or "", source=_SOURCES.get(entry.config_source, "broker")
                )
                for entry in result.configs
            }
        return found

    def log_dirs(self) -> list[RemoteLogDir]:
        """The data directories of all brokers, except those that cannot be read."""
        found: list[RemoteLogDir] = []
        for connection in self._cluster.everyone():
            answer = connection.call(api_calls.DESCRIBE_LOG_DIRS({"topics": None}))
            check(answer.error_code, "describe log directories")
            found += [_log_dir(result) for result in answer.results if not result.error_code]
        return found

    # --- changing ----------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        partitions: int | None,
        config: Mapping[str, str],
        replicas: int | None = None,
    ) -> int:
        """Create a topic; return its number of partitions."""
        wanted: topic_messages.CreateTopicsRequestTopicsDict = {
            "name": name,
            "num_partitions": _BROKER_DECIDES if partitions is None else partitions,
            "replication_factor": _BROKER_DECIDES if replicas is None else replicas,
            "configs": [{"name": key, "value": value} for key, value in config.items()],
        }
        answer = self._cluster.admin(
            api_calls.CREATE_TOPICS({"topics": [wanted], "timeout": _TIMEOUT_MS})
        )
        [result] = answer.topics
        what = f"create topic {name!r}"
        check(result.error_code, what, message=result.error_message, topic=name)
        self._cluster.forget()
        if result.num_partitions > 0:
            return result.num_partitions
        return len(self._cluster.topic(name).leaders)

    def alter_config(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set keys; None resets a key to the default."""
        wanted = config_changes(ConfigOwner.TOPIC, name, config)
        answer = self._cluster.admin(api_calls.INCREMENTAL_ALTER_CONFIGS(wanted))
        [result] = answer.responses
        what = f"alter topic {name!r}"
        check(result.error_code, what, message=result.error_message, topic=name)

    def grow(self, name: str, partitions: int) -> None:
        """Increase the number of partitions."""
        wanted: topic_messages.CreatePartitionsRequestTopicsDict = {
            "name": name,
            "count": partitions,
            "assignments": None,
        }
        answer = self._cluster.admin(
            api_calls.CREATE_PARTITIONS({"topics": [wanted], "timeout": _TIMEOUT_MS})
        )
        [result] = answer.results
        what = f"add partitions to topic {name!r}"
        check(result.error_code, what, message=result.error_message, topic=name)
        self._cluster.forget()

    def delete(self, name: str) -> None:
        connection = self._cluster.controller()
        by_name = connection.version_of(ApiKey.DELETE_TOPICS) < 6
        request: topic_messages.DeleteTopicsRequestDict = {"timeout": _TIMEOUT_MS}
        if by_name:
            request["topic_names"] = [name]
        else:
            request["topics"] = [{"name": name}]
        answer = connection.call(api_calls.DELETE_TOPICS(request))
        [result] = answer.responses
        what = f"delete topic {name!r}"
        check(result.error_code, what, message=result.error_message, topic=name)
        self._cluster.forget()

    def trim(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete records before these offsets; return the new start of each partition."""
        starts: dict[int, int] = {}
        for connection, partitions in self._cluster.by_leader(name, before):
            wanted: list[topic_messages.DeleteRecordsRequestPartitionsDict] = [
                {"partition_index": n, "offset": before[n]} for n in partitions
            ]
            answer = connection.call(
                api_calls.DELETE_RECORDS(
                    {"topics": [{"name": name, "partitions": wanted}], "timeout": _TIMEOUT_MS}
                ),
            )
            for result in [part for topic in answer.topics for part in topic.partitions]:
                number = result.partition_index
                what = f"trim {name}-{number} before {before[number]}"
                check(result.error_code, what, message=_why_not_trimmed(result.error_code))
                starts[number] = result.low_watermark
        return starts


def _why_not_trimmed(code: int) -> str | None:
    """The message for a code, because the response has none."""
    if code == 44:
        return "records of a compacted topic cannot be deleted; append tombstones instead"
    return "the offset is out of range" if code == _OUT_OF_RANGE else None


def _log_dir(result: topic_messages.DescribeLogDirsResponseResults) -> RemoteLogDir:
    return RemoteLogDir(
        path=result.log_dir,
        sizes={
            (topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        },
    )
