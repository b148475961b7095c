"""The layout of every message that is not read and written by hand, one text for each API.

A line is one field: ``name type [versions] [tag N] [= default]``, the fields of a structure
indented below it. The order is that of the wire.

    type       bool, int8, int16, uint16, int32, int64, float64, string, bytes, uuid; {} is a
               structure, [] an array of structures, []int32 an array of numbers. ``?`` behind it:
               may be null; ``?7+``: from version 7 on.
    versions   3+, 1-7 or 2: the versions that have the field. Without: those of the structure
               it is in.
    tag N      a tagged field, which is sent only if it is not the default.
    default    if not given: 0, false, empty, or null if that is allowed.

Durations are in milliseconds and timestamps in milliseconds since 1970, whatever their names. After
a change run ``build_support/message_types.py``, which writes the types of the messages.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cordwood.protocol.schemas import (
    acl_messages,
    cluster_messages,
    config_messages,
    consumer_group_messages,
    control_messages,
    group_messages,
    offset_messages,
    quota_messages,
    telemetry_messages,
    topic_messages,
    transaction_messages,
    user_messages,
)

MESSAGE_SCHEMAS: Final[Mapping[int, str]] = MappingProxyType(
    {
        **acl_messages.SCHEMAS,
        **cluster_messages.SCHEMAS,
        **config_messages.SCHEMAS,
        **consumer_group_messages.SCHEMAS,
        **control_messages.SCHEMAS,
        **group_messages.SCHEMAS,
        **offset_messages.SCHEMAS,
        **quota_messages.SCHEMAS,
        **telemetry_messages.SCHEMAS,
        **topic_messages.SCHEMAS,
        **transaction_messages.SCHEMAS,
        **user_messages.SCHEMAS,
    }
)
