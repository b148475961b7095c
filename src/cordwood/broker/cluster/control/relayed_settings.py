"""Settings of brokers that clients want to change: values that no broker could use are refused.

The controllers keep settings of brokers by any name and with any value. Kafka's brokers look at
them before they pass them on, and so do ours, as far as they have the key.
"""

from collections.abc import Iterable
from typing import Final

from cordwood.broker.config.dynamic_keys import DYNAMIC_KEYS, canonical
from cordwood.cluster.control.relayed_items import Item
from cordwood.errors import ConfigError
from cordwood.protocol.error_code import ErrorCode

_BROKER_RESOURCE: Final = 4
_SET: Final = 0


def unusable_setting(resource: Item) -> str | None:
    """Why a resource of AlterConfigs or IncrementalAlterConfigs is refused; None if it is not."""
    if resource["resource_type"] != _BROKER_RESOURCE:
        return None
    for config in resource["configs"]:
        name, value = config["name"], config["value"]
        is_set = config.get("config_operation", _SET) == _SET and value is not None
        if is_set and name in DYNAMIC_KEYS:
            try:
                canonical(name, value, DYNAMIC_KEYS)
            except ConfigError as error:
                return str(error)
    return None


def with_reasons(refused: Iterable[Item], resources: Iterable[Item]) -> list[Item]:
    """The refusals of resources, each of an unusable value with its reason."""
    reasons = {
        (each["resource_type"], each["resource_name"]): reason
        for each in resources
        if (reason := unusable_setting(each)) is not None
    }
    return [
        {**each, "error_message": reasons[each["resource_type"], each["resource_name"]]}
        if each["error_code"] == ErrorCode.invalid_config
        else each
        for each in refused
    ]
