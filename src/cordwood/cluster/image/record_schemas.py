"""The layout of every record of the metadata log, in the notation of `protocol/schemas`.

The first line of a text is the versions that are known; all of them are flexible.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class RecordType(IntEnum):
    """The types of metadata records, by Kafka's numbers."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28


RECORD_SCHEMAS: Final[Mapping[RecordType, str]] = {
    RecordType.REGISTER_BROKER: """
        0-4
        broker_id int32
        is_migrating_zk_broker bool 2+
        incarnation_id uuid
        broker_epoch int64
        end_points []
          name string
          host string
          port uint16
          security_protocol int16
        features []
          name string
          min_supported_version int16
          max_supported_version int16
        rack string?
        fenced bool = true
        in_controlled_shutdown bool 1+
        log_dirs []uuid 3+ tag 0
        cordoned_log_dirs []uuid? 4+ tag 1
    """,
    RecordType.UNREGISTER_BROKER: """
        0
        broker_id int32
        broker_epoch int64
    """,
    RecordType.TOPIC: """
        0
        name string
        topic_id uuid
    """,
    RecordType.PARTITION: """
        0-2
        partition_id int32 = -1
        topic_id uuid
        replicas []int32
        isr []int32
        removing_replicas []int32
        adding_replicas []int32
        leader int32 = -1
        leader_recovery_state int8 tag 0
        leader_epoch int32 = -1
        partition_epoch int32 = -1
        directories []uuid 1+
        eligible_leader_replicas []int32? 2+ tag 1
        last_known_elr []int32? 2+ tag 2
    """,
    RecordType.CONFIG: """
        0
        resource_type int8
        resource_name string
        name string
        value string?
    """,
    RecordType.PARTITION_CHANGE: """
        0-2
        partition_id int32 = -1
        topic_id uuid
        isr []int32? tag 0
        leader int32 tag 1 = -2
        replicas []int32? tag 2
        removing_replicas []int32? tag 3
        adding_replicas []int32? tag 4
        leader_recovery_state int8 tag 5 = -1
        eligible_leader_replicas []int32? 2+ tag 6
        last_known_elr []int32? 2+ tag 7
        directories []uuid? 1+ tag 8
    """,
    RecordType.FENCE_BROKER: """
        0
        id int32
        epoch int64
    """,
    RecordType.UNFENCE_BROKER: """
        0
        id int32
        epoch int64
    """,
    RecordType.REMOVE_TOPIC: """
        0
        topic_id uuid
    """,
    RecordType.DELEGATION_TOKEN: """
        0
        owner string
        requester string
        renewers []string
        issue_timestamp int64
        max_timestamp int64
        expiration_timestamp int64
        token_id string
    """,
    RecordType.USER_SCRAM_CREDENTIAL: """
        0
        name string
        mechanism int8
        salt bytes
        stored_key bytes
        server_key bytes
        iterations int32
    """,
    RecordType.FEATURE_LEVEL: """
        0
        name string
        feature_level int16
    """,
    RecordType.CLIENT_QUOTA: """
        0
        entity []
          entity_type string
          entity_name string?
        key string
        value float64
        remove bool
    """,
    RecordType.PRODUCER_IDS: """
        0
        broker_id int32
        broker_epoch int64 = -1
        next_producer_id int64
    """,
    RecordType.BROKER_REGISTRATION_CHANGE: """
        0-3
        broker_id int32
        broker_epoch int64
        fenced int8 tag 0
        in_controlled_shutdown int8 1+ tag 1
        log_dirs []uuid 2+ tag 2
        cordoned_log_dirs []uuid? 3+ tag 3
    """,
    RecordType.ACCESS_CONTROL_ENTRY: """
        0
        id uuid
        resource_type int8
        resource_name string
        pattern_type int8
        principal string
        host string
        operation int8
        permission_type int8
    """,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: """
        0
        id uuid
    """,
    RecordType.NO_OP: """
        0
    """,
    RecordType.ZK_MIGRATION_STATE: """
        0
        zk_migration_state int8
    """,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: """
        0
        name string
        mechanism int8
    """,
    RecordType.BEGIN_TRANSACTION: """
        0
        name string? tag 0
    """,
    RecordType.END_TRANSACTION: """
        0
    """,
    RecordType.ABORT_TRANSACTION: """
        0
        reason string? tag 0
    """,
    RecordType.REMOVE_DELEGATION_TOKEN: """
        0
        token_id string
    """,
    RecordType.REGISTER_CONTROLLER: """
        0
        controller_id int32
        incarnation_id uuid
        zk_migration_ready bool
        end_points []
          name string
          host string
          port uint16
          security_protocol int16
        features []
          name string
          min_supported_version int16
          max_supported_version int16
    """,
    RecordType.CLEAR_ELR: """
        0
        topic_name string
    """,
}
