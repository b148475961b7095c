"""Messages of client quotas."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: """
        request
          components []
            entity_type string
            match_type int8
            match string?
          strict bool
        response
          throttle_time int32
          error_code int16
          error_message string?
          entries []?
            entity []
              entity_type string
              entity_name string?
            values []
              key string
              value float64
    """,
    ApiKey.ALTER_CLIENT_QUOTAS: """
        request
          entries []
            entity []
              entity_type string
              entity_name string?
            ops []
              key string
              value float64
              remove bool
          validate_only bool
        response
          throttle_time int32
          entries []
            error_code int16
            error_message string?
            entity []
              entity_type string
              entity_name string?
    """,
}
