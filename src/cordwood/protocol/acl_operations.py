"""The operations that a client may carry out, as bits: what Kafka answers without an authorizer."""

from enum import IntEnum
from typing import Final


class AclOperation(IntEnum):
    """Kafka's operations, with the protocol's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

NOT_ASKED: Final = -(2**31)
TOPIC_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    *_CONFIGS,
)
GROUP_OPERATIONS: Final = _bits(
    AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS
)
CLUSTER_OPERATIONS: Final = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.IDEMPOTENT_WRITE,
    *_CONFIGS,
)
