"""Which broker of a cluster a raw request is for: the leader of a partition, or a coordinator."""

from __future__ import annotations

from typing import Any, Final

from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.format.groups.group_offsets import group_partition
from cordwood.protocol.api_catalog import ApiKey
from wire.raw_client import RawClient

_VERSION: Final = 12
_LOOK_S: Final = 5.0

# What a request is about: ("partition", topic, number), ("group", id) or ("id", id).
Target = tuple[str, str] | tuple[str, str, int]


class ClusterRoutes:
    """The brokers of a cluster, as metadata says; looked at again after `forget`."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._leaders: dict[str, dict[int, str]] = {}

    def forget(self) -> None:
        self._leaders.clear()

    def find(self, target: Target | None) -> str:
        """The address of a broker. Raises `OSError` if none is known."""
        if target is None:
            return self._addresses[0]
        if len(target) == 3:
            return self._leader(target[1], target[2])
        is_group = target[0] == "group"
        topic = CONSUMER_OFFSETS_TOPIC if is_group else TRANSACTION_STATE_TOPIC
        self._look(topic)
        count = len(self._leaders[topic])
        return self._leader(topic, group_partition(target[1], count))

    def _leader(self, topic: str, number: int) -> str:
        self._look(topic)
        found = self._leaders[topic].get(number)
        if not found:
            raise OSError(f"{topic}-{number} has no leader")
        return found

    def _look(self, topic: str) -> None:
        if topic in self._leaders:
            return
        for address in self._addresses:
            try:
                self._leaders[topic] = _leaders(address, topic)
            except (OSError, EOFError):
                continue
            if self._leaders[topic]:
                return
        self._leaders.pop(topic, None)
        raise OSError(f"no broker knows {topic}")


def _leaders(address: str, topic: str) -> dict[int, str]:
    with RawClient(address) as client:
        client.socket.settimeout(_LOOK_S)
        answer: Any = client.call(
            ApiKey.METADATA,
            _VERSION,
            {"topics": [{"name": topic}], "allow_auto_topic_creation": False},
        )
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    return {
        partition.partition_index: brokers.get(partition.leader_id, "")
        for found in answer.topics
        for partition in found.partitions
    }
