"""Limits for the copies of replicas (KIP-73): rates of brokers, lists of replicas of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cordwood.remote import api_calls
from cordwood.remote.config_changes import ConfigOwner, config_changes
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.wire_connection import WireConnection

_SENDING_RATE: Final = "leader.replication.throttled.rate"
_RECEIVING_RATE: Final = "follower.replication.throttled.rate"
_SENDERS: Final = "leader.replication.throttled.replicas"
_RECEIVERS: Final = "follower.replication.throttled.replicas"


class RemoteThrottles:
    """Sets and removes limits. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    def limit_broker(self, node_id: int, bytes_per_s: int | None) -> None:
        """Set both rates of a broker; None removes them. Kafka's brokers take only their own."""
        value = None if bytes_per_s is None else str(bytes_per_s)
        changes = {_SENDING_RATE: value, _RECEIVING_RATE: value}
        self._alter(self._cluster.broker(node_id), ConfigOwner.BROKER, str(node_id), changes)

    def list_replicas(self, topic: str, senders: str | None, receivers: str | None) -> None:
        """Replace the lists of a topic; None removes a list."""
        changes = {_SENDERS: senders, _RECEIVERS: receivers}
        self._alter(self._cluster.controller(), ConfigOwner.TOPIC, topic, changes)

    def _alter(
        self,
        connection: WireConnection,
        owner: ConfigOwner,
        name: str,
        changes: Mapping[str, str | None],
    ) -> None:
        wanted = config_changes(owner, name, changes)
        answer = connection.call(api_calls.INCREMENTAL_ALTER_CONFIGS(wanted))
        [result] = answer.responses
        what = f"limit the copies of {owner.name.lower()} {name}"
        check(result.error_code, what, message=result.error_message)

    def listed_topics(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that list throttled replicas."""
        names = sorted(set(topics))
        if not names:
            return []
        answer = self._cluster.anyone().call(
            api_calls.DESCRIBE_CONFIGS(
                {
                    "resources": [
                        {
                            "resource_type": ConfigOwner.TOPIC,
                            "resource_name": name,
                            "configuration_keys": [_SENDERS, _RECEIVERS],
                        }
                        for name in names
                    ]
                }
            )
        )
        return [
            result.resource_name
            for result in answer.results
            if any(entry.value for entry in result.configs)
        ]
