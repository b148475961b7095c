"""The owners of configurations: topics, the broker, all brokers at once, single groups.

Each describes its keys with their sources, and changes them. See `handlers/topic_configs.py`.
"""

import logging
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from cordwood.broker.client_policy import check_client_config
from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.config.config_entries import (
    ConfigEntry,
    broker_entries,
    group_entries,
    shared_entries,
    subscription_entries,
    topic_entries,
)
from cordwood.broker.config.dynamic_keys import DYNAMIC_KEYS, GROUP_KEYS
from cordwood.broker.dynamic_configs import EVERY_BROKER, Changes, DynamicConfigs
from cordwood.broker.error_codes import ErrorCode, RefusedError
from cordwood.broker.telemetry.subscription import SUBSCRIPTION_KEYS
from cordwood.errors import ConfigError
from cordwood.format.file_names import check_topic_name
from cordwood.log.rules.config_key import ConfigKey
from cordwood.log.rules.topic_config import TopicConfig, known_key
from cordwood.log.store.store import Store

logger = logging.getLogger(__name__)


class ResourceType(IntEnum):
    """The owner of a configuration, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOwner(Protocol):
    """Something that has a configuration. Called by workers: changes wait for the disk."""

    def entries(self) -> list[ConfigEntry]: ...

    def key(self, name: str, value: str | None) -> ConfigKey:
        """The key of that name. Raises `ConfigError` if there is none that can be changed."""
        ...

    def overrides(self) -> Mapping[str, str]:
        """What was set for this owner."""
        ...

    def effective(self) -> Mapping[str, str]:
        """The values that apply to it."""
        ...

    def change(self, changes: Changes, *, validate_only: bool) -> None: ...


class ClusterConfigs(Protocol):
    """What the controllers keep. Any thread may ask."""

    def topic_names(self) -> list[str]: ...

    def of_topic(self, name: str) -> Mapping[str, str]:
        """The keys that are set for a topic. Raises `UnknownTopicError`."""
        ...


class ConfigOwners:
    """Finds owners by type and name."""

    def __init__(
        self,
        store: Store,
        identity: ClusterIdentity,
        dynamic: DynamicConfigs,
        security: Sequence[ConfigEntry] = (),
        closed_topics: frozenset[str] = frozenset(),
        cluster: ClusterConfigs | None = None,
    ) -> None:
        """In a `cluster` the controllers keep what is set, also for topics that are elsewhere."""
        self._cluster = cluster
        self._security = security
        self._closed_topics = closed_topics
        self._store = store
        self._identity = identity
        self._dynamic = dynamic

    def find(self, resource_type: int, name: str) -> ConfigOwner:
        """Raises an error that says why there is no such owner."""
        match resource_type:
            case ResourceType.TOPIC:
                check_topic_name(name)
                if self._cluster is not None:
                    return _ClusterTopicConfigs(self._dynamic, self._cluster.of_topic(name))
                self._store.topic(name)
                return _TopicConfigs(self._store, self._dynamic, name, self._closed_topics)
            case ResourceType.BROKER:
                if name not in {EVERY_BROKER, str(self._identity.node_id)}:
                    raise RefusedError(
                        ErrorCode.invalid_request,
                        f"this is broker {self._identity.node_id}, not {name!r}",
                    )
                return _BrokerConfigs(
                    self._store, self._dynamic, self._identity, name, self._security
                )
            case ResourceType.GROUP:
                return _GroupConfigs(self._dynamic, name)
            case ResourceType.CLIENT_METRICS:
                return _SubscriptionConfigs(self._dynamic, name)
            case _:
                raise RefusedError(
                    ErrorCode.invalid_request,
                    f"resource type {resource_type} has no configuration; topics (2), brokers "
                    "(4), client metrics (16) and groups (32) have one",
                )

    def names(self) -> dict[ResourceType, list[str]]:
        return {
            ResourceType.TOPIC: self._store.topics(include_internal=True)
            if self._cluster is None
            else self._cluster.topic_names(),
            ResourceType.BROKER: [str(self._identity.node_id)],
            ResourceType.CLIENT_METRICS: self._dynamic.subscription_names(),
            ResourceType.GROUP: self._dynamic.groups(),
        }


class _ClusterTopicConfigs:
    """A topic of the cluster: described here, changed by the controllers."""

    def __init__(self, dynamic: DynamicConfigs, settings: Mapping[str, str]) -> None:
        self._dynamic = dynamic
        self._settings = settings

    def entries(self) -> list[ConfigEntry]:
        return topic_entries(
            TopicConfig.parse(self._settings, defaults=self._dynamic.topic_defaults),
            self._settings,
            defaults=self._dynamic.static.topic_defaults,
            layers=self._dynamic.layers,
        )

    def key(self, name: str, value: str | None) -> ConfigKey:
        return known_key(name, value)

    def overrides(self) -> Mapping[str, str]:
        return self._settings

    def effective(self) -> Mapping[str, str]:
        defaults = self._dynamic.topic_defaults
        return TopicConfig.parse(self._settings, defaults=defaults).effective()

    def change(self, changes: Changes, *, validate_only: bool) -> None:
        raise RefusedError(ErrorCode.not_controller, "the controllers change it")


class _TopicConfigs:
    def __init__(
        self, store: Store, dynamic: DynamicConfigs, name: str, closed_topics: frozenset[str]
    ) -> None:
        self._store = store
        self._dynamic = dynamic
        self._name = name
        self._closed_topics = closed_topics

    def entries(self) -> list[ConfigEntry]:
        return topic_entries(
            self._store.topic(self._name).config,
            self.overrides(),
            defaults=self._dynamic.static.topic_defaults,
            layers=self._dynamic.layers,
        )

    def key(self, name: str, value: str | None) -> ConfigKey:
        return known_key(name, value)

    def overrides(self) -> Mapping[str, str]:
        return self._store.registry.overrides(self._name)

    def effective(self) -> Mapping[str, str]:
        return self._store.topic(self._name).config.effective()

    def change(self, changes: Changes, *, validate_only: bool) -> None:
        check_client_config(
            self._name,
            changes,
            now=self.effective(),
            archive_prefixes=self._dynamic.broker.archive_url_prefixes,
            closed_topics=self._closed_topics,
        )
        if validate_only:
            self._store.registry.check_config(self._name, changes)
        elif changes:
            self._store.alter_topic(self._name, config=changes)
            logger.info("topic %s: changed %s", self._name, ", ".join(sorted(changes)))


class _BrokerConfigs:
    """Of this broker, or of every broker."""

    def __init__(
        self,
        store: Store,
        dynamic: DynamicConfigs,
        identity: ClusterIdentity,
        name: str,
        security: Sequence[ConfigEntry],
    ) -> None:
        self._security = security
        self._store = store
        self._dynamic = dynamic
        self._identity = identity
        self._name = name

    def entries(self) -> list[ConfigEntry]:
        if self._name == EVERY_BROKER:
            return shared_entries(self.overrides())
        static = self._dynamic.static
        port = static.broker.port or self._identity.port
        entries = broker_entries(static, self._dynamic.layers, self._store.data_dirs, port)
        return [*entries, *self._security]

    def key(self, name: str, value: str | None) -> ConfigKey:
        key = DYNAMIC_KEYS.get(name)
        if key is None:
            raise RefusedError(
                ErrorCode.invalid_request,
                f"{name} cannot be changed while the broker runs; set it and restart the broker",
            )
        return key

    def overrides(self) -> Mapping[str, str]:
        return self._dynamic.of_broker(self._name)

    def effective(self) -> Mapping[str, str]:
        static = self._dynamic.static
        return {**static.texts(), **self._dynamic.layers.merged}

    def change(self, changes: Changes, *, validate_only: bool) -> None:
        for name, value in changes.items():
            self.key(name, value)
        try:
            self._dynamic.alter_broker(self._name, changes, validate_only=validate_only)
        except ConfigError as error:
            raise RefusedError(ErrorCode.invalid_request, str(error)) from error


class _GroupConfigs:
    def __init__(self, dynamic: DynamicConfigs, group_id: str) -> None:
        self._dynamic = dynamic
        self._group_id = group_id

    def entries(self) -> list[ConfigEntry]:
        if not self._group_id:
            raise RefusedError(ErrorCode.invalid_request, "Group name must not be empty")
        return group_entries(self._dynamic.static.broker, self.overrides())

    def key(self, name: str, value: str | None) -> ConfigKey:
        key = GROUP_KEYS.get(name)
        if key is None:
            raise ConfigError(name, value, f"is not a key of groups: {', '.join(GROUP_KEYS)}")
        return key

    def overrides(self) -> Mapping[str, str]:
        return self._dynamic.of_group(self._group_id)

    def effective(self) -> Mapping[str, str]:
        return {entry.key.name: entry.value or "" for entry in self.entries()}

    def change(self, changes: Changes, *, validate_only: bool) -> None:
        for name, value in changes.items():
            self.key(name, value)
        self._dynamic.alter_group(self._group_id, changes, validate_only=validate_only)


class _SubscriptionConfigs:
    """A subscription to client metrics. It exists while a key is set."""

    def __init__(self, dynamic: DynamicConfigs, name: str) -> None:
        self._dynamic = dynamic
        self._name = name

    def entries(self) -> list[ConfigEntry]:
        if not self._name:
            raise RefusedError(
                ErrorCode.invalid_request, "Client metrics subscription name must not be empty"
            )
        return subscription_entries(SUBSCRIPTION_KEYS, self.overrides())

    def key(self, name: str, value: str | None) -> ConfigKey:
        key = SUBSCRIPTION_KEYS.get(name)
        if key is None:
            raise RefusedError(
                ErrorCode.invalid_request,
                f"{name} is not a key of client metrics: {', '.join(SUBSCRIPTION_KEYS)}",
            )
        return key

    def overrides(self) -> Mapping[str, str]:
        return self._dynamic.of_subscription(self._name)

    def effective(self) -> Mapping[str, str]:
        return {entry.key.name: entry.value or "" for entry in self.entries()}

    def change(self, changes: Changes, *, validate_only: bool) -> None:
        if not self._name:
            raise RefusedError(ErrorCode.invalid_request, "Subscription name can't be empty")
        for name, value in changes.items():
            self.key(name, value)
        self._dynamic.alter_subscription(self._name, changes, validate_only=validate_only)
