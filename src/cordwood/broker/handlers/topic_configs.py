"""Configurations of topics, groups and the broker: describing, changing and listing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from cordwood.broker.config.config_entries import ConfigEntry, config_type
from cordwood.broker.config_owners import ConfigOwner, ConfigOwners, ResourceType
from cordwood.broker.error_codes import ErrorCode, RefusedError, refusal
from cordwood.broker.net.requests.request import (
    RequestContext,
    Route,
    RunsOn,
    routes_on,
    split_repeated,
)
from cordwood.broker.security import access_table as needs
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKind
from cordwood.protocol.acl_codes import CLUSTER_NAME, AclResource
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import config_messages as messages

    Resource = TypeVar(
        "Resource",
        messages.AlterConfigsRequestResources,
        messages.IncrementalAlterConfigsRequestResources,
    )

_DESCRIBING: Final[Mapping[int, needs.Need]] = {
    ResourceType.TOPIC: needs.DESCRIBE_CONFIGS_TOPIC,
    ResourceType.GROUP: needs.DESCRIBE_CONFIGS_GROUP,
    ResourceType.BROKER: needs.DESCRIBE_CONFIGS_CLUSTER,
}
_ALTERING: Final[Mapping[int, needs.Need]] = {
    ResourceType.TOPIC: needs.ALTER_CONFIGS_TOPIC,
    ResourceType.GROUP: needs.ALTER_CONFIGS_GROUP,
    ResourceType.BROKER: needs.ALTER_CONFIGS_CLUSTER,
}
_INCREMENTS: Final[Mapping[int, needs.Need]] = {
    ResourceType.TOPIC: needs.INCREMENTAL_ALTER_CONFIGS_TOPIC,
    ResourceType.GROUP: needs.INCREMENTAL_ALTER_CONFIGS_GROUP,
    ResourceType.BROKER: needs.INCREMENTAL_ALTER_CONFIGS_CLUSTER,
}
_FIRST_WITH_TYPES: Final = 1  # version 0 of ListConfigResources lists client metrics only


class Operation(IntEnum):
    """An operation of IncrementalAlterConfigs on a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class TopicConfigsHandler:
    """Describes and changes configurations. Called by workers: changes wait for the disk."""

    def __init__(self, owners: ConfigOwners) -> None:
        self._owners = owners

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
                ApiKey.ALTER_CONFIGS: self.alter_configs,
                ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
                ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
            },
        )

    # --- DescribeConfigs ---------------------------------------------------------------------

    def describe_configs(
        self, context: RequestContext, request: messages.DescribeConfigsRequest
    ) -> messages.DescribeConfigsResponseDict:
        return {
            "results": [
                self._described(context, request, resource)
                for resource in dict.fromkeys(request.resources)
            ]
        }

    def _described(
        self,
        context: RequestContext,
        request: messages.DescribeConfigsRequest,
        resource: messages.DescribeConfigsRequestResources,
    ) -> messages.DescribeConfigsResponseResultsDict:
        kind, name = resource.resource_type, resource.resource_name
        wanted = resource.configuration_keys  # None or empty: every key
        try:
            _check_access(context, _DESCRIBING, kind, name)
            entries = self._owners.find(kind, name).entries()
        except Exception as error:
            code, message = refusal(error)
            return {
                "resource_type": kind,
                "resource_name": name,
                "error_code": code,
                "error_message": message,
            }
        return {
            "resource_type": kind,
            "resource_name": name,
            "error_code": ErrorCode.none,
            "configs": [
                _described_entry(
                    entry,
                    with_synonyms=request.include_synonyms,
                    with_doc=request.include_documentation,
                )
                for entry in entries
                if not wanted or entry.key.name in wanted
            ],
        }

    # --- AlterConfigs, IncrementalAlterConfigs -----------------------------------------------

    def alter_configs(
        self, context: RequestContext, request: messages.AlterConfigsRequest
    ) -> messages.AlterConfigsResponseDict:
        """Set the given keys, and take all others back to their defaults."""
        return self._alter(
            context,
            request.resources,
            _replacement,
            lambda kind, name: _check_access(context, _ALTERING, kind, name),
            validate_only=request.validate_only,
        )

    def incremental_alter_configs(
        self, context: RequestContext, request: messages.IncrementalAlterConfigsRequest
    ) -> messages.AlterConfigsResponseDict:
        """Change each given key in its own way; the others stay as they are."""
        return self._alter(
            context,
            request.resources,
            _increments,
            lambda kind, name: _check_access(context, _INCREMENTS, kind, name),
            validate_only=request.validate_only,
        )

    def _alter(
        self,
        context: RequestContext,
        wanted: Sequence[Resource],
        changes_of: Callable[[ConfigOwner, Resource], dict[str, str | None]],
        check_access: Callable[[int, str], None],
        *,
        validate_only: bool,
    ) -> messages.AlterConfigsResponseDict:
        resources, repeated = split_repeated(
            wanted, lambda item: (item.resource_type, item.resource_name)
        )
        twice = RefusedError(ErrorCode.invalid_request, "the resource is in the request twice")
        responses = [_altered(*place, twice) for place in repeated]
        for resource in resources:
            kind, name = resource.resource_type, resource.resource_name
            try:
                check_access(kind, name)
                owner = self._owners.find(kind, name)
                _check_repeated(resource)
                changes = changes_of(owner, resource)
                before = owner.overrides()
                owner.change(changes, validate_only=validate_only)
                if not validate_only:
                    _report(context, kind, name, before, changes)
            except Exception as error:
                responses.append(_altered(kind, name, error))
            else:
                responses.append(_altered(kind, name, None))
        return {"responses": responses}

    # --- ListConfigResources -----------------------------------------------------------------

    def list_config_resources(
        self, context: RequestContext, request: messages.ListConfigResourcesRequest
    ) -> messages.ListConfigResourcesResponseDict:
        if not context.may(needs.LIST_CONFIG_RESOURCES):
            return {"error_code": needs.LIST_CONFIG_RESOURCES.code, "config_resources": []}
        types: Iterable[int] = request.resource_types or list(ResourceType)
        if context.api_version < _FIRST_WITH_TYPES:
            types = [ResourceType.CLIENT_METRICS]
        if not set(types) <= set(ResourceType):
            return {"error_code": ErrorCode.unsupported_version}
        names = self._owners.names()
        return {
            "error_code": ErrorCode.none,
            "config_resources": [
                {"resource_type": resource_type, "resource_name": name}
                for resource_type, listed in names.items()
                if resource_type in types
                for name in listed
            ],
        }


def _report(
    context: RequestContext,
    kind: int,
    name: str,
    before: Mapping[str, str],
    changes: Mapping[str, str | None],
) -> None:
    """None: back to the default. The audit log hides the values of secret keys."""
    context.changed(
        "ALTER_CONFIGS",
        ResourceType(kind).name,
        name,
        old={key: before.get(key) for key in changes},
        new=changes,
    )


def _check_access(
    context: RequestContext, needed: Mapping[int, needs.Need], kind: int, name: str
) -> None:
    """Everything that is not a topic or a group belongs to the cluster."""
    need = needed.get(kind, needed[ResourceType.BROKER])
    if not context.may(need, CLUSTER_NAME if need.resource is AclResource.CLUSTER else name):
        raise RefusedError(need.code, f"{need.resource.name.capitalize()} authorization failed.")


def _altered(
    resource_type: int, name: str, error: Exception | None
) -> messages.AlterConfigsResponseResponsesDict:
    code, message = (ErrorCode.none, None) if error is None else refusal(error)
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "error_code": code,
        "error_message": message,
    }


def _described_entry(
    entry: ConfigEntry, *, with_synonyms: bool, with_doc: bool
) -> messages.DescribeConfigsResponseConfigsDict:
    return {
        "name": entry.key.name,
        "value": None if entry.key.is_sensitive else entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": entry.key.is_sensitive,
        "synonyms": [
            {
                "name": synonym.name,
                "value": None if entry.key.is_sensitive else synonym.value,
                "source": synonym.source,
            }
            for synonym in entry.synonyms
        ]
        if with_synonyms
        else [],
        "config_type": config_type(entry.key),
        "documentation": entry.key.doc if with_doc else None,
    }


def _check_repeated(resource: Resource) -> None:
    _, repeated = split_repeated(resource.configs, lambda config: config.name)
    if repeated:
        raise RefusedError(
            ErrorCode.invalid_request, f"changed twice in one request: {', '.join(repeated)}"
        )


def _replacement(
    owner: ConfigOwner, resource: messages.AlterConfigsRequestResources
) -> dict[str, str | None]:
    back: dict[str, str | None] = dict.fromkeys(owner.overrides())
    return back | {config.name: _given(config) for config in resource.configs}


def _increments(
    owner: ConfigOwner, resource: messages.IncrementalAlterConfigsRequestResources
) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for config in resource.configs:
        match config.config_operation:
            case Operation.SET:
                changes[config.name] = _given(config)
            case Operation.DELETE:
                changes[config.name] = None
            case Operation.APPEND:
                have, given = _items(owner, config)
                added = [item for item in given if item not in have]
                changes[config.name] = ",".join([*have, *added])
            case Operation.SUBTRACT:
                have, given = _items(owner, config)
                changes[config.name] = ",".join(item for item in have if item not in given)
            case unknown:
                raise RefusedError(
                    ErrorCode.invalid_request, f"{config.name}: unknown operation {unknown}"
                )
    return changes


def _given(
    config: messages.AlterConfigsRequestConfigs | messages.IncrementalAlterConfigsRequestConfigs,
) -> str:
    if config.value is None:
        raise RefusedError(ErrorCode.invalid_request, f"{config.name} has no value")
    return config.value


def _items(
    owner: ConfigOwner, config: messages.IncrementalAlterConfigsRequestConfigs
) -> tuple[list[str], list[str]]:
    """The present items of a list, and the items to append or subtract."""
    if owner.key(config.name, config.value).kind is not ConfigKind.LIST:
        raise ConfigError(
            config.name,
            config.value,
            "is not a list: it can be set, but not appended to or subtracted from",
        )
    return _split(owner.effective().get(config.name, "")), _split(_given(config))


def _split(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]
