"""Configurations of topics, of groups and of the broker: describing, changing and listing them.

Only configurations of topics can be changed. The broker has the one it was started with, and
groups have the broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from cordwood.broker.client_policy import check_client_config
from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.config_entries import (
    ConfigEntry,
    broker_entries,
    config_type,
    group_entries,
    topic_entries,
)
from cordwood.broker.error_codes import ErrorCode, RefusedError, refusal
from cordwood.broker.net.request import (
    RequestContext,
    Route,
    RunsOn,
    routes_on,
    split_repeated,
)
from cordwood.errors import ConfigError
from cordwood.format.file_names import check_topic_name
from cordwood.log.rules.config_key import ConfigKind
from cordwood.log.rules.topic_config import known_key
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import config_messages as messages

    Resource = TypeVar(
        "Resource",
        messages.AlterConfigsRequestResources,
        messages.IncrementalAlterConfigsRequestResources,
    )

logger = logging.getLogger(__name__)

_FIRST_WITH_TYPES: Final = 1  # version 0 of ListConfigResources lists client metrics only
_EVERY_BROKER: Final = ""  # Kafka's name for settings of all brokers at once


class ResourceType(IntEnum):
    """The owner of a configuration, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """An operation of IncrementalAlterConfigs on a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class TopicConfigsHandler:
    """Describes and changes configurations. Called by workers: changes wait for the disk."""

    def __init__(self, *, store: Store, identity: ClusterIdentity, config: BrokerConfig) -> None:
        self._store = store
        self._node_id = identity.node_id
        self._config = config

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
                self._described(request, resource) for resource in dict.fromkeys(request.resources)
            ]
        }

    def _described(
        self,
        request: messages.DescribeConfigsRequest,
        resource: messages.DescribeConfigsRequestResources,
    ) -> messages.DescribeConfigsResponseResultsDict:
        kind, name = resource.resource_type, resource.resource_name
        wanted = resource.configuration_keys  # None or empty: every key
        try:
            entries = self._entries(kind, name)
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

    def _entries(self, resource_type: int, name: str) -> list[ConfigEntry]:
        match resource_type:
            case ResourceType.TOPIC:
                check_topic_name(name)
                return topic_entries(
                    self._store.topic(name).config,
                    self._store.registry.overrides(name),
                    defaults=self._store.registry.defaults,
                )
            case ResourceType.BROKER if name == _EVERY_BROKER:
                return []
            case ResourceType.BROKER:
                self._check_broker(name)
                return broker_entries(
                    self._config, self._store.registry.defaults, self._store.data_dirs
                )
            case ResourceType.GROUP:
                return group_entries(self._config)
            case _:
                raise _unsupported(resource_type)

    def _check_broker(self, name: str) -> None:
        if name != str(self._node_id):
            raise RefusedError(
                ErrorCode.invalid_request, f"this is broker {self._node_id}, not {name!r}"
            )

    # --- AlterConfigs, IncrementalAlterConfigs -----------------------------------------------

    def alter_configs(
        self, context: RequestContext, request: messages.AlterConfigsRequest
    ) -> messages.AlterConfigsResponseDict:
        """Set the given keys, and take all others back to their defaults."""
        return self._alter(
            request.resources, self._replacement, validate_only=request.validate_only
        )

    def incremental_alter_configs(
        self, context: RequestContext, request: messages.IncrementalAlterConfigsRequest
    ) -> messages.AlterConfigsResponseDict:
        """Change each given key in its own way; the others stay as they are."""
        return self._alter(request.resources, self._increments, validate_only=request.validate_only)

    def _alter(
        self,
        wanted: Sequence[Resource],
        changes_of: Callable[[Resource], Mapping[str, str | None]],
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
                self._check_changeable(resource)
                self._change(name, changes_of(resource), validate_only=validate_only)
            except Exception as error:
                responses.append(_altered(kind, name, error))
            else:
                responses.append(_altered(kind, name, None))
        return {"responses": responses}

    def _check_changeable(self, resource: Resource) -> None:
        if resource.resource_type == ResourceType.BROKER:
            if resource.resource_name != _EVERY_BROKER:
                self._check_broker(resource.resource_name)
            keys = ", ".join(config.name for config in resource.configs)
            raise RefusedError(
                ErrorCode.invalid_request,
                f"cannot be changed while the broker runs: {keys}; set them and restart the broker",
            )
        if resource.resource_type == ResourceType.GROUP:
            raise RefusedError(
                ErrorCode.invalid_request,
                "single groups cannot be configured; set the broker's group.consumer keys",
            )
        if resource.resource_type != ResourceType.TOPIC:
            raise _unsupported(resource.resource_type)
        check_topic_name(resource.resource_name)
        self._store.topic(resource.resource_name)
        _, repeated = split_repeated(resource.configs, lambda config: config.name)
        if repeated:
            raise RefusedError(
                ErrorCode.invalid_request, f"changed twice in one request: {', '.join(repeated)}"
            )

    def _change(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        check_client_config(
            name,
            changes,
            now=self._store.topic(name).config.effective(),
            archive_prefixes=self._config.archive_url_prefixes,
        )
        if validate_only:
            self._store.registry.check_config(name, changes)
        elif changes:
            self._store.alter_topic(name, config=changes)
            logger.info("topic %s: changed %s", name, ", ".join(sorted(changes)))

    def _replacement(
        self, resource: messages.AlterConfigsRequestResources
    ) -> dict[str, str | None]:
        back: dict[str, str | None] = dict.fromkeys(
            self._store.registry.overrides(resource.resource_name)
        )
        return back | {config.name: _given(config) for config in resource.configs}

    def _increments(
        self, resource: messages.IncrementalAlterConfigsRequestResources
    ) -> dict[str, str | None]:
        now = self._store.topic(resource.resource_name).config.effective()
        changes: dict[str, str | None] = {}
        for config in resource.configs:
            match config.config_operation:
                case Operation.SET:
                    changes[config.name] = _given(config)
                case Operation.DELETE:
                    changes[config.name] = None
                case Operation.APPEND:
                    have, given = _items(config, now)
                    added = [item for item in given if item not in have]
                    changes[config.name] = ",".join([*have, *added])
                case Operation.SUBTRACT:
                    have, given = _items(config, now)
                    changes[config.name] = ",".join(item for item in have if item not in given)
                case unknown:
                    raise RefusedError(
                        ErrorCode.invalid_request, f"{config.name}: unknown operation {unknown}"
                    )
        return changes

    # --- ListConfigResources -----------------------------------------------------------------

    def list_config_resources(
        self, context: RequestContext, request: messages.ListConfigResourcesRequest
    ) -> messages.ListConfigResourcesResponseDict:
        if context.api_version < _FIRST_WITH_TYPES:
            return {"error_code": ErrorCode.none, "config_resources": []}
        types: Iterable[int] = request.resource_types or list(ResourceType)
        if not set(types) <= set(ResourceType):
            return {"error_code": ErrorCode.unsupported_version}
        names = {
            ResourceType.TOPIC: self._store.topics(include_internal=True),
            ResourceType.BROKER: [str(self._node_id)],
        }
        return {
            "error_code": ErrorCode.none,
            "config_resources": [
                {"resource_type": resource_type, "resource_name": name}
                for resource_type, listed in names.items()
                if resource_type in types
                for name in listed
            ],
        }


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
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": False,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in entry.synonyms
        ]
        if with_synonyms
        else [],
        "config_type": config_type(entry.key),
        "documentation": entry.key.doc if with_doc else None,
    }


def _unsupported(resource_type: int) -> RefusedError:
    return RefusedError(
        ErrorCode.invalid_request,
        f"resource type {resource_type} has no configuration; topics (2), brokers (4) and groups "
        "(32) have one",
    )


def _given(
    config: messages.AlterConfigsRequestConfigs | messages.IncrementalAlterConfigsRequestConfigs,
) -> str:
    if config.value is None:
        raise RefusedError(ErrorCode.invalid_request, f"{config.name} has no value")
    return config.value


def _items(
    config: messages.IncrementalAlterConfigsRequestConfigs, now: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The present items of a list, and the items to append or subtract."""
    key = known_key(config.name, config.value)
    if key.kind is not ConfigKind.LIST:
        raise ConfigError(
            config.name,
            config.value,
            "is not a list: it can be set, but not appended to or subtracted from",
        )
    return _split(now.get(config.name, "")), _split(_given(config))


def _split(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]
