"""Types of the messages in `telemetry_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

SCHEMAS: Final[Mapping[int, str]]

class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID

class GetTelemetrySubscriptionsRequestDict(TypedDict, total=False):
    client_instance_id: UUID

class GetTelemetrySubscriptionsResponse:
    throttle_time: int
    error_code: int
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: tuple[int, ...]
    push_interval: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: tuple[str, ...]

class GetTelemetrySubscriptionsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: Sequence[int]
    push_interval: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: Sequence[str]

class PushTelemetryRequest:
    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

class PushTelemetryRequestDict(TypedDict, total=False):
    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

class PushTelemetryResponse:
    throttle_time: int
    error_code: int

class PushTelemetryResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
