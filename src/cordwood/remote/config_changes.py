"""Changes of the keys of a topic, a broker or a subscription, as a request carries them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.protocol.schemas import config_messages


class ConfigOwner(IntEnum):
    """What has the keys, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16


class _Operation(IntEnum):
    SET = 0
    DELETE = 1


def config_changes(
    owner: ConfigOwner, name: str, changes: Mapping[str, str | None]
) -> config_messages.IncrementalAlterConfigsRequestDict:
    """A request that sets keys; None resets a key to its default."""
    return {
        "resources": [
            {
                "resource_type": owner,
                "resource_name": name,
                "configs": [
                    {
                        "name": key,
                        "config_operation": _Operation.DELETE if value is None else _Operation.SET,
                        "value": value,
                    }
                    for key, value in changes.items()
                ],
            }
        ]
    }
