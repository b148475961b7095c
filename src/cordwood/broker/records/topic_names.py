"""Why a topic does not exist: its name."""

from cordwood.broker.error_codes import ErrorCode
from cordwood.errors import InvalidTopicNameError
from cordwood.format.file_names import check_topic_name


def why_unknown(name: str) -> ErrorCode:
    """The error of a topic that does not exist."""
    if is_valid_name(name):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.invalid_topic_exception


def is_valid_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return False
    return True
