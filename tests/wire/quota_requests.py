"""Quotas as an administrator sets them, through a connection."""

from collections.abc import Mapping
from typing import Any

from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from wire.raw_client import RawClient


def alter_quotas(
    address: str,
    entity: Mapping[str, str | None],
    limits: Mapping[str, float | None],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> Fields:
    """Set limits, or remove those that are None. The answer to the one entity."""
    request: dict[str, Any] = {
        "entries": [
            {
                "entity": [
                    {"entity_type": kind, "entity_name": name} for kind, name in entity.items()
                ],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in limits.items()
                ],
            }
        ],
        "validate_only": validate_only,
    }
    with RawClient(address) as client:
        (entry,) = client.call(ApiKey.ALTER_CLIENT_QUOTAS, version, request).entries
    return entry  # type: ignore[no-any-return]  # of a structure that is read by name


def set_quota(address: str, entity: Mapping[str, str | None], **limits: float | None) -> None:
    """Set limits that are accepted."""
    answer = alter_quotas(address, entity, limits)
    assert answer.error_code == 0, answer.error_message
