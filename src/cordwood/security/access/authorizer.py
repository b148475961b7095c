"""Decides what clients may do, exactly as Kafka's StandardAuthorizer does.

A super user may do everything. For all others, the rules count whose resource is the literal name,
a prefix of it, or ``*``; whose principal is the client's or ``User:*``; whose host is the client's
or ``*``; and whose operation is the requested one or ALL. To allow READ, WRITE, DELETE or ALTER
also allows DESCRIBE, and ALTER_CONFIGS also DESCRIBE_CONFIGS; to deny denies the operation alone.

    a rule denies it      denied
    else, a rule allows   allowed
    else                  denied, unless no rule at all is for the resource and
                          allow.everyone.if.no.acl.found is true

An `Access` caches decisions. A change of the rules replaces the cache as a whole, so it counts for
the next request of every connection.
"""

import threading
from collections.abc import Collection
from typing import Final
from weakref import WeakValueDictionary

from cordwood.protocol.acl_codes import (
    OPERATIONS_OF,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    operation_bits,
)
from cordwood.security.access.access_event import AccessEvent, AccessEvents, AccessRequest
from cordwood.security.access.rule_index import (
    ANY_NAME,
    EVERY_OPERATION,
    PrefixTable,
    RuleIndex,
    canonical_host,
    verdict_of,
)
from cordwood.security.principal import EVERYBODY, Principal
from cordwood.security.security_state import AclRule, SecurityState

_CACHED_MAX: Final = 4096  # decisions of one client; then the cache starts again
_CACHED_NAME_MAX: Final = 255  # characters; longer names are decided each time
# Kafka asks about a topic of this name to find out whether everything is allowed.
_SAMPLE_NAME: Final = "hardcode"
_OPERATION_BITS: Final = {
    resource: operation_bits(operations) for resource, operations in OPERATIONS_OF.items()
}

SUPER_USER: Final = "SuperUser"
DEFAULT_ALLOW: Final = "DefaultAllow"
DEFAULT_DENY: Final = "DefaultDeny"
NO_AUTHORIZER: Final = "NoAuthorizer"


class _Decisions(dict[tuple[AclResource, str | AclOperation], int]):
    """Allowed operations as bits, by resource and name; under one version of the rules.

    With an operation instead of a name: whether it is allowed with any resource of the type.
    Threads may decide the same twice, with the same result.
    """

    __slots__ = ("_allows_everyone", "_host", "_index", "_is_super_user", "_principals")

    def __init__(self, rules: "_RulesInForce", principal: Principal, host: str) -> None:
        self._index = rules.index
        self._is_super_user = principal in rules.super_users
        self._allows_everyone = rules.allows_everyone
        self._principals = tuple(dict.fromkeys((str(principal), str(EVERYBODY))))
        self._host = host

    def __missing__(self, key: tuple[AclResource, str | AclOperation]) -> int:
        resource, wanted = key
        if isinstance(wanted, AclOperation):
            decided = int(self._decide_anywhere(wanted, resource))
        else:
            decided = self._decide(resource, wanted)
            if len(wanted) > _CACHED_NAME_MAX:
                return decided
        if len(self) >= _CACHED_MAX:
            self.clear()
        self[key] = decided
        return decided

    def _decide(self, resource: AclResource, name: str) -> int:
        if self._is_super_user:
            return EVERY_OPERATION
        allowed, denied = self._index.verdict(self._principals, self._host, resource, name)
        if self._allows_everyone and not self._index.has_rules(resource, name):
            return EVERY_OPERATION
        return allowed & ~denied

    def _decide_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        """Whether some rule allows it that no rule that denies it dominates."""
        if self[resource, _SAMPLE_NAME] >> operation & 1:
            return True
        wanted = {operation, AclOperation.ALL}
        rules = [
            rule
            for rule in self._index.rules_of(self._principals, self._host, resource)
            if rule.operation in wanted
        ]
        denied = {
            (rule.pattern, rule.name) for rule in rules if rule.permission is AclPermission.DENY
        }
        if (AclPattern.LITERAL, ANY_NAME) in denied:
            return False
        prefixes = PrefixTable(name for pattern, name in denied if pattern is AclPattern.PREFIXED)
        return any(
            _is_free(rule, denied, prefixes)
            for rule in rules
            if rule.permission is AclPermission.ALLOW
        )

    def explain(self, operation: AclOperation, resource: AclResource, name: str) -> AclRule | str:
        """The rule that decides, or why there is none."""
        if self._is_super_user:
            return SUPER_USER
        deciding: AclRule | None = None
        for rule in self._index.rules_for(self._principals, self._host, resource, name):
            allowed, denied = verdict_of(rule)
            if denied >> operation & 1:
                return rule
            if allowed >> operation & 1:
                deciding = rule
        if deciding is not None:
            return deciding
        is_open = self._allows_everyone and not self._index.has_rules(resource, name)
        return DEFAULT_ALLOW if is_open else DEFAULT_DENY


def _is_free(
    rule: AclRule, denied: Collection[tuple[AclPattern, str]], prefixes: PrefixTable
) -> bool:
    if rule.pattern is AclPattern.LITERAL:
        if rule.name == ANY_NAME:
            return True
        if (AclPattern.LITERAL, rule.name) in denied:
            return False
    return prefixes.longest(rule.name) is None


class PrincipalAccess:
    """What one principal may do from one host. Any thread may ask."""

    __slots__ = ("__weakref__", "_decisions", "_events", "_host", "_principal", "is_unlimited")

    def __init__(
        self, rules: "_RulesInForce", principal: Principal, host: str, events: AccessEvents
    ) -> None:
        self.is_unlimited = False
        self._principal = principal
        self._host = host
        self._events = events
        self.use(rules)

    def use(self, rules: "_RulesInForce") -> None:
        """Forget all decisions; these rules count from now on."""
        self._decisions = _Decisions(rules, self._principal, canonical_host(self._host))

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return self._decisions[resource, name] >> operation & 1 == 1

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        """As Kafka's `authorizeByResourceType`."""
        return self._decisions[resource, operation] == 1

    def operations(self, resource: AclResource, name: str) -> int:
        return self._decisions[resource, name] & _OPERATION_BITS[resource]

    def report(self, request: AccessRequest, *, is_allowed: bool) -> None:
        """Tell the listener of events, if there is one."""
        listener = self._events.listener
        if listener is not None:
            reason = self._decisions.explain(request.operation, request.resource, request.name)
            listener(AccessEvent(self._principal, self._host, request, is_allowed, reason))


class OpenAccess:
    """Everything is allowed, because there is no authorizer. Changes are reported all the same."""

    __slots__ = ("_events", "_host", "_principal", "is_unlimited")

    def __init__(self, principal: Principal, host: str, events: AccessEvents) -> None:
        self.is_unlimited = True
        self._principal = principal
        self._host = host
        self._events = events

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return True

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return True

    def operations(self, resource: AclResource, name: str) -> int:
        return _OPERATION_BITS[resource]

    def report(self, request: AccessRequest, *, is_allowed: bool) -> None:
        listener = self._events.listener
        if listener is not None:
            listener(AccessEvent(self._principal, self._host, request, is_allowed, NO_AUTHORIZER))


class _RulesInForce:
    """The rules and what the operator configured. Immutable."""

    __slots__ = ("allows_everyone", "index", "super_users")

    def __init__(
        self, index: RuleIndex, super_users: frozenset[Principal], *, allows_everyone: bool
    ) -> None:
        self.index = index
        self.super_users = super_users
        self.allows_everyone = allows_everyone


class Authorizer:
    """The rules in force, and an `Access` for each client. Any thread may call it.

    An access is kept as long as a connection has it.
    """

    def __init__(
        self,
        *,
        super_users: frozenset[Principal] = frozenset(),
        allows_everyone: bool = False,
        events: AccessEvents | None = None,
    ) -> None:
        self._events = AccessEvents() if events is None else events
        self._super_users = super_users
        self._allows_everyone = allows_everyone
        self._changing = threading.Lock()
        self._accesses: WeakValueDictionary[tuple[Principal, str], PrincipalAccess] = (
            WeakValueDictionary()
        )
        self._state_rules: frozenset[AclRule] = frozenset()
        self._rules = self._in_force(self._state_rules)

    def use(self, state: SecurityState) -> None:
        """Put the rules of `state` in force, for connections that exist too, on return."""
        with self._changing:
            if state.rules is self._state_rules or state.rules == self._state_rules:
                return  # users or quotas changed
            self._state_rules = state.rules
            self._rules = self._in_force(state.rules)
            for access in list(self._accesses.values()):
                access.use(self._rules)

    def access_of(self, principal: Principal, host: str) -> PrincipalAccess:
        with self._changing:
            access = self._accesses.get((principal, host))
            if access is None:
                access = PrincipalAccess(self._rules, principal, host, self._events)
                self._accesses[principal, host] = access
            return access

    def _in_force(self, rules: frozenset[AclRule]) -> _RulesInForce:
        return _RulesInForce(
            RuleIndex(rules), self._super_users, allows_everyone=self._allows_everyone
        )
