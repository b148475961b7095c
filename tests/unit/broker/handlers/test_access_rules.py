"""DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.access_rules import AccessRulesHandler
from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.access import acl_filter
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import AclRule, QuotaEntity, SecurityState
from fakes.handler_calls import HandlerCalls, versions
from fakes.simulated_fs import SimulatedFileSystem

ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
READ_ORDERS = AclRule(
    resource=AclResource.TOPIC,
    pattern=AclPattern.LITERAL,
    name="orders",
    principal="User:alice",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)


def creation(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changes,
    }


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory("/data")
    return fs


@pytest.fixture
def file(fs: SimulatedFileSystem) -> SecurityFile:
    return SecurityFile(fs, ["/data"])


@pytest.fixture
def call(file: SecurityFile) -> HandlerCalls:
    return HandlerCalls([AccessRulesHandler(file, has_authorizer=True)])


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_ACLS))
def test_a_rule_is_created_listed_and_deleted(
    call: HandlerCalls, file: SecurityFile, version: int
) -> None:
    created = call(ApiKey.CREATE_ACLS, {"creations": [creation()]}, version=version)

    assert [result.error_code for result in created.results] == [0]
    assert file.state.rules == {READ_ORDERS}

    [resource] = call(ApiKey.DESCRIBE_ACLS, ANY, version=version).resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (
        2,
        "orders",
        3,
    )
    [acl] = resource.acls
    assert tuple(acl) == ("User:alice", "*", 3, 3)

    [deleted] = call(ApiKey.DELETE_ACLS, {"filters": [ANY]}, version=version).filter_results
    assert [match.resource_name for match in deleted.matching_acls] == ["orders"]
    assert not file.state.rules


def test_rules_survive_a_crash(call: HandlerCalls, fs: SimulatedFileSystem) -> None:
    call(ApiKey.CREATE_ACLS, {"creations": [creation()]})

    assert SecurityFile(fs.kill(), ["/data"]).state.rules == {READ_ORDERS}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": 4, "resource_name": "mine"}, "the only name of a cluster"),
        ({"resource_type": 4, "resource_name": ""}, "the only name of a cluster"),
        ({"resource_name": ""}, "is empty"),
        ({"resource_name": "n" * 1025}, "has 1025 characters"),
        ({"resource_type": 1}, "resource type ANY is for filters"),
        ({"resource_type": 0}, "resource type 0 is unknown"),
        ({"resource_type": 99}, "resource type 99 is unknown"),
        ({"resource_pattern_type": 1}, "pattern type ANY is for filters"),
        ({"resource_pattern_type": 2}, "pattern type MATCH is for filters"),
        ({"operation": 1}, "operation ANY is for filters"),
        ({"operation": 77}, "operation 77 is unknown"),
        ({"permission_type": 1}, "permission ANY is for filters"),
        ({"principal": "alice"}, "must be type:name"),
        ({"principal": "User:" + "x" * 2000}, "the principal has 2005 characters"),
        ({"host": "example.org"}, "neither an IP address nor *"),
        ({"host": "10.0.0.0/8"}, "neither an IP address nor *"),
    ],
)
def test_an_entry_that_cannot_be_a_rule_is_refused_alone(
    call: HandlerCalls, file: SecurityFile, changes: dict[str, Any], message: str
) -> None:
    answer = call(ApiKey.CREATE_ACLS, {"creations": [creation(**changes), creation()]})

    [refused, accepted] = answer.results
    assert refused.error_code == ErrorCode.invalid_request
    assert message in refused.error_message
    assert accepted.error_code == 0
    assert file.state.rules == {READ_ORDERS}


def test_too_many_rules_are_refused(
    call: HandlerCalls, file: SecurityFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.broker.handlers.access_rules.RULES_MAX", 1)
    call(ApiKey.CREATE_ACLS, {"creations": [creation()]})

    answer = call(ApiKey.CREATE_ACLS, {"creations": [creation(operation=4)]})

    assert [result.error_code for result in answer.results] == [ErrorCode.policy_violation]
    assert file.state.rules == {READ_ORDERS}
    assert acl_filter.RULES_MAX > 10_000


@pytest.mark.parametrize(
    ("name", "pattern", "found"),
    [
        (None, 1, {"orders", "ord", "*"}),
        ("orders", 3, {"orders"}),
        ("ord", 4, {"ord"}),
        ("ord", 1, {"ord"}),
        ("orders", 2, {"orders", "ord", "*"}),
        ("ordinary", 2, {"ord", "*"}),
        ("other", 2, {"*"}),
        (None, 4, {"ord"}),
    ],
)
def test_a_filter_finds_rules_by_their_name_or_by_the_name_of_a_resource(
    call: HandlerCalls, name: str | None, pattern: int, found: set[str]
) -> None:
    names = [("orders", 3), ("ord", 4), ("*", 3)]
    creations = [creation(resource_name=one, resource_pattern_type=kind) for one, kind in names]
    call(ApiKey.CREATE_ACLS, {"creations": creations})

    wanted = {**ANY, "resource_name_filter": name, "pattern_type_filter": pattern}
    answer = call(ApiKey.DESCRIBE_ACLS, wanted)

    assert {resource.resource_name for resource in answer.resources} == found


def test_each_filter_has_its_own_result_and_unknown_numbers_delete_nothing(
    call: HandlerCalls, file: SecurityFile
) -> None:
    call(ApiKey.CREATE_ACLS, {"creations": [creation(), creation(operation=4)]})

    wanted = [{**ANY, "operation": 3}, {**ANY, "operation": 3}, {**ANY, "resource_type_filter": 50}]
    results = call(ApiKey.DELETE_ACLS, {"filters": wanted}).filter_results

    assert [(one.error_code, len(one.matching_acls)) for one in results] == [
        (0, 1),
        (0, 1),
        (ErrorCode.invalid_request, 0),
    ]
    assert {rule.operation for rule in file.state.rules} == {AclOperation.WRITE}


def test_a_change_of_rules_keeps_users_and_quotas(file: SecurityFile, call: HandlerCalls) -> None:
    quotas = {QuotaEntity(user="alice"): {"producer_byte_rate": 1.0}}
    file.change(lambda state: SecurityState(quotas=quotas))

    call(ApiKey.CREATE_ACLS, {"creations": [creation()]})

    assert file.state.quotas == quotas


def test_without_an_authorizer_there_are_no_rules(file: SecurityFile) -> None:
    call = HandlerCalls([AccessRulesHandler(file, has_authorizer=False)])

    described = call(ApiKey.DESCRIBE_ACLS, ANY)
    created = call(ApiKey.CREATE_ACLS, {"creations": [creation()]})
    deleted = call(ApiKey.DELETE_ACLS, {"filters": [ANY]})

    assert described.error_code == ErrorCode.security_disabled
    assert "authorizer.class.name" in described.error_message
    assert [one.error_code for one in created.results] == [ErrorCode.security_disabled]
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.security_disabled]


def test_a_filter_for_one_rule_is_not_compared_with_the_others_and_others_are_limited(
    call: HandlerCalls, file: SecurityFile
) -> None:
    call(ApiKey.CREATE_ACLS, {"creations": [creation(), creation(operation=4)]})
    one = {
        "resource_type_filter": 2,
        "resource_name_filter": "orders",
        "pattern_type_filter": 3,
        "principal_filter": "User:alice",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }

    wide = {**one, "host_filter": None, "operation": 5}
    results = call(ApiKey.DELETE_ACLS, {"filters": [*[wide] * 201, one, one]}).filter_results

    assert [result.error_code for result in results] == [0] * 200 + [
        ErrorCode.invalid_request,
        0,
        0,
    ]
    assert [len(result.matching_acls) for result in results[-2:]] == [1, 1]
    assert {rule.operation for rule in file.state.rules} == {AclOperation.WRITE}
