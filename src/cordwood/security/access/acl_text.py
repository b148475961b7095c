"""Access rules as text: one line for people, and the list that ``kafka-acls --list`` prints.

Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, ...)`:
    (principal=User:alice, host=*, operation=READ, permissionType=ALLOW)
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.access.acl_filter import InvalidRuleError, new_rule
from cordwood.security.security_state import AclRule

E = TypeVar("E", bound=IntEnum)

_RESOURCE: Final = re.compile(
    r".*ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\).*"
)
_ENTRY: Final = re.compile(
    r"\s*\(principal=(.*), host=(\S+), operation=(\w+), permissionType=(\w+)\)\s*"
)


def rule_text(rule: AclRule) -> str:
    """``ALLOW User:alice READ on TOPIC orders``; prefixes end with ``*``, hosts come last."""
    name = rule.name + "*" if rule.pattern is AclPattern.PREFIXED else rule.name
    where = "" if rule.host == "*" else f" from {rule.host}"
    return (
        f"{rule.permission.name} {rule.principal} {rule.operation.name} on "
        f"{rule.resource.name} {name}{where}"
    )


def parse_number(kind: type[E], text: str) -> E:
    """``describe-configs``, ``DescribeConfigs`` and ``DESCRIBE_CONFIGS`` are the same."""
    wanted = re.sub(r"[^a-z]", "", text.lower())
    for value in kind:
        if value.name.lower().replace("_", "") == wanted:
            return value
    names = ", ".join(value.name.lower().replace("_", "-") for value in kind)
    raise InvalidRuleError(f"{text!r} is not one of {names}")


def parse_kafka_list(lines: Iterable[str]) -> list[AclRule]:
    """The rules in the output of ``kafka-acls --list``. Raises `InvalidRuleError` with the line."""
    rules: list[AclRule] = []
    resource: tuple[AclResource, str, AclPattern] | None = None
    for number, line in enumerate(lines, 1):
        try:
            found = _RESOURCE.fullmatch(line.rstrip("\n"))
            if found is not None:
                kind, name, pattern = found.groups()
                resource = (
                    parse_number(AclResource, kind),
                    name,
                    parse_number(AclPattern, pattern),
                )
                continue
            entry = _ENTRY.fullmatch(line)
            if entry is None:
                if line.strip():
                    raise InvalidRuleError(f"{line.strip()[:100]!r} is not a line of kafka-acls")
                continue
            if resource is None:
                raise InvalidRuleError("no resource comes before this entry")
            rules.append(_rule(resource, *entry.groups()))
        except InvalidRuleError as error:
            raise InvalidRuleError(f"line {number}: {error}") from error
    return rules


def _rule(
    resource: tuple[AclResource, str, AclPattern],
    principal: str,
    host: str,
    operation: str,
    permission: str,
) -> AclRule:
    kind, name, pattern = resource
    return new_rule(
        resource=kind,
        pattern=pattern,
        name=name,
        principal=principal,
        host=host,
        operation=parse_number(AclOperation, operation),
        permission=parse_number(AclPermission, permission),
    )
