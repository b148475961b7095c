"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cordwood.broker.error_codes import ErrorCode, RefusedError, refusal
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn, routes_on
from cordwood.broker.security import access_table as needs
from cordwood.errors import ConfigError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.quotas.quota_filters import QuotaFilter, UnknownEntityTypeError, select
from cordwood.security.quotas.quota_rules import Quotas, altered, described, entity_of, names_of
from cordwood.security.security_source import SecuritySource
from cordwood.security.security_state import QuotaEntity, SecurityState

if TYPE_CHECKING:
    from cordwood.protocol.schemas import quota_messages as messages

    Entity = Sequence[messages.AlterClientQuotasRequestEntity]


class ClientQuotasHandler:
    """Reads and changes quotas. Called by workers: a change waits for the disk."""

    def __init__(self, file: SecuritySource) -> None:
        self._file = file

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe,
                ApiKey.ALTER_CLIENT_QUOTAS: self.alter,
            },
        )

    # --- DescribeClientQuotas ----------------------------------------------------------------

    def describe(
        self, context: RequestContext, request: messages.DescribeClientQuotasRequest
    ) -> messages.DescribeClientQuotasResponseDict:
        quotas = self._file.state.quotas
        try:
            _check_access(context, needs.DESCRIBE_CLIENT_QUOTAS)
            found = select(
                quotas,
                [
                    QuotaFilter(component.entity_type, component.match_type, component.match)
                    for component in request.components
                ],
                is_strict=request.strict,
            )
        except UnknownEntityTypeError as error:
            return _undescribed(RefusedError(ErrorCode.unsupported_version, str(error)))
        except ValueError as error:
            return _undescribed(RefusedError(ErrorCode.invalid_request, str(error)))
        except RefusedError as error:
            return _undescribed(error)
        return {"entries": [_described(entity, quotas) for entity in found]}

    # --- AlterClientQuotas -------------------------------------------------------------------

    def alter(
        self, context: RequestContext, request: messages.AlterClientQuotasRequest
    ) -> messages.AlterClientQuotasResponseDict:
        """Change entities one by one: one that is refused does not affect the others."""
        counts = Counter(_place(entry.entity) for entry in request.entries)
        results: list[messages.AlterClientQuotasResponseEntriesDict] = []
        wanted: list[tuple[QuotaEntity, dict[str, float | None]]] = []
        is_allowed = context.may(needs.ALTER_CLIENT_QUOTAS)
        for entry in request.entries:
            code, message = ErrorCode.none, None
            try:
                if not is_allowed:
                    raise _refused_access(needs.ALTER_CLIENT_QUOTAS)
                if counts[_place(entry.entity)] > 1:
                    raise RefusedError(
                        ErrorCode.invalid_request, "the entity is in the request twice"
                    )
                wanted.append(_wanted(entry))
            except Exception as error:
                code, message = refusal(error)
            results.append(
                {
                    "error_code": code,
                    "error_message": message,
                    "entity": [
                        {"entity_type": part.entity_type, "entity_name": part.entity_name}
                        for part in entry.entity
                    ],
                }
            )
        if wanted and not request.validate_only:
            try:
                self._change(context, wanted)
            except (OSError, ConfigError) as error:
                code, message = refusal(error)
                for result in results:
                    if result["error_code"] == ErrorCode.none:
                        result["error_code"], result["error_message"] = code, message
        return {"entries": results}

    def _change(
        self, context: RequestContext, wanted: list[tuple[QuotaEntity, dict[str, float | None]]]
    ) -> None:
        before: Quotas = {}

        def change(state: SecurityState) -> SecurityState:
            nonlocal before
            before = quotas = state.quotas
            for entity, changes in wanted:
                quotas = altered(quotas, entity, changes)
            return SecurityState(credentials=state.credentials, rules=state.rules, quotas=quotas)

        self._file.change(change)
        for entity, changes in wanted:
            have = before.get(entity, {})
            context.changed(
                "ALTER_CONFIGS",
                "QUOTA",
                described(entity),
                old={key: have.get(key) for key in changes},
                new=changes,
            )


def _check_access(context: RequestContext, need: needs.Need) -> None:
    if not context.may(need):
        raise _refused_access(need)


def _refused_access(need: needs.Need) -> RefusedError:
    return RefusedError(need.code, "Cluster authorization failed.")


def _wanted(
    entry: messages.AlterClientQuotasRequestEntries,
) -> tuple[QuotaEntity, dict[str, float | None]]:
    """The entity and its changes. Raises `RefusedError`."""
    try:
        entity = _entity(entry.entity)
        changes: dict[str, float | None] = {}
        for op in entry.ops:
            if op.key in changes:
                raise ValueError(f"{op.key} is changed twice in one request")
            changes[op.key] = None if op.remove else op.value
        altered({}, entity, changes)  # the checks of the values
    except ValueError as error:
        raise RefusedError(ErrorCode.invalid_request, str(error)) from error
    return entity, changes


def _place(parts: Entity) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def _entity(parts: Entity) -> QuotaEntity:
    names: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type in names:
            raise ValueError(f"the entity has two names of type {part.entity_type}")
        names[part.entity_type] = part.entity_name
    return entity_of(names)


def _described(
    entity: QuotaEntity, quotas: Quotas
) -> messages.DescribeClientQuotasResponseEntriesDict:
    return {
        "entity": [
            {"entity_type": kind, "entity_name": name} for kind, name in names_of(entity).items()
        ],
        "values": [{"key": key, "value": value} for key, value in sorted(quotas[entity].items())],
    }


def _undescribed(error: RefusedError) -> messages.DescribeClientQuotasResponseDict:
    code, message = refusal(error)
    return {"error_code": code, "error_message": message, "entries": None}
