"""Groups of the classic protocol; listing and deleting groups of all kinds."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.JOIN_GROUP: """
        request
          group_id string
          session_timeout int32
          rebalance_timeout int32 1+ = -1
          member_id string
          group_instance_id string? 5+
          protocol_type string
          protocols []
            name string
            metadata bytes
          reason string? 8+
        response
          throttle_time int32 2+
          error_code int16
          generation_id int32 = -1
          protocol_type string? 7+
          protocol_name string?7+
          leader string
          skip_assignment bool 9+
          member_id string
          members []
            member_id string
            group_instance_id string? 5+
            metadata bytes
    """,
    ApiKey.SYNC_GROUP: """
        request
          group_id string
          generation_id int32
          member_id string
          group_instance_id string? 3+
          protocol_type string? 5+
          protocol_name string? 5+
          assignments []
            member_id string
            assignment bytes
        response
          throttle_time int32 1+
          error_code int16
          protocol_type string? 5+
          protocol_name string? 5+
          assignment bytes
    """,
    ApiKey.HEARTBEAT: """
        request
          group_id string
          generation_id int32
          member_id string
          group_instance_id string? 3+
        response
          throttle_time int32 1+
          error_code int16
    """,
    ApiKey.LEAVE_GROUP: """
        request
          group_id string
          member_id string 0-2
          members [] 3+
            member_id string
            group_instance_id string?
            reason string? 5+
        response
          throttle_time int32 1+
          error_code int16
          members [] 3+
            member_id string
            group_instance_id string?
            error_code int16
    """,
    ApiKey.DESCRIBE_GROUPS: """
        request
          groups []string
          include_authorized_operations bool 3+
        response
          throttle_time int32 1+
          groups []
            error_code int16
            error_message string? 6+
            group_id string
            group_state string
            protocol_type string
            protocol_data string
            members []
              member_id string
              group_instance_id string? 4+
              client_id string
              client_host string
              member_metadata bytes
              member_assignment bytes
            authorized_operations int32 3+ = -2147483648
    """,
    ApiKey.LIST_GROUPS: """
        request
          states_filter []string 4+
          types_filter []string 5+
        response
          throttle_time int32 1+
          error_code int16
          groups []
            group_id string
            protocol_type string
            group_state string 4+
            group_type string 5+
    """,
    ApiKey.DELETE_GROUPS: """
        request
          groups_names []string
        response
          throttle_time int32
          results []
            group_id string
            error_code int16
    """,
}
