"""DescribeAcls, CreateAcls and DeleteAcls: the access rules."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import RefusedError, refusal
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn, routes_on
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.security_events import Detail
from cordwood.protocol.acl_codes import AclPattern, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.security.access.acl_filter import RULES_MAX, AclFilter, InvalidRuleError, new_rule
from cordwood.security.access.acl_text import rule_text
from cordwood.security.security_source import SecuritySource
from cordwood.security.security_state import AclRule, SecurityState
from cordwood.value_class import replace

if TYPE_CHECKING:
    from cordwood.protocol.schemas import acl_messages as messages

logger = logging.getLogger(__name__)

# Each of these is compared with all rules, while no other change can be made.
_WIDE_FILTERS_MAX: Final = 200
_TOO_MANY: Final = RefusedError(
    ErrorCode.invalid_request,
    f"more than {_WIDE_FILTERS_MAX} filters of this request can match several rules; send fewer",
)
_NO_AUTHORIZER: Final = "this broker has no authorizer; its operator can set authorizer.class.name"


class AccessRulesHandler:
    """Lists and changes access rules. Called by workers: changes wait for the disk."""

    def __init__(self, security_file: SecuritySource, *, has_authorizer: bool) -> None:
        self._file = security_file
        self._has_authorizer = has_authorizer

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.DESCRIBE_ACLS: self.describe_acls,
                ApiKey.CREATE_ACLS: self.create_acls,
                ApiKey.DELETE_ACLS: self.delete_acls,
            },
        )

    # --- DescribeAcls ------------------------------------------------------------------------

    def describe_acls(
        self, context: RequestContext, request: messages.DescribeAclsRequest
    ) -> messages.DescribeAclsResponseDict:
        try:
            self._check(context, needs.DESCRIBE_ACLS)
        except RefusedError as error:
            return {"error_code": error.code, "error_message": str(error)}
        found: defaultdict[tuple[AclResource, AclPattern, str], list[AclRule]] = defaultdict(list)
        for rule in _filter(request).select(self._file.state.rules):
            found[rule.resource, rule.pattern, rule.name].append(rule)
        return {
            "error_code": ErrorCode.none,
            "resources": [
                {
                    "resource_type": resource,
                    "pattern_type": pattern,
                    "resource_name": name,
                    "acls": [
                        {
                            "principal": rule.principal,
                            "host": rule.host,
                            "operation": rule.operation,
                            "permission_type": rule.permission,
                        }
                        for rule in rules
                    ],
                }
                for (resource, pattern, name), rules in found.items()
            ],
        }

    # --- CreateAcls --------------------------------------------------------------------------

    def create_acls(
        self, context: RequestContext, request: messages.CreateAclsRequest
    ) -> messages.CreateAclsResponseDict:
        """Each entry by itself; all that are valid are written at once."""
        wanted: list[AclRule | Exception] = [_rule(item) for item in request.creations]
        rules = frozenset(rule for rule in wanted if isinstance(rule, AclRule))
        failure: Exception | None = None
        try:
            self._check(context, needs.CREATE_ACLS)
            before = self._file.state.rules
            self._file.change(lambda state: _with_rules(state, state.rules | rules))
            _log(context, "created", rules - before)
        except Exception as error:
            if isinstance(error, RefusedError):
                wanted = [error] * len(wanted)
            failure = error
        return {"results": [_result(item, failure) for item in wanted]}

    # --- DeleteAcls --------------------------------------------------------------------------

    def delete_acls(
        self, context: RequestContext, request: messages.DeleteAclsRequest
    ) -> messages.DeleteAclsResponseDict:
        """A rule that several filters match is reported by each of them."""
        filters = [_filter(item) for item in request.filters]
        wide = [place for place, wanted in enumerate(filters) if wanted.sole_rule is None]
        too_many = frozenset(wide[_WIDE_FILTERS_MAX:])
        found: list[list[AclRule] | Exception] = []

        def without(state: SecurityState) -> SecurityState:
            found[:] = [
                _TOO_MANY if place in too_many else _selected(wanted, state.rules)
                for place, wanted in enumerate(filters)
            ]
            gone = frozenset(rule for rules in found if isinstance(rules, list) for rule in rules)
            return _with_rules(state, state.rules - gone)

        try:
            self._check(context, needs.DELETE_ACLS)
            self._file.change(without)
            _log(
                context,
                "deleted",
                frozenset(rule for rules in found if isinstance(rules, list) for rule in rules),
            )
        except Exception as error:
            found = [error] * len(filters)
        return {"filter_results": [_deleted(rules) for rules in found]}

    def _check(self, context: RequestContext, need: needs.Need) -> None:
        """Raise `RefusedError` if the client may not do it, or nothing could be done."""
        if not context.may(need):
            raise RefusedError(need.code, "Cluster authorization failed.")
        if not self._has_authorizer:
            raise RefusedError(ErrorCode.security_disabled, _NO_AUTHORIZER)


def _filter(item: messages.DescribeAclsRequest | messages.DeleteAclsRequestFilters) -> AclFilter:
    return AclFilter(
        resource=item.resource_type_filter,
        name=item.resource_name_filter,
        pattern=item.pattern_type_filter,
        principal=item.principal_filter,
        host=item.host_filter,
        operation=item.operation,
        permission=item.permission_type,
    )


def _rule(item: messages.CreateAclsRequestCreations) -> AclRule | RefusedError:
    try:
        return new_rule(
            resource=item.resource_type,
            pattern=item.resource_pattern_type,
            name=item.resource_name,
            principal=item.principal,
            host=item.host,
            operation=item.operation,
            permission=item.permission_type,
        )
    except InvalidRuleError as error:
        return RefusedError(ErrorCode.invalid_request, str(error))


def _with_rules(state: SecurityState, rules: frozenset[AclRule]) -> SecurityState:
    if len(rules) > max(RULES_MAX, len(state.rules)):
        raise RefusedError(
            ErrorCode.policy_violation,
            f"there would be {len(rules)} rules, but {RULES_MAX} are the limit; use prefixed rules",
        )
    return replace(state, rules=rules)


def _selected(wanted: AclFilter, rules: frozenset[AclRule]) -> list[AclRule] | Exception:
    try:
        wanted.check()
    except InvalidRuleError as error:
        return RefusedError(ErrorCode.invalid_request, str(error))
    return wanted.select(rules)


def _result(
    item: AclRule | Exception, failure: Exception | None
) -> messages.CreateAclsResponseResultsDict:
    error = item if isinstance(item, Exception) else failure
    if error is None:
        return {"error_code": ErrorCode.none}
    code, message = refusal(error)
    return {"error_code": code, "error_message": message}


def _deleted(rules: list[AclRule] | Exception) -> messages.DeleteAclsResponseFilterResultsDict:
    if isinstance(rules, Exception):
        code, message = refusal(rules)
        return {"error_code": code, "error_message": message}
    return {
        "error_code": ErrorCode.none,
        "matching_acls": [
            {
                "error_code": ErrorCode.none,
                "resource_type": rule.resource,
                "pattern_type": rule.pattern,
                "resource_name": rule.name,
                "principal": rule.principal,
                "host": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            for rule in rules
        ],
    }


def _log(context: RequestContext, what: str, rules: frozenset[AclRule]) -> None:
    for rule in sorted(rules):
        logger.info(
            "%s at %s %s access rule %s",
            context.session.principal,
            context.client_host,
            what,
            rule_text(rule),
        )
        value: dict[str, Detail] = {"rule": rule_text(rule)}
        if what == "created":
            context.changed("CREATE", "ACL", rule.name, new=value)
        else:
            context.changed("DELETE", "ACL", rule.name, old=value)
