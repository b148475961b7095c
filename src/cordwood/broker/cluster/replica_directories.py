"""AlterReplicaLogDirs: replicas move between the data directories, or are fetched again.

A name that no directory has, ``cordwood:rebuild``, stands for a new directory beside the old one:
the replica is fetched again from its leader. DescribeLogDirs shows what is under way as a future
replica, until it is complete.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route, RunsOn
from cordwood.broker.security import access_table as needs
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

REBUILD_PATH: Final = "cordwood:rebuild"

_Place = tuple[str, int]


class ReplicaDirectories:
    """Called in the control loop; the data loop answers."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member

    def routes(self) -> list[Route]:
        return [
            Route(
                api=ApiKey.ALTER_REPLICA_LOG_DIRS,
                handler=self.alter_replica_log_dirs,
                runs_on=RunsOn.CONTROL,
            )
        ]

    def alter_replica_log_dirs(
        self, context: RequestContext, request: messages.AlterReplicaLogDirsRequest
    ) -> Response | Deferred:
        codes: dict[_Place, ErrorCode] = {}
        wanted: dict[_Place, tuple[PartitionPlace, str]] = {}
        may = context.may(needs.ALTER_REPLICA_LOG_DIRS)
        for directory in request.dirs:
            for topic in directory.topics:
                for number in topic.partitions:
                    place = (topic.name, number)
                    found = self._member.place_of(*place)
                    if not may:
                        codes[place] = needs.ALTER_REPLICA_LOG_DIRS.code
                    elif found is None:
                        codes[place] = ErrorCode.replica_not_available
                    elif (
                        directory.path == REBUILD_PATH
                        or directory.path in self._member.data_directories
                    ):
                        wanted[place] = found, directory.path
                    else:
                        codes[place] = ErrorCode.log_dir_not_found
        if not wanted:
            return _answer(codes)
        later = Deferred()
        left = len(wanted)

        def begun(place: _Place, code: ErrorCode) -> None:
            nonlocal left
            codes[place] = code
            left -= 1
            if not left:
                later.resolve(_answer(codes))

        for place, (found, path) in wanted.items():
            if path == REBUILD_PATH:
                self._member.rebuilds.begin(found, partial(begun, place))
            else:
                self._member.moves.begin(found, path, partial(begun, place))
        return later


def _answer(codes: dict[_Place, ErrorCode]) -> Response:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, number), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": number, "error_code": code})
    return {
        "results": [
            {"topic_name": name, "partitions": partitions} for name, partitions in topics.items()
        ]
    }
