"""Quotas of a broker: reading and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cordwood.errors import FormatError
from cordwood.remote import api_calls
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.security.quotas.quota_rules import described, entity_of, names_of
from cordwood.security.security_state import QuotaEntity

if TYPE_CHECKING:
    from cordwood.protocol.schemas import quota_messages as messages


class RemoteQuotas:
    """Reads and changes quotas. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    def quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """The limits of all entities, by key."""
        answer = self._cluster.admin(api_calls.DESCRIBE_CLIENT_QUOTAS({"components": []}))
        check(answer.error_code, "list quotas", message=answer.error_message)
        return {
            _entity(entry): {value.key: value.value for value in entry.values}
            for entry in answer.entries or ()
        }

    def alter(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set the limits of an entity; None removes one."""
        answer = self._cluster.admin(
            api_calls.ALTER_CLIENT_QUOTAS(
                {
                    "entries": [
                        {
                            "entity": [
                                {"entity_type": kind, "entity_name": name}
                                for kind, name in names_of(entity).items()
                            ],
                            "ops": [
                                {"key": key, "value": value or 0.0, "remove": value is None}
                                for key, value in changes.items()
                            ],
                        }
                    ]
                }
            )
        )
        [result] = answer.entries
        what = f"change quotas of {described(entity)}"
        check(result.error_code, what, message=result.error_message)


def _entity(entry: messages.DescribeClientQuotasResponseEntries) -> QuotaEntity:
    try:
        return entity_of({part.entity_type: part.entity_name for part in entry.entity})
    except ValueError as error:  # of another broker, which knows more types
        raise FormatError(f"the broker has a quota that cannot be shown: {error}") from error
