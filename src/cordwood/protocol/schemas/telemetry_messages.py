"""Messages of client metrics (KIP-714)."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: """
        request
          client_instance_id uuid
        response
          throttle_time int32
          error_code int16
          client_instance_id uuid
          subscription_id int32
          accepted_compression_types []int8
          push_interval int32
          telemetry_max_bytes int32
          delta_temporality bool
          requested_metrics []string
    """,
    ApiKey.PUSH_TELEMETRY: """
        request
          client_instance_id uuid
          subscription_id int32
          terminating bool
          compression_type int8
          metrics bytes
        response
          throttle_time int32
          error_code int16
    """,
}
