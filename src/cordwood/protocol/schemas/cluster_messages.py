"""Messages about the cluster: versions, brokers, topics and their leaders, coordinators."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.API_VERSIONS: """
        request
          client_software_name string 3+
          client_software_version string 3+
        response
          error_code int16
          api_keys []
            api_key int16
            min_version int16
            max_version int16
          throttle_time int32 1+
          supported_features [] 3+ tag 0
            name string
            min_version int16
            max_version int16
          finalized_features_epoch int64 3+ tag 1 = -1
          finalized_features [] 3+ tag 2
            name string
            max_version_level int16
            min_version_level int16
          zk_migration_ready bool 3+ tag 3
    """,
    ApiKey.METADATA: """
        request
          topics []?1+
            topic_id uuid 10+
            name string?10+
          allow_auto_topic_creation bool 4+ = true
          include_cluster_authorized_operations bool 8-10
          include_topic_authorized_operations bool 8+
        response
          throttle_time int32 3+
          brokers []
            node_id int32
            host string
            port int32
            rack string? 1+
          cluster_id string? 2+
          controller_id int32 1+ = -1
          topics []
            error_code int16
            name string?12+
            topic_id uuid 10+
            is_internal bool 1+
            partitions []
              error_code int16
              partition_index int32
              leader_id int32
              leader_epoch int32 7+ = -1
              replica_nodes []int32
              isr_nodes []int32
              offline_replicas []int32 5+
            topic_authorized_operations int32 8+ = -2147483648
          cluster_authorized_operations int32 8-10 = -2147483648
          error_code int16 13+
    """,
    ApiKey.DESCRIBE_CLUSTER: """
        request
          include_cluster_authorized_operations bool
          endpoint_type int8 1+ = 1
          include_fenced_brokers bool 2+
        response
          throttle_time int32
          error_code int16
          error_message string?
          endpoint_type int8 1+ = 1
          cluster_id string
          controller_id int32 = -1
          brokers []
            broker_id int32
            host string
            port int32
            rack string?
            is_fenced bool 2+
          cluster_authorized_operations int32 = -2147483648
    """,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: """
        request
          topics []
            name string
          response_partition_limit int32 = 2000
          cursor {}?
            topic_name string
            partition_index int32
        response
          throttle_time int32
          topics []
            error_code int16
            name string?
            topic_id uuid
            is_internal bool
            partitions []
              error_code int16
              partition_index int32
              leader_id int32
              leader_epoch int32 = -1
              replica_nodes []int32
              isr_nodes []int32
              eligible_leader_replicas []int32?
              last_known_elr []int32?
              offline_replicas []int32
            topic_authorized_operations int32 = -2147483648
          next_cursor {}?
            topic_name string
            partition_index int32
    """,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: """
        request
          timeout int32 = 60000
          topics []?
            name string
            partition_indexes []int32
        response
          throttle_time int32
          error_code int16
          error_message string?
          topics []
            name string
            partitions []
              partition_index int32
              replicas []int32
              adding_replicas []int32
              removing_replicas []int32
    """,
    ApiKey.FIND_COORDINATOR: """
        request
          key string 0-3
          key_type int8 1+
          coordinator_keys []string 4+
        response
          throttle_time int32 1+
          error_code int16 0-3
          error_message string? 1-3
          node_id int32 0-3
          host string 0-3
          port int32 0-3
          coordinators [] 4+
            key string
            node_id int32
            host string
            port int32
            error_code int16
            error_message string?
    """,
}
