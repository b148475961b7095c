"""A broker's error codes as exceptions of ours."""

import re
from typing import Final

from cordwood.errors import (
    BrokerRefusedError,
    ConfigError,
    CordwoodError,
    InvalidTopicNameError,
    TopicExistsError,
    UnknownTopicError,
)
from cordwood.protocol.error_code import ErrorCode

# The request was not carried out, but a retry may succeed: a leader or coordinator is being
# elected or is still loading.
PASSING: Final = frozenset(
    {
        ErrorCode.leader_not_available.name,
        ErrorCode.not_leader_or_follower.name,
        ErrorCode.not_controller.name,
        ErrorCode.coordinator_load_in_progress.name,
        ErrorCode.coordinator_not_available.name,
        ErrorCode.not_coordinator.name,
        ErrorCode.not_enough_replicas.name,
        ErrorCode.fenced_leader_epoch.name,
        ErrorCode.unknown_leader_epoch.name,
    }
)

FORBIDDEN: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed.name,
        ErrorCode.group_authorization_failed.name,
        ErrorCode.cluster_authorization_failed.name,
    }
)

_SETTING: Final = re.compile(r"([A-Za-z0-9._-]+) = (.*?): (.*)", re.DOTALL)
_NAME: Final = re.compile(r"topic name '.*?': (.*)", re.DOTALL)


def code_name(code: int) -> str:
    """The name of an error code; its number if it has none here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def config_error(message: str) -> ConfigError | None:
    """The `ConfigError` in a broker's message; None if the message is not one."""
    found = _SETTING.fullmatch(message)
    return None if found is None else ConfigError(found[1], found[2], found[3])


def refusal(
    code: int, what: str, *, message: str | None = None, topic: str | None = None
) -> CordwoodError:
    """The exception for a broker that refused to do `what`."""
    text = message or ""
    match code:
        case ErrorCode.unknown_topic_or_partition if topic is not None:
            return UnknownTopicError(topic)
        case ErrorCode.topic_already_exists if topic is not None:
            return TopicExistsError(topic)
        case ErrorCode.invalid_topic_exception if topic is not None:
            named = _NAME.fullmatch(text)
            return InvalidTopicNameError(topic, named[1] if named else text or "is not allowed")
        case ErrorCode.invalid_config | ErrorCode.invalid_partitions:
            setting = config_error(text)
            if setting is not None:
                return setting
    return BrokerRefusedError(what, code_name(code), text)


def check(code: int, what: str, *, message: str | None = None, topic: str | None = None) -> None:
    """Raise unless `code` is none."""
    if code:
        raise refusal(code, what, message=message, topic=topic)


def is_forbidden(error: CordwoodError) -> bool:
    """Whether the user may not do it."""
    return isinstance(error, BrokerRefusedError) and error.code in FORBIDDEN


def is_passing(error: CordwoodError) -> bool:
    """Whether a retry may succeed."""
    return isinstance(error, BrokerRefusedError) and error.code in PASSING
