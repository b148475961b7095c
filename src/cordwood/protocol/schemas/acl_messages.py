"""Access rules: listing, creating and deleting them."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.DESCRIBE_ACLS: """
        request
          resource_type_filter int8
          resource_name_filter string?
          pattern_type_filter int8 = 3
          principal_filter string?
          host_filter string?
          operation int8
          permission_type int8
        response
          throttle_time int32
          error_code int16
          error_message string?
          resources []
            resource_type int8
            resource_name string
            pattern_type int8 = 3
            acls []
              principal string
              host string
              operation int8
              permission_type int8
    """,
    ApiKey.CREATE_ACLS: """
        request
          creations []
            resource_type int8
            resource_name string
            resource_pattern_type int8 = 3
            principal string
            host string
            operation int8
            permission_type int8
        response
          throttle_time int32
          results []
            error_code int16
            error_message string?
    """,
    ApiKey.DELETE_ACLS: """
        request
          filters []
            resource_type_filter int8
            resource_name_filter string?
            pattern_type_filter int8 = 3
            principal_filter string?
            host_filter string?
            operation int8
            permission_type int8
        response
          throttle_time int32
          filter_results []
            error_code int16
            error_message string?
            matching_acls []
              error_code int16
              error_message string?
              resource_type int8
              resource_name string
              pattern_type int8 = 3
              principal string
              host string
              operation int8
              permission_type int8
    """,
}
