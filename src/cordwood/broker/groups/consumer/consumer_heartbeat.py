"""A heartbeat of a consumer group's member, and the checks that need no group."""

from collections.abc import Callable, Collection
from typing import Final, Protocol
from uuid import UUID

from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.consumer_member import AWAY_EPOCH, JOINING_EPOCH, LEAVING_EPOCH
from cordwood.format.file_names import TOPIC_NAME_CHARS_MAX
from cordwood.format.groups.group_fields import STRING_BYTES_MAX
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass

UNCHANGED_TIMEOUT: Final = -1

_OWN_MEMBER_ID_VERSION: Final = 1  # from this version on, members choose their own ids
_ID_BYTES_MAX: Final = 1024  # clients and operators use ids below 256 bytes
_REGEX_BYTES_MAX: Final = STRING_BYTES_MAX  # the limit of a string in a record
_TOPICS_MAX: Final = 100_000  # ten times the topics of a large store


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """What a member sends. None, and -1 for the timeout, mean "unchanged".

    `epoch` is the member's epoch, or 0 to join, -1 to leave, -2 to leave for a while. `may_see`
    tells which topics the client may know of; None: all.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    may_see: Callable[[str], bool] | None = None

    @property
    def is_joining(self) -> bool:
        return self.epoch == JOINING_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether every field is set, as after an error. The answer must then be full as well."""
        return (
            self.rebalance_timeout_ms != UNCHANGED_TIMEOUT
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


class OwnedTopic(Protocol):
    """An entry of `topic_partitions` in a request."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Collection[int]: ...


def owned_partitions(topics: Collection[OwnedTopic] | None) -> Assignment | None:
    """The `topic_partitions` of a request; None if the request does not have them."""
    if topics is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned


def check_heartbeat(
    heartbeat: ConsumerHeartbeat, api_version: int, assignors: Collection[str]
) -> None:
    """Raise `RefusedError` for a heartbeat that every group would refuse."""
    needs_member_id = heartbeat.epoch > JOINING_EPOCH or heartbeat.epoch == LEAVING_EPOCH
    if not heartbeat.member_id and (needs_member_id or api_version >= _OWN_MEMBER_ID_VERSION):
        raise _invalid("MemberId can't be empty.")
    if heartbeat.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if heartbeat.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if heartbeat.epoch < AWAY_EPOCH:
        raise _invalid(f"MemberEpoch {heartbeat.epoch} is invalid.")
    if heartbeat.epoch == AWAY_EPOCH and heartbeat.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if heartbeat.is_joining:
        _check_joining(heartbeat)
    _check_sizes(heartbeat)
    if heartbeat.assignor is not None and heartbeat.assignor not in assignors:
        raise RefusedError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {heartbeat.assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_joining(heartbeat: ConsumerHeartbeat) -> None:
    if heartbeat.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if heartbeat.owned is None or heartbeat.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if heartbeat.topic_names is None and heartbeat.topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def _check_sizes(heartbeat: ConsumerHeartbeat) -> None:
    """Limit what the group keeps in memory. Kafka has no such limits."""
    if heartbeat.rebalance_timeout_ms < UNCHANGED_TIMEOUT:
        raise _invalid(f"RebalanceTimeoutMs {heartbeat.rebalance_timeout_ms} is negative.")
    for what, text in (
        ("MemberId", heartbeat.member_id),
        ("InstanceId", heartbeat.instance_id),
        ("RackId", heartbeat.rack_id),
    ):
        if text is not None and len(text.encode()) > _ID_BYTES_MAX:
            raise _invalid(f"{what} is longer than {_ID_BYTES_MAX} bytes.")
    if heartbeat.topic_names is not None:
        if len(heartbeat.topic_names) > _TOPICS_MAX:
            raise _invalid(f"SubscribedTopicNames has more than {_TOPICS_MAX} topics.")
        for name in heartbeat.topic_names:
            if not 0 < len(name) <= TOPIC_NAME_CHARS_MAX:
                raise _invalid(
                    f"SubscribedTopicNames has a name of {len(name)} characters; "
                    f"topics have 1 to {TOPIC_NAME_CHARS_MAX}."
                )
    if heartbeat.topic_regex is not None and len(heartbeat.topic_regex.encode()) > _REGEX_BYTES_MAX:
        raise _invalid(f"SubscribedTopicRegex is longer than {_REGEX_BYTES_MAX} bytes.")


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)
