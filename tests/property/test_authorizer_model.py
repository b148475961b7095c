"""The authorizer against a model that follows the text of Kafka's rule, rule by rule."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cordwood.protocol.acl_codes import (
    OPERATIONS_OF,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from cordwood.security.access.authorizer import Authorizer
from cordwood.security.principal import Principal
from cordwood.security.security_state import AclRule, SecurityState

OPERATIONS = [operation for operation in AclOperation if operation is not AclOperation.ANY]
REQUESTED = [operation for operation in OPERATIONS if operation is not AclOperation.ALL]
IMPLY_DESCRIBE = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}

names = st.text("ab*", min_size=1, max_size=5) | st.sampled_from(["*", "hardcode", "hard"])
hosts = st.sampled_from(["127.0.0.1", "10.0.0.1", "*"])
principals = st.sampled_from(["User:alice", "User:bob", "User:*"])
rules = st.builds(
    AclRule,
    resource=st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    pattern=st.sampled_from([AclPattern.LITERAL, AclPattern.PREFIXED]),
    name=names,
    principal=principals,
    host=hosts,
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
states = st.frozensets(rules, max_size=12)


def covers(rule: AclRule, name: str) -> bool:
    if rule.pattern is AclPattern.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in {name, "*"}


def concerns(rule: AclRule, principal: str, host: str) -> bool:
    return rule.principal in {principal, "User:*"} and rule.host in {host, "*"}


def is_about(rule: AclRule, operation: AclOperation) -> bool:
    if rule.operation in {operation, AclOperation.ALL}:
        return True
    if rule.permission is AclPermission.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return rule.operation in IMPLY_DESCRIBE
    return (
        operation is AclOperation.DESCRIBE_CONFIGS and rule.operation is AclOperation.ALTER_CONFIGS
    )


def decide(
    state: Iterable[AclRule],
    principal: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
    *,
    allows_everyone: bool,
) -> bool:
    of_resource = [rule for rule in state if rule.resource is resource and covers(rule, name)]
    if not of_resource:
        return allows_everyone
    matching = {
        rule.permission
        for rule in of_resource
        if concerns(rule, principal, "127.0.0.1") and is_about(rule, operation)
    }
    return matching == {AclPermission.ALLOW}


def decide_anywhere(
    state: Iterable[AclRule],
    principal: str,
    operation: AclOperation,
    resource: AclResource,
    *,
    allows_everyone: bool,
) -> bool:
    if decide(state, principal, operation, resource, "hardcode", allows_everyone=allows_everyone):
        return True
    mine = [
        rule
        for rule in state
        if rule.resource is resource
        and concerns(rule, principal, "127.0.0.1")
        and rule.operation in {operation, AclOperation.ALL}
    ]
    denying = [rule for rule in mine if rule.permission is AclPermission.DENY]
    if any(rule.name == "*" and rule.pattern is AclPattern.LITERAL for rule in denying):
        return False
    for rule in mine:
        if rule.permission is AclPermission.DENY:
            continue
        is_literal = rule.pattern is AclPattern.LITERAL
        if is_literal and rule.name == "*":
            return True
        if not any(
            rule.name.startswith(other.name)
            if other.pattern is AclPattern.PREFIXED
            else is_literal and other.name == rule.name
            for other in denying
        ):
            return True
    return False


@given(states, states, names, st.booleans())
def test_the_index_and_its_caches_decide_as_the_text_of_the_rule(
    before: frozenset[AclRule], after: frozenset[AclRule], name: str, allows_everyone: bool
) -> None:
    authorizer = Authorizer(allows_everyone=allows_everyone)
    access = authorizer.access_of(Principal("User", "alice"), "127.0.0.1")

    for state in (before, after):  # the same access: a change counts for existing connections
        authorizer.use(SecurityState(rules=state))
        for resource in (AclResource.TOPIC, AclResource.GROUP):
            for operation in REQUESTED:
                expected = decide(
                    state,
                    "User:alice",
                    operation,
                    resource,
                    name,
                    allows_everyone=allows_everyone,
                )
                assert access.allows(operation, resource, name) == expected
                assert access.allows(operation, resource, name) == expected  # from the cache
                reason = access._decisions.explain(operation, resource, name)
                assert _is_reason(reason, expected, operation, name)
                is_bit = bool(access.operations(resource, name) >> operation & 1)
                assert is_bit == (expected and operation in OPERATIONS_OF[resource])


def _is_reason(reason: AclRule | str, is_allowed: bool, operation: AclOperation, name: str) -> bool:
    if isinstance(reason, str):
        return (reason == "DefaultAllow") == is_allowed
    is_allowing = reason.permission is AclPermission.ALLOW
    return (
        is_allowing == is_allowed
        and covers(reason, name)
        and concerns(reason, "User:alice", "127.0.0.1")
        and is_about(reason, operation)
    )


@given(states, st.sampled_from(REQUESTED), st.booleans())
def test_any_resource_of_a_type_is_decided_as_the_text_of_the_rule(
    state: frozenset[AclRule], operation: AclOperation, allows_everyone: bool
) -> None:
    authorizer = Authorizer(allows_everyone=allows_everyone)
    authorizer.use(SecurityState(rules=state))

    found = authorizer.access_of(Principal("User", "alice"), "127.0.0.1").allows_anywhere(
        operation, AclResource.TOPIC
    )

    assert found == decide_anywhere(
        state, "User:alice", operation, AclResource.TOPIC, allows_everyone=allows_everyone
    )
