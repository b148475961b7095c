"""Subscriptions of a broker to the metrics of its clients: reading and changing them."""

from collections.abc import Mapping

from cordwood.remote import api_calls
from cordwood.remote.config_changes import ConfigOwner, config_changes
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster


class RemoteClientMetrics:
    """Reads and changes subscriptions. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    def subscriptions(self) -> dict[str, dict[str, str]]:
        """The keys of each subscription, with the defaults of those that are not set."""
        listed = self._cluster.admin(
            api_calls.LIST_CONFIG_RESOURCES({"resource_types": [ConfigOwner.CLIENT_METRICS]})
        )
        check(listed.error_code, "list client metrics")
        names = [each.resource_name for each in listed.config_resources]
        if not names:
            return {}
        answer = self._cluster.admin(
            api_calls.DESCRIBE_CONFIGS(
                {
                    "resources": [
                        {
                            "resource_type": ConfigOwner.CLIENT_METRICS,
                            "resource_name": name,
                            "configuration_keys": None,
                        }
                        for name in names
                    ]
                }
            )
        )
        found: dict[str, dict[str, str]] = {}
        for result in answer.results:
            what = f"describe client metrics {result.resource_name!r}"
            check(result.error_code, what, message=result.error_message)
            found[result.resource_name] = {each.name: each.value or "" for each in result.configs}
        return found

    def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set keys; None resets one. A subscription without keys is gone."""
        wanted = config_changes(ConfigOwner.CLIENT_METRICS, name, changes)
        answer = self._cluster.admin(api_calls.INCREMENTAL_ALTER_CONFIGS(wanted))
        [result] = answer.responses
        what = f"change client metrics {name!r}"
        check(result.error_code, what, message=result.error_message)
