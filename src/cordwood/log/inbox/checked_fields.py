"""Checks of the values in requests, which come from other processes.

Each function returns the value if it is valid and raises `ValueError` otherwise. The requester
gets the message.
"""

from collections.abc import Mapping
from typing import Final

from cordwood.format.file_names import check_topic_name
from cordwood.quantities import INT32_MAX, INT64_MAX, Offset

PARTITIONS_MAX: Final = 10_000
_CONFIG_KEYS_MAX: Final = 1000
_CONFIG_CHARS_MAX: Final = 32_767
_GROUP_CHARS_MAX: Final = 1000


def number_field(value: object, maximum: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= maximum:
        raise ValueError(f"{value!r} is not a number from 0 to {maximum}")
    return value


def offset_field(value: object) -> Offset:
    return Offset(number_field(value))


def text_field(value: object, chars_max: int = INT32_MAX) -> str:
    if not isinstance(value, str) or len(value) > chars_max:
        raise ValueError(f"{str(value)[:80]!r} is not a text of at most {chars_max} characters")
    return value


def topic_field(value: object) -> str:
    name = text_field(value)
    check_topic_name(name)
    return name


def group_field(value: object) -> str:
    group = text_field(value, _GROUP_CHARS_MAX)
    if not group:
        raise ValueError("the group has no name")
    return group


def config_field(value: object) -> dict[str, str | None]:
    """Configuration keys and their values as text; null means the default."""
    if not isinstance(value, Mapping) or len(value) > _CONFIG_KEYS_MAX:
        raise ValueError(f"{str(value)[:80]!r} is not a configuration")
    return {
        text_field(key, _CONFIG_CHARS_MAX): (
            None if text is None else text_field(text, _CONFIG_CHARS_MAX)
        )
        for key, text in value.items()
    }
