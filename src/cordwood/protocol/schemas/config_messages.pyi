"""Types of the messages in `config_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

SCHEMAS: Final[Mapping[int, str]]

class DescribeConfigsRequestResources:
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None

class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsRequestResources, ...]
    include_synonyms: bool
    include_documentation: bool

class DescribeConfigsRequestResourcesDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None

class DescribeConfigsRequestDict(TypedDict, total=False):
    resources: Sequence[DescribeConfigsRequestResourcesDict]
    include_synonyms: bool
    include_documentation: bool

class DescribeConfigsResponseSynonyms:
    name: str
    value: str | None
    source: int

class DescribeConfigsResponseConfigs:
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: tuple[DescribeConfigsResponseSynonyms, ...]
    config_type: int
    documentation: str | None

class DescribeConfigsResponseResults:
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribeConfigsResponseConfigs, ...]

class DescribeConfigsResponse:
    throttle_time: int
    results: tuple[DescribeConfigsResponseResults, ...]

class DescribeConfigsResponseSynonymsDict(TypedDict, total=False):
    name: str
    value: str | None
    source: int

class DescribeConfigsResponseConfigsDict(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsResponseSynonymsDict]
    config_type: int
    documentation: str | None

class DescribeConfigsResponseResultsDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResponseConfigsDict]

class DescribeConfigsResponseDict(TypedDict, total=False):
    throttle_time: int
    results: Sequence[DescribeConfigsResponseResultsDict]

class AlterConfigsRequestConfigs:
    name: str
    value: str | None

class AlterConfigsRequestResources:
    resource_type: int
    resource_name: str
    configs: tuple[AlterConfigsRequestConfigs, ...]

class AlterConfigsRequest:
    resources: tuple[AlterConfigsRequestResources, ...]
    validate_only: bool

class AlterConfigsRequestConfigsDict(TypedDict, total=False):
    name: str
    value: str | None

class AlterConfigsRequestResourcesDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsRequestConfigsDict]

class AlterConfigsRequestDict(TypedDict, total=False):
    resources: Sequence[AlterConfigsRequestResourcesDict]
    validate_only: bool

class AlterConfigsResponseResponses:
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class AlterConfigsResponse:
    throttle_time: int
    responses: tuple[AlterConfigsResponseResponses, ...]

class AlterConfigsResponseResponsesDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class AlterConfigsResponseDict(TypedDict, total=False):
    throttle_time: int
    responses: Sequence[AlterConfigsResponseResponsesDict]

class IncrementalAlterConfigsRequestConfigs:
    name: str
    config_operation: int
    value: str | None

class IncrementalAlterConfigsRequestResources:
    resource_type: int
    resource_name: str
    configs: tuple[IncrementalAlterConfigsRequestConfigs, ...]

class IncrementalAlterConfigsRequest:
    resources: tuple[IncrementalAlterConfigsRequestResources, ...]
    validate_only: bool

class IncrementalAlterConfigsRequestConfigsDict(TypedDict, total=False):
    name: str
    config_operation: int
    value: str | None

class IncrementalAlterConfigsRequestResourcesDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsRequestConfigsDict]

class IncrementalAlterConfigsRequestDict(TypedDict, total=False):
    resources: Sequence[IncrementalAlterConfigsRequestResourcesDict]
    validate_only: bool

class IncrementalAlterConfigsResponseResponses:
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class IncrementalAlterConfigsResponse:
    throttle_time: int
    responses: tuple[IncrementalAlterConfigsResponseResponses, ...]

class IncrementalAlterConfigsResponseResponsesDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str

class IncrementalAlterConfigsResponseDict(TypedDict, total=False):
    throttle_time: int
    responses: Sequence[IncrementalAlterConfigsResponseResponsesDict]

class ListConfigResourcesRequest:
    resource_types: tuple[int, ...]

class ListConfigResourcesRequestDict(TypedDict, total=False):
    resource_types: Sequence[int]

class ListConfigResourcesResponseConfigResources:
    resource_name: str
    resource_type: int

class ListConfigResourcesResponse:
    throttle_time: int
    error_code: int
    config_resources: tuple[ListConfigResourcesResponseConfigResources, ...]

class ListConfigResourcesResponseConfigResourcesDict(TypedDict, total=False):
    resource_name: str
    resource_type: int

class ListConfigResourcesResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    config_resources: Sequence[ListConfigResourcesResponseConfigResourcesDict]
