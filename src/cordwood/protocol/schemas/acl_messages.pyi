"""Types of the messages in `acl_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

SCHEMAS: Final[Mapping[int, str]]

class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DescribeAclsRequestDict(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DescribeAclsResponseAcls:
    principal: str
    host: str
    operation: int
    permission_type: int

class DescribeAclsResponseResources:
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[DescribeAclsResponseAcls, ...]

class DescribeAclsResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    resources: tuple[DescribeAclsResponseResources, ...]

class DescribeAclsResponseAclsDict(TypedDict, total=False):
    principal: str
    host: str
    operation: int
    permission_type: int

class DescribeAclsResponseResourcesDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[DescribeAclsResponseAclsDict]

class DescribeAclsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResponseResourcesDict]

class CreateAclsRequestCreations:
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class CreateAclsRequest:
    creations: tuple[CreateAclsRequestCreations, ...]

class CreateAclsRequestCreationsDict(TypedDict, total=False):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class CreateAclsRequestDict(TypedDict, total=False):
    creations: Sequence[CreateAclsRequestCreationsDict]

class CreateAclsResponseResults:
    error_code: int
    error_message: str | None

class CreateAclsResponse:
    throttle_time: int
    results: tuple[CreateAclsResponseResults, ...]

class CreateAclsResponseResultsDict(TypedDict, total=False):
    error_code: int
    error_message: str | None

class CreateAclsResponseDict(TypedDict, total=False):
    throttle_time: int
    results: Sequence[CreateAclsResponseResultsDict]

class DeleteAclsRequestFilters:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DeleteAclsRequest:
    filters: tuple[DeleteAclsRequestFilters, ...]

class DeleteAclsRequestFiltersDict(TypedDict, total=False):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class DeleteAclsRequestDict(TypedDict, total=False):
    filters: Sequence[DeleteAclsRequestFiltersDict]

class DeleteAclsResponseMatchingAcls:
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteAclsResponseFilterResults:
    error_code: int
    error_message: str | None
    matching_acls: tuple[DeleteAclsResponseMatchingAcls, ...]

class DeleteAclsResponse:
    throttle_time: int
    filter_results: tuple[DeleteAclsResponseFilterResults, ...]

class DeleteAclsResponseMatchingAclsDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class DeleteAclsResponseFilterResultsDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsResponseMatchingAclsDict]

class DeleteAclsResponseDict(TypedDict, total=False):
    throttle_time: int
    filter_results: Sequence[DeleteAclsResponseFilterResultsDict]
