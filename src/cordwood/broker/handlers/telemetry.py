"""GetTelemetrySubscriptions and PushTelemetry: metrics that clients send (KIP-714).

As in Kafka they need no access rule: a client that may connect may send its metrics.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from uuid import UUID

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn, routes_on
from cordwood.broker.telemetry.client_instances import ACCEPTED_CODECS
from cordwood.broker.telemetry.client_metrics import ClientMetrics
from cordwood.broker.telemetry.subscription import ClientFacts
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import telemetry_messages as messages

_TEXT_CHARS_MAX = 128


class TelemetryHandler:
    """Tells clients what to send, and takes it. Called by workers: a push is decompressed."""

    def __init__(self, clients: ClientMetrics | None) -> None:
        """With None nobody looks at the metrics: then clients are refused, and not invited."""
        self._clients = clients

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.get_subscriptions,
                ApiKey.PUSH_TELEMETRY: self.push,
            },
        )

    def get_subscriptions(
        self, context: RequestContext, request: messages.GetTelemetrySubscriptionsRequest
    ) -> messages.GetTelemetrySubscriptionsResponseDict:
        if self._clients is None:
            return {"error_code": ErrorCode.unsupported_version}
        instance_id, instance, code = self._clients.ask(
            request.client_instance_id, lambda given: _facts(context, given)
        )
        if code is not ErrorCode.none:
            return {"error_code": code}
        return {
            "error_code": ErrorCode.none,
            "client_instance_id": instance_id,
            "subscription_id": instance.subscription_id,
            "accepted_compression_types": [int(codec) for codec in ACCEPTED_CODECS],
            "push_interval": instance.interval_ms,
            "telemetry_max_bytes": self._clients.bytes_max,
            # Counters from their start, as Prometheus wants them: a lost push loses nothing.
            "delta_temporality": False,
            "requested_metrics": list(instance.metrics),
        }

    def push(
        self, context: RequestContext, request: messages.PushTelemetryRequest
    ) -> messages.PushTelemetryResponseDict:
        if self._clients is None:
            return {"error_code": ErrorCode.unsupported_version}
        code = self._clients.push(
            request.client_instance_id,
            lambda given: _facts(context, given),
            subscription_id=request.subscription_id,
            codec=request.compression_type,
            is_terminating=request.terminating,
            metrics=bytes(request.metrics),
        )
        return {"error_code": code}


def _facts(context: RequestContext, instance_id: UUID) -> ClientFacts:
    software = context.session.software
    return ClientFacts(
        instance_id=base64.urlsafe_b64encode(instance_id.bytes).decode().rstrip("="),
        client_id=context.client_id[:_TEXT_CHARS_MAX],
        software_name=software.name[:_TEXT_CHARS_MAX],
        software_version=software.version[:_TEXT_CHARS_MAX],
        address=context.client_host,
        port=context.session.client_port,
    )
