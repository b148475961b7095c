"""Filters that choose access rules, and the rules for new rules. Pure.

Numbers come from clients and may be unknown: an unknown number in a filter matches no rule.
"""

from enum import IntEnum
from ipaddress import ip_address
from typing import Final, TypeVar

from cordwood.protocol.acl_codes import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from cordwood.security.access.rule_index import ANY_HOST, ANY_NAME
from cordwood.security.principal import Principal
from cordwood.security.security_state import AclRule
from cordwood.value_class import dataclass

E = TypeVar("E", bound=IntEnum)

RULES_MAX: Final = 100_000  # an index of so many takes half a second to build
NAME_CHARS_MAX: Final = 1024  # topics have 249 at most, groups and principals rarely more
_PRINCIPAL_CHARS_MAX: Final = 1024
_ANY: Final = 1  # of every kind of number


class InvalidRuleError(ValueError):
    """A rule that cannot be created; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which rules are meant. None and ANY: all of them.

    With the pattern MATCH, `name` is the name of a resource, and the rules are those that count for
    it; else it is the name of the rule itself.
    """

    resource: int = AclResource.ANY
    name: str | None = None
    pattern: int = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = AclPermission.ANY

    def matches(self, rule: AclRule) -> bool:
        principal, host = self.principal, self.host
        return (
            (principal is None or principal == rule.principal)
            and self.resource in (_ANY, rule.resource)
            and self.operation in (_ANY, rule.operation)
            and self.permission in (_ANY, rule.permission)
            and (host is None or host == rule.host)
            and self._matches_name(rule)
        )

    def _matches_name(self, rule: AclRule) -> bool:
        if self.pattern not in {AclPattern.ANY, AclPattern.MATCH, rule.pattern}:
            return False
        if self.name is None:
            return True
        if self.pattern != AclPattern.MATCH:
            return self.name == rule.name
        if rule.pattern is AclPattern.PREFIXED:
            return self.name.startswith(rule.name)
        return rule.name in {self.name, ANY_NAME}

    @property
    def sole_rule(self) -> AclRule | None:
        """The only rule that can match; None if several can."""
        if self.name is None or self.principal is None or self.host is None:
            return None
        try:
            rule = AclRule(
                resource=AclResource(self.resource),
                pattern=AclPattern(self.pattern),
                name=self.name,
                principal=self.principal,
                host=self.host,
                operation=AclOperation(self.operation),
                permission=AclPermission(self.permission),
            )
        except ValueError:
            return None
        is_wide = _ANY in {rule.resource, rule.pattern, rule.operation, rule.permission}
        return None if is_wide or rule.pattern is AclPattern.MATCH else rule

    def select(self, rules: frozenset[AclRule]) -> list[AclRule]:
        """The rules that match, sorted."""
        sole = self.sole_rule
        if sole is not None:
            return [sole] if sole in rules else []
        return sorted(rule for rule in rules if self.matches(rule))

    def check(self) -> None:
        """Raise `InvalidRuleError` if a number is unknown: too little would be deleted."""
        _known(AclResource, "resource type", self.resource)
        _known(AclPattern, "pattern type", self.pattern)
        _known(AclOperation, "operation", self.operation)
        _known(AclPermission, "permission", self.permission)


def new_rule(
    *,
    resource: int,
    pattern: int,
    name: str,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclRule:
    """The rule with these values. Raises `InvalidRuleError` if there can be no such rule."""
    rule = AclRule(
        resource=_known(AclResource, "resource type", resource, without=AclResource.ANY),
        pattern=_known(AclPattern, "pattern type", pattern, without=AclPattern.ANY),
        name=name,
        principal=principal,
        host=host,
        operation=_known(AclOperation, "operation", operation, without=AclOperation.ANY),
        permission=_known(AclPermission, "permission", permission, without=AclPermission.ANY),
    )
    if rule.pattern is AclPattern.MATCH:
        raise InvalidRuleError("pattern type MATCH is for filters; use LITERAL or PREFIXED")
    _check_name(rule)
    _check_principal(principal)
    _check_host(host)
    return rule


def _known(kind: type[E], what: str, number: int, *, without: E | None = None) -> E:
    try:
        value = kind(number)
    except ValueError as error:
        raise InvalidRuleError(f"{what} {number} is unknown") from error
    if value is without:
        raise InvalidRuleError(f"{what} {value.name} is for filters")
    return value


def _check_name(rule: AclRule) -> None:
    if rule.resource is AclResource.CLUSTER and rule.name != CLUSTER_NAME:
        raise InvalidRuleError(f"the only name of a cluster is {CLUSTER_NAME}, not {rule.name!r}")
    if not rule.name:
        raise InvalidRuleError("the name of the resource is empty")
    if len(rule.name) > NAME_CHARS_MAX:
        raise InvalidRuleError(
            f"the name of the resource has {len(rule.name)} characters; at most {NAME_CHARS_MAX}"
        )


def _check_principal(principal: str) -> None:
    if len(principal) > _PRINCIPAL_CHARS_MAX:
        raise InvalidRuleError(
            f"the principal has {len(principal)} characters; at most {_PRINCIPAL_CHARS_MAX}"
        )
    try:
        Principal.parse(principal)
    except ValueError as error:
        raise InvalidRuleError(f"principal {principal!r}: {error}") from error


def _check_host(host: str) -> None:
    if host == ANY_HOST:
        return
    try:
        ip_address(host)
    except ValueError as error:
        raise InvalidRuleError(
            f"host {host[:100]!r} is neither an IP address nor *; names and networks are not "
            "supported"
        ) from error
