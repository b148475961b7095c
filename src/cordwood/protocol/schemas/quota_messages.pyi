"""Types of the messages in `quota_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

SCHEMAS: Final[Mapping[int, str]]

class DescribeClientQuotasRequestComponents:
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasRequest:
    components: tuple[DescribeClientQuotasRequestComponents, ...]
    strict: bool

class DescribeClientQuotasRequestComponentsDict(TypedDict, total=False):
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasRequestDict(TypedDict, total=False):
    components: Sequence[DescribeClientQuotasRequestComponentsDict]
    strict: bool

class DescribeClientQuotasResponseEntity:
    entity_type: str
    entity_name: str | None

class DescribeClientQuotasResponseValues:
    key: str
    value: float

class DescribeClientQuotasResponseEntries:
    entity: tuple[DescribeClientQuotasResponseEntity, ...]
    values: tuple[DescribeClientQuotasResponseValues, ...]

class DescribeClientQuotasResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    entries: tuple[DescribeClientQuotasResponseEntries, ...] | None

class DescribeClientQuotasResponseEntityDict(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class DescribeClientQuotasResponseValuesDict(TypedDict, total=False):
    key: str
    value: float

class DescribeClientQuotasResponseEntriesDict(TypedDict, total=False):
    entity: Sequence[DescribeClientQuotasResponseEntityDict]
    values: Sequence[DescribeClientQuotasResponseValuesDict]

class DescribeClientQuotasResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    entries: Sequence[DescribeClientQuotasResponseEntriesDict] | None

class AlterClientQuotasRequestEntity:
    entity_type: str
    entity_name: str | None

class AlterClientQuotasRequestOps:
    key: str
    value: float
    remove: bool

class AlterClientQuotasRequestEntries:
    entity: tuple[AlterClientQuotasRequestEntity, ...]
    ops: tuple[AlterClientQuotasRequestOps, ...]

class AlterClientQuotasRequest:
    entries: tuple[AlterClientQuotasRequestEntries, ...]
    validate_only: bool

class AlterClientQuotasRequestEntityDict(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class AlterClientQuotasRequestOpsDict(TypedDict, total=False):
    key: str
    value: float
    remove: bool

class AlterClientQuotasRequestEntriesDict(TypedDict, total=False):
    entity: Sequence[AlterClientQuotasRequestEntityDict]
    ops: Sequence[AlterClientQuotasRequestOpsDict]

class AlterClientQuotasRequestDict(TypedDict, total=False):
    entries: Sequence[AlterClientQuotasRequestEntriesDict]
    validate_only: bool

class AlterClientQuotasResponseEntity:
    entity_type: str
    entity_name: str | None

class AlterClientQuotasResponseEntries:
    error_code: int
    error_message: str | None
    entity: tuple[AlterClientQuotasResponseEntity, ...]

class AlterClientQuotasResponse:
    throttle_time: int
    entries: tuple[AlterClientQuotasResponseEntries, ...]

class AlterClientQuotasResponseEntityDict(TypedDict, total=False):
    entity_type: str
    entity_name: str | None

class AlterClientQuotasResponseEntriesDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    entity: Sequence[AlterClientQuotasResponseEntityDict]

class AlterClientQuotasResponseDict(TypedDict, total=False):
    throttle_time: int
    entries: Sequence[AlterClientQuotasResponseEntriesDict]
