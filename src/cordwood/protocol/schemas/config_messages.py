"""Configurations of topics and brokers: reading and changing them."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.DESCRIBE_CONFIGS: """
        request
          resources []
            resource_type int8
            resource_name string
            configuration_keys []string?
          include_synonyms bool
          include_documentation bool 3+
        response
          throttle_time int32
          results []
            error_code int16
            error_message string?
            resource_type int8
            resource_name string
            configs []
              name string
              value string?
              read_only bool
              config_source int8 = -1
              is_sensitive bool
              synonyms []
                name string
                value string?
                source int8
              config_type int8 3+
              documentation string? 3+
    """,
    ApiKey.ALTER_CONFIGS: """
        request
          resources []
            resource_type int8
            resource_name string
            configs []
              name string
              value string?
          validate_only bool
        response
          throttle_time int32
          responses []
            error_code int16
            error_message string?
            resource_type int8
            resource_name string
    """,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: """
        request
          resources []
            resource_type int8
            resource_name string
            configs []
              name string
              config_operation int8
              value string?
          validate_only bool
        response
          throttle_time int32
          responses []
            error_code int16
            error_message string?
            resource_type int8
            resource_name string
    """,
    ApiKey.LIST_CONFIG_RESOURCES: """
        request
          resource_types []int8 1+
        response
          throttle_time int32
          error_code int16
          config_resources []
            resource_name string
            resource_type int8 1+ = 16
    """,
}
