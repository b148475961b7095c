"""The access rules of a broker: listing, creating and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.remote import api_calls
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.security.access.acl_filter import AclFilter
from cordwood.security.access.acl_text import rule_text
from cordwood.security.security_state import AclRule

if TYPE_CHECKING:
    from cordwood.protocol.schemas import acl_messages as messages

_RULES_PER_REQUEST: Final = 1000


class RemoteAcls:
    """Reads and changes access rules. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    def find(self, filters: Iterable[AclFilter] = (AclFilter(),)) -> list[AclRule]:
        """The rules that match at least one of the filters, sorted."""
        found: set[AclRule] = set()
        for wanted in filters:
            answer = self._cluster.anyone().call(
                api_calls.DESCRIBE_ACLS(
                    {
                        "resource_type_filter": wanted.resource,
                        "resource_name_filter": wanted.name,
                        "pattern_type_filter": wanted.pattern,
                        "principal_filter": wanted.principal,
                        "host_filter": wanted.host,
                        "operation": wanted.operation,
                        "permission_type": wanted.permission,
                    }
                )
            )
            check(answer.error_code, "list access rules", message=answer.error_message)
            found |= set(_rules(answer.resources))
        return sorted(found)

    def create(self, rules: Sequence[AclRule]) -> None:
        """Create rules; those that exist already stay. Raises at the first that is refused."""
        for start in range(0, len(rules), _RULES_PER_REQUEST):
            part = rules[start : start + _RULES_PER_REQUEST]
            answer = self._cluster.admin(
                api_calls.CREATE_ACLS(
                    {
                        "creations": [
                            {
                                "resource_type": rule.resource,
                                "resource_name": rule.name,
                                "resource_pattern_type": rule.pattern,
                                "principal": rule.principal,
                                "host": rule.host,
                                "operation": rule.operation,
                                "permission_type": rule.permission,
                            }
                            for rule in part
                        ]
                    }
                )
            )
            for rule, result in zip(part, answer.results, strict=True):
                what = f"create the access rule {rule_text(rule)!r}"
                check(result.error_code, what, message=result.error_message)

    def delete(self, rules: Sequence[AclRule]) -> None:
        """Delete exactly these rules."""
        for start in range(0, len(rules), _RULES_PER_REQUEST):
            part = rules[start : start + _RULES_PER_REQUEST]
            answer = self._cluster.admin(
                api_calls.DELETE_ACLS(
                    {
                        "filters": [
                            {
                                "resource_type_filter": rule.resource,
                                "resource_name_filter": rule.name,
                                "pattern_type_filter": rule.pattern,
                                "principal_filter": rule.principal,
                                "host_filter": rule.host,
                                "operation": rule.operation,
                                "permission_type": rule.permission,
                            }
                            for rule in part
                        ]
                    }
                )
            )
            for rule, result in zip(part, answer.filter_results, strict=True):
                what = f"delete the access rule {rule_text(rule)!r}"
                check(result.error_code, what, message=result.error_message)
                for match in result.matching_acls:
                    check(match.error_code, what, message=match.error_message)


def _rules(resources: Iterable[messages.DescribeAclsResponseResources]) -> Iterable[AclRule]:
    for resource in resources:
        for acl in resource.acls:
            yield AclRule(
                resource=AclResource(resource.resource_type),
                pattern=AclPattern(resource.pattern_type),
                name=resource.resource_name,
                principal=acl.principal,
                host=acl.host,
                operation=AclOperation(acl.operation),
                permission=AclPermission(acl.permission_type),
            )
