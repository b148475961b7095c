"""Decisions of the authorizer, and what is reported of them."""

import gc

from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.access.access_event import AccessEvent, AccessEvents, AccessRequest
from cordwood.security.access.authorizer import DEFAULT_DENY, SUPER_USER, Authorizer
from cordwood.security.principal import Principal
from cordwood.security.security_state import AclRule, SecurityState

ALICE = Principal("User", "alice")
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = AclResource.TOPIC


def rule(
    name: str,
    *,
    pattern: AclPattern = AclPattern.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: AclOperation = READ,
    permission: AclPermission = AclPermission.ALLOW,
) -> AclRule:
    return AclRule(
        resource=TOPIC,
        pattern=pattern,
        name=name,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def state(*rules: AclRule) -> SecurityState:
    return SecurityState(rules=frozenset(rules))


def test_a_super_user_may_do_what_a_rule_denies() -> None:
    authorizer = Authorizer(super_users=frozenset({ALICE}))
    authorizer.use(state(rule("*", permission=AclPermission.DENY, operation=AclOperation.ALL)))

    access = authorizer.access_of(ALICE, "127.0.0.1")

    assert access.allows(READ, TOPIC, "orders")
    assert access.allows_anywhere(WRITE, TOPIC)


def test_one_address_may_be_written_in_several_ways() -> None:
    authorizer = Authorizer()
    authorizer.use(state(rule("orders", host="0:0:0:0:0:0:0:1"), rule("bills", host="10.0.0.1")))

    assert authorizer.access_of(ALICE, "::1").allows(READ, TOPIC, "orders")
    assert authorizer.access_of(ALICE, "::ffff:10.0.0.1").allows(READ, TOPIC, "bills")
    assert not authorizer.access_of(ALICE, "::2").allows(READ, TOPIC, "orders")


def test_two_connections_of_a_client_share_an_access_which_ends_with_the_last_of_them() -> None:
    authorizer = Authorizer()
    first = authorizer.access_of(ALICE, "127.0.0.1")
    second = authorizer.access_of(ALICE, "127.0.0.1")

    assert first is second

    del first, second
    gc.collect()
    assert not authorizer._accesses


def test_a_change_of_users_or_quotas_keeps_the_decisions() -> None:
    authorizer = Authorizer()
    authorizer.use(state(rule("orders")))
    access = authorizer.access_of(ALICE, "127.0.0.1")
    access.allows(READ, TOPIC, "orders")
    decisions = access._decisions

    authorizer.use(state(rule("orders")))

    assert access._decisions is decisions


def test_the_cache_is_bounded_and_keeps_no_long_names() -> None:
    authorizer = Authorizer()
    access = authorizer.access_of(ALICE, "127.0.0.1")

    for number in range(10_000):
        access.allows(READ, TOPIC, f"topic-{number}")
    access.allows(READ, TOPIC, "n" * 20_000)

    assert len(access._decisions) <= 4096
    assert all(len(str(name)) < 256 for _, name in access._decisions)


def test_an_event_names_the_rule_that_decided() -> None:
    events: list[AccessEvent] = []
    authorizer = Authorizer(
        super_users=frozenset({Principal("User", "root")}), events=AccessEvents(events.append)
    )
    deny = rule("ord", pattern=AclPattern.PREFIXED, permission=AclPermission.DENY)
    allow = rule("*", operation=WRITE)
    authorizer.use(state(deny, allow, rule("orders", principal="User:bob")))
    access = authorizer.access_of(ALICE, "127.0.0.1")

    fetch = AccessRequest("Fetch", READ, TOPIC, "orders", "EXTERNAL", "app")
    access.report(fetch, is_allowed=False)
    access.report(AccessRequest("Metadata", DESCRIBE, TOPIC, "orders"), is_allowed=True)
    delete = AccessRequest("DeleteTopics", AclOperation.DELETE, TOPIC, "orders")
    access.report(delete, is_allowed=False)
    authorizer.access_of(Principal("User", "root"), "::1").report(fetch, is_allowed=True)

    assert [event.reason for event in events] == [deny, allow, DEFAULT_DENY, SUPER_USER]
    assert events[0] == AccessEvent(ALICE, "127.0.0.1", fetch, False, deny)
