"""DescribeLogDirs: the data directories, their free space and their partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn
from cordwood.broker.security import access_table as needs
from cordwood.log.store.store import Store
from cordwood.log.topics.data_directories import FutureReplica
from cordwood.log.topics.log_directory import DirectoryStatus
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import topic_messages as messages


class LogDirsHandler:
    """Describes directories. Called by workers, because it queries the file system."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route(
                api=ApiKey.DESCRIBE_LOG_DIRS,
                handler=self.describe_log_dirs,
                runs_on=RunsOn.WORKER,
            )
        ]

    def describe_log_dirs(
        self, context: RequestContext, request: messages.DescribeLogDirsRequest
    ) -> messages.DescribeLogDirsResponseDict:
        if not context.may(needs.DESCRIBE_LOG_DIRS):
            return {"error_code": needs.DESCRIBE_LOG_DIRS.code, "results": []}
        wanted = (
            None
            if request.topics is None
            else {(item.topic, number) for item in request.topics for number in item.partitions}
        )
        directories = self._store.directories
        sizes, futures = directories.partition_sizes(), directories.future_replicas()
        return {
            "error_code": ErrorCode.none,
            "results": [
                _described(status, sizes.get(status.path, {}), futures.get(status.path, {}), wanted)
                for status in directories.status()
            ],
        }


def _described(
    status: DirectoryStatus,
    sizes: Mapping[tuple[str, int], int],
    futures: Mapping[tuple[str, int], FutureReplica],
    wanted: set[tuple[str, int]] | None,
) -> messages.DescribeLogDirsResponseResultsDict:
    if status.error is not None:
        return {"log_dir": status.path, "error_code": ErrorCode.kafka_storage_error}
    topics: defaultdict[str, list[messages.DescribeLogDirsResponsePartitionsDict]] = defaultdict(
        list
    )
    for (topic, number), size in sorted(sizes.items()):
        if wanted is None or (topic, number) in wanted:
            topics[topic].append(
                {
                    "partition_index": number,
                    "partition_size": size,
                    "offset_lag": 0,  # there is no other replica to lag behind
                    "is_future_key": False,
                }
            )
    for (topic, number), future in sorted(futures.items()):
        if wanted is None or (topic, number) in wanted:
            topics[topic].append(
                {
                    "partition_index": number,
                    "partition_size": future.size_bytes,
                    "offset_lag": future.lag,
                    "is_future_key": True,
                }
            )
    return {
        "error_code": ErrorCode.none,
        "log_dir": status.path,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
        "total_bytes": status.total_bytes,
        "usable_bytes": status.free_bytes,
    }
