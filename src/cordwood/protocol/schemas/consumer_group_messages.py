"""Consumer groups of KIP-848."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: """
        request
          group_id string
          member_id string
          member_epoch int32
          instance_id string?
          rack_id string?
          rebalance_timeout int32 = -1
          subscribed_topic_names []string?
          subscribed_topic_regex string? 1+
          server_assignor string?
          topic_partitions []?
            topic_id uuid
            partitions []int32
        response
          throttle_time int32
          error_code int16
          error_message string?
          member_id string?
          member_epoch int32
          heartbeat_interval int32
          assignment {}?
            topic_partitions []
              topic_id uuid
              partitions []int32
    """,
    ApiKey.CONSUMER_GROUP_DESCRIBE: """
        request
          group_ids []string
          include_authorized_operations bool
        response
          throttle_time int32
          groups []
            error_code int16
            error_message string?
            group_id string
            group_state string
            group_epoch int32
            assignment_epoch int32
            assignor_name string
            members []
              member_id string
              instance_id string?
              rack_id string?
              member_epoch int32
              client_id string
              client_host string
              subscribed_topic_names []string
              subscribed_topic_regex string?
              assignment {}
                topic_partitions []
                  topic_id uuid
                  topic_name string
                  partitions []int32
              target_assignment {}
                topic_partitions []
                  topic_id uuid
                  topic_name string
                  partitions []int32
              member_type int8 1+ = -1
            authorized_operations int32 = -2147483648
    """,
}
