"""Values of brokers' settings that are refused before the controllers see them."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.broker.cluster.control.relayed_settings import unusable_setting, with_reasons
from cordwood.protocol.error_code import ErrorCode

TOPIC, BROKER = 2, 4


def resource(kind: int, name: str, value: str | None, **more: Any) -> dict[str, Any]:
    config = {"name": name, "value": value, **more}
    return {"resource_type": kind, "resource_name": "", "configs": [config]}


@pytest.mark.parametrize("more", [{}, {"config_operation": 0}])
def test_a_value_that_no_broker_could_use_is_refused_with_the_reason(more: dict[str, int]) -> None:
    refused = resource(BROKER, "follower.replication.throttled.rate", "-5", **more)

    assert unusable_setting(refused) is not None
    assert "must be at least 0" in str(unusable_setting(refused))


@pytest.mark.parametrize(
    "passed",
    [
        resource(BROKER, "follower.replication.throttled.rate", "5"),
        resource(BROKER, "follower.replication.throttled.rate", None, config_operation=1),
        resource(BROKER, "a.key.of.somebody.else", "-5"),
        resource(TOPIC, "retention.ms", "nonsense"),  # the controllers check those of topics
    ],
)
def test_what_may_be_right_is_for_the_controllers(passed: dict[str, Any]) -> None:
    assert unusable_setting(passed) is None


def test_only_unusable_values_get_their_reason() -> None:
    asked = [
        {**resource(BROKER, "log.retention.ms", "soon"), "resource_name": "1"},
        {**resource(BROKER, "log.retention.ms", "1000"), "resource_name": "2"},
    ]
    refused = [
        {
            "resource_type": BROKER,
            "resource_name": name,
            "error_code": code,
            "error_message": "Authorization failed.",
        }
        for name, code in (
            ("1", ErrorCode.invalid_config),
            ("2", ErrorCode.cluster_authorization_failed),
        )
    ]

    first, second = with_reasons(refused, asked)

    assert "log.retention.ms = soon" in first["error_message"]
    assert second["error_message"] == "Authorization failed."
