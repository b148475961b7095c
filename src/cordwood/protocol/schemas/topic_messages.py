"""Creating, growing, trimming and deleting topics; the directories of their files."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.CREATE_TOPICS: """
        request
          topics []
            name string
            num_partitions int32
            replication_factor int16
            assignments []
              partition_index int32
              broker_ids []int32
            configs []
              name string
              value string?
          timeout int32 = 60000
          validate_only bool
        response
          throttle_time int32
          topics []
            name string
            topic_id uuid 7+
            error_code int16
            error_message string?
            topic_config_error_code int16 5+ tag 0
            num_partitions int32 5+ = -1
            replication_factor int16 5+ = -1
            configs []? 5+
              name string
              value string?
              read_only bool
              config_source int8 = -1
              is_sensitive bool
    """,
    ApiKey.DELETE_TOPICS: """
        request
          topic_names []string 1-5
          topics [] 6+
            name string?
            topic_id uuid
          timeout int32
        response
          throttle_time int32
          responses []
            name string?6+
            topic_id uuid 6+
            error_code int16
            error_message string? 5+
    """,
    ApiKey.CREATE_PARTITIONS: """
        request
          topics []
            name string
            count int32
            assignments []?
              broker_ids []int32
          timeout int32
          validate_only bool
        response
          throttle_time int32
          results []
            name string
            error_code int16
            error_message string?
    """,
    ApiKey.DELETE_RECORDS: """
        request
          topics []
            name string
            partitions []
              partition_index int32
              offset int64
          timeout int32
        response
          throttle_time int32
          topics []
            name string
            partitions []
              partition_index int32
              low_watermark int64
              error_code int16
    """,
    ApiKey.DESCRIBE_LOG_DIRS: """
        request
          topics []?
            topic string
            partitions []int32
        response
          throttle_time int32
          error_code int16 3+
          results []
            error_code int16
            log_dir string
            topics []
              name string
              partitions []
                partition_index int32
                partition_size int64
                offset_lag int64
                is_future_key bool
            total_bytes int64 4+ = -1
            usable_bytes int64 4+ = -1
            is_cordoned bool 5+
    """,
}
