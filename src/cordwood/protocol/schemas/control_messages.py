"""Messages between brokers and the controllers of a cluster, and those that brokers relay."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.ELECT_LEADERS: """
        request
          election_type int8 1+
          topic_partitions []?
            topic string
            partitions []int32
          timeout int32 = 60000
        response
          throttle_time int32
          error_code int16 1+
          replica_election_results []
            topic string
            partition_result []
              partition_id int32
              error_code int16
              error_message string?
    """,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: """
        request
          timeout int32 = 60000
          allow_replication_factor_change bool 1+ = true
          topics []
            name string
            partitions []
              partition_index int32
              replicas []int32?
        response
          throttle_time int32
          allow_replication_factor_change bool 1+ = true
          error_code int16
          error_message string?
          responses []
            name string
            partitions []
              partition_index int32
              error_code int16
              error_message string?
    """,
    ApiKey.ALTER_REPLICA_LOG_DIRS: """
        request
          dirs []
            path string
            topics []
              name string
              partitions []int32
        response
          throttle_time int32
          results []
            topic_name string
            partitions []
              partition_index int32
              error_code int16
    """,
    ApiKey.DESCRIBE_QUORUM: """
        request
          topics []
            topic_name string
            partitions []
              partition_index int32
        response
          error_code int16
          error_message string? 2+
          topics []
            topic_name string
            partitions []
              partition_index int32
              error_code int16
              error_message string? 2+
              leader_id int32
              leader_epoch int32
              high_watermark int64
              current_voters []
                replica_id int32
                replica_directory_id uuid 2+
                log_end_offset int64
                last_fetch_timestamp int64 1+ = -1
                last_caught_up_timestamp int64 1+ = -1
              observers []
                replica_id int32
                replica_directory_id uuid 2+
                log_end_offset int64
                last_fetch_timestamp int64 1+ = -1
                last_caught_up_timestamp int64 1+ = -1
          nodes [] 2+
            node_id int32
            listeners []
              name string
              host string
              port uint16
    """,
    ApiKey.ALTER_PARTITION: """
        request
          broker_id int32
          broker_epoch int64 = -1
          topics []
            topic_id uuid
            partitions []
              partition_index int32
              leader_epoch int32
              new_isr []int32 0-2
              new_isr_with_epochs [] 3+
                broker_id int32
                broker_epoch int64 = -1
              leader_recovery_state int8
              partition_epoch int32
        response
          throttle_time int32
          error_code int16
          topics []
            topic_id uuid
            partitions []
              partition_index int32
              error_code int16
              leader_id int32
              leader_epoch int32
              isr []int32
              leader_recovery_state int8
              partition_epoch int32
    """,
    ApiKey.UPDATE_FEATURES: """
        request
          timeout int32 = 60000
          feature_updates []
            feature string
            max_version_level int16
            allow_downgrade bool 0
            upgrade_type int8 1+ = 1
          validate_only bool 1+
        response
          throttle_time int32
          error_code int16
          error_message string?
          results [] 0-1
            feature string
            error_code int16
            error_message string?
    """,
    ApiKey.ENVELOPE: """
        request
          request_data bytes
          request_principal bytes?
          client_host_address bytes
        response
          response_data bytes?
          error_code int16
    """,
    ApiKey.FETCH_SNAPSHOT: """
        request
          cluster_id string? tag 0
          replica_id int32 = -1
          max_bytes int32 = 2147483647
          topics []
            name string
            partitions []
              partition int32
              current_leader_epoch int32
              snapshot_id {}
                end_offset int64
                epoch int32
              position int64
              replica_directory_id uuid 1+ tag 0
        response
          throttle_time int32
          error_code int16
          topics []
            name string
            partitions []
              index int32
              error_code int16
              snapshot_id {}
                end_offset int64
                epoch int32
              current_leader {} tag 0
                leader_id int32
                leader_epoch int32
              size int64
              position int64
              unaligned_records bytes
          node_endpoints [] 1+ tag 0
            node_id int32
            host string
            port uint16
    """,
    ApiKey.BROKER_REGISTRATION: """
        request
          broker_id int32
          cluster_id string
          incarnation_id uuid
          listeners []
            name string
            host string
            port uint16
            security_protocol int16
          features []
            name string
            min_supported_version int16
            max_supported_version int16
          rack string?
          is_migrating_zk_broker bool 1+
          log_dirs []uuid 2+
          previous_broker_epoch int64 3+ = -1
        response
          throttle_time int32
          error_code int16
          broker_epoch int64 = -1
    """,
    ApiKey.BROKER_HEARTBEAT: """
        request
          broker_id int32
          broker_epoch int64 = -1
          current_metadata_offset int64
          want_fence bool
          want_shut_down bool
          offline_log_dirs []uuid 1+ tag 0
          cordoned_log_dirs []uuid? 2+ tag 1
        response
          throttle_time int32
          error_code int16
          is_caught_up bool
          is_fenced bool = true
          should_shut_down bool
    """,
    ApiKey.UNREGISTER_BROKER: """
        request
          broker_id int32
        response
          throttle_time int32
          error_code int16
          error_message string?
    """,
    ApiKey.ALLOCATE_PRODUCER_IDS: """
        request
          broker_id int32
          broker_epoch int64 = -1
        response
          throttle_time int32
          error_code int16
          producer_id_start int64
          producer_id_len int32
    """,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: """
        request
          broker_id int32
          broker_epoch int64 = -1
          directories []
            id uuid
            topics []
              topic_id uuid
              partitions []
                partition_index int32
        response
          throttle_time int32
          error_code int16
          directories []
            id uuid
            topics []
              topic_id uuid
              partitions []
                partition_index int32
                error_code int16
    """,
}
