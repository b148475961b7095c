"""Offsets: by time and by leader epoch, as committed by groups; producer ids."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.LIST_OFFSETS: """
        request
          replica_id int32
          isolation_level int8 2+
          topics []
            name string
            partitions []
              partition_index int32
              current_leader_epoch int32 4+ = -1
              timestamp int64
          timeout int32 10+
        response
          throttle_time int32 2+
          topics []
            name string
            partitions []
              partition_index int32
              error_code int16
              timestamp int64 = -1
              offset int64 = -1
              leader_epoch int32 4+ = -1
    """,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: """
        request
          replica_id int32 3+ = -2
          topics []
            topic string
            partitions []
              partition int32
              current_leader_epoch int32 = -1
              leader_epoch int32
        response
          throttle_time int32
          topics []
            topic string
            partitions []
              error_code int16
              partition int32
              leader_epoch int32 = -1
              end_offset int64 = -1
    """,
    ApiKey.OFFSET_COMMIT: """
        request
          group_id string
          generation_id_or_member_epoch int32 = -1
          member_id string
          retention_time int64 2-4 = -1
          group_instance_id string? 7+
          topics []
            name string 2-9
            topic_id uuid 10+
            partitions []
              partition_index int32
              committed_offset int64
              committed_leader_epoch int32 6+ = -1
              committed_metadata string?
        response
          throttle_time int32 3+
          topics []
            name string 2-9
            topic_id uuid 10+
            partitions []
              partition_index int32
              error_code int16
    """,
    ApiKey.OFFSET_FETCH: """
        request
          group_id string 1-7
          topics []?2+ 1-7
            name string
            partition_indexes []int32
          groups [] 8+
            group_id string
            member_id string? 9+
            member_epoch int32 9+ = -1
            topics []?
              name string 8-9
              topic_id uuid 10+
              partition_indexes []int32
          require_stable bool 7+
        response
          throttle_time int32 3+
          topics [] 1-7
            name string
            partitions []
              partition_index int32
              committed_offset int64
              committed_leader_epoch int32 5+ = -1
              metadata string?
              error_code int16
          error_code int16 2-7
          groups [] 8+
            group_id string
            topics []
              name string 8-9
              topic_id uuid 10+
              partitions []
                partition_index int32
                committed_offset int64
                committed_leader_epoch int32 = -1
                metadata string?
                error_code int16
            error_code int16
    """,
    ApiKey.OFFSET_DELETE: """
        request
          group_id string
          topics []
            name string
            partitions []
              partition_index int32
        response
          error_code int16
          throttle_time int32
          topics []
            name string
            partitions []
              partition_index int32
              error_code int16
    """,
    ApiKey.INIT_PRODUCER_ID: """
        request
          transactional_id string?
          transaction_timeout int32
          producer_id int64 3+ = -1
          producer_epoch int16 3+ = -1
        response
          throttle_time int32
          error_code int16
          producer_id int64 = -1
          producer_epoch int16
    """,
}
