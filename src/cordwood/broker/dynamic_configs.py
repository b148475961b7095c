"""Settings that change while the broker runs: of the broker, and of single consumer groups.

A change is checked as a whole, saved in the data directories, and in effect on return. After a
restart the saved settings come before those in the configuration file, as in Kafka. The settings of
a member of a cluster are those that the controllers keep.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.dynamic_keys import (
    DYNAMIC_KEYS,
    GROUP_KEYS,
    ConfigLayers,
    RunningConfig,
    canonical,
)
from cordwood.broker.error_codes import ErrorCode, RefusedError
from cordwood.broker.telemetry.subscription import (
    SUBSCRIPTION_KEYS,
    SUBSCRIPTIONS_MAX,
    Subscription,
    parse_subscription,
)
from cordwood.errors import ConfigError, CordwoodError
from cordwood.log.rules.config_key import ConfigKey
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store

logger = logging.getLogger(__name__)

EVERY_BROKER: Final = ""  # Kafka's name for settings of all brokers at once
_BROKER: Final = "broker"
_GROUP: Final = "group"
_CLIENT_METRICS: Final = "client-metrics"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_SESSION: Final = "consumer.session.timeout.ms"

Changes = Mapping[str, str | None]  # None: back to the next layer


class DynamicConfigs:
    """The settings of one broker. Any thread may call it; changes take turns."""

    def __init__(self, store: Store, config: BrokerConfig) -> None:
        self._store = store
        self._saved = store.saved_configs
        self._node = str(config.node_id)
        self._changing = threading.Lock()
        self._listeners: list[Callable[[BrokerConfig], None]] = []
        self._subscribed: list[Callable[[list[Subscription]], None]] = []
        self.static = RunningConfig(
            broker=config,
            topic_defaults=store.registry.defaults,
            cleaner=store.cleaner.config,
        )
        self._running = self.static
        self._followed: ConfigLayers | None = None  # what the controllers of a cluster keep

    @property
    def broker(self) -> BrokerConfig:
        """The broker's configuration now."""
        return self._running.broker

    @property
    def topic_defaults(self) -> TopicConfig:
        """The defaults of topics now."""
        return self._running.topic_defaults

    @property
    def layers(self) -> ConfigLayers:
        if self._followed is not None:
            return self._followed
        return ConfigLayers(
            own=self._saved.of(_BROKER, self._node), shared=self._saved.of(_BROKER, EVERY_BROKER)
        )

    def when_changed(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Call `listener` with the broker's configuration after each change of it."""
        self._listeners.append(listener)

    def restore(self) -> None:
        """Put saved settings into effect. One that this version refuses is left out."""
        texts = self.layers.merged
        for name in list(texts):
            try:
                canonical(name, texts[name], DYNAMIC_KEYS)
            except ConfigError as error:
                logger.warning("ignoring a saved setting: %s", error)
                del texts[name]
        try:
            self._apply(self.static.with_dynamic(texts))
        except CordwoodError as error:
            logger.error("ignoring all saved settings of the broker: %s", error)

    def follow(self, layers: ConfigLayers) -> None:
        """Put what the controllers of a cluster keep into effect, in place of what is saved here.

        Controllers take keys of any name. One that this broker does not have is left out, and so
        is a value that it cannot use: the others count.
        """
        subscribed = sorted(layers.subscriptions)[:SUBSCRIPTIONS_MAX]
        if len(subscribed) < len(layers.subscriptions):
            logger.warning(
                "%d client metrics subscriptions are left out: at most %d are served",
                len(layers.subscriptions) - len(subscribed),
                SUBSCRIPTIONS_MAX,
            )
        with self._changing:
            known = ConfigLayers(
                own=_usable(layers.own),
                shared=_usable(layers.shared),
                groups=self._usable_groups(layers.groups),
                subscriptions={name: dict(layers.subscriptions[name]) for name in subscribed},
            )
            before = self._followed
            if known == before:
                return
            self._followed = known
            try:
                self._apply(self.static.with_dynamic(known.merged))
            except CordwoodError:
                self._apply_one_by_one(known.merged)
            if before is None or known.subscriptions != before.subscriptions:
                self._tell_subscriptions()

    def _usable_groups(
        self, groups: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Mapping[str, str]]:
        """Those that this broker can use: controllers may have other limits."""
        found: dict[str, Mapping[str, str]] = {}
        for name, texts in groups.items():
            try:
                known = {
                    key: canonical(key, text, GROUP_KEYS)
                    for key, text in texts.items()
                    if key in GROUP_KEYS
                }
                _check_group(known, self.static.broker)
            except ConfigError as error:
                logger.warning("this broker leaves the settings of group %s out: %s", name, error)
            else:
                found[name] = known
        return found

    def _apply_one_by_one(self, texts: Mapping[str, str]) -> None:
        """As many as go together."""
        kept: dict[str, str] = {}
        for name, text in texts.items():
            try:
                self._apply(self.static.with_dynamic({**kept, name: text}))
            except CordwoodError as error:
                logger.warning("this broker leaves a setting of the cluster out: %s", error)
            else:
                kept[name] = text

    # --- the broker --------------------------------------------------------------------------

    def of_broker(self, name: str) -> Mapping[str, str]:
        """The settings of this broker, or of every broker."""
        return self.layers.shared if name == EVERY_BROKER else self.layers.own

    def alter_broker(self, name: str, changes: Changes, *, validate_only: bool) -> None:
        with self._changing:
            texts = _changed(self._saved.of(_BROKER, name), changes, DYNAMIC_KEYS)
            layers = self.layers
            merged = {
                **(texts if name == EVERY_BROKER else layers.shared),
                **(layers.own if name == EVERY_BROKER else texts),
            }
            wanted = self.static.with_dynamic(merged)
            self._store.registry.check_defaults(wanted.topic_defaults)
            if validate_only:
                return
            self._saved.put(_BROKER, name, texts)
            self._apply(wanted)
        logger.info("changed settings of the broker: %s", ", ".join(sorted(changes)))

    def _apply(self, wanted: RunningConfig) -> None:
        if wanted.topic_defaults != self._running.topic_defaults:
            self._store.registry.set_defaults(wanted.topic_defaults)
        if wanted.cleaner != self._running.cleaner:
            self._store.cleaner.reconfigure(wanted.cleaner)
        has_new_broker = wanted.broker != self._running.broker
        self._running = wanted
        if has_new_broker:
            for listener in self._listeners:
                listener(wanted.broker)

    # --- groups ------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> Mapping[str, str]:
        if self._followed is not None:
            return self._followed.groups.get(group_id, {})
        return self._saved.of(_GROUP, group_id)

    def groups(self) -> list[str]:
        """The groups that have settings of their own."""
        if self._followed is not None:
            return sorted(self._followed.groups)
        return self._saved.names(_GROUP)

    def alter_group(self, group_id: str, changes: Changes, *, validate_only: bool) -> None:
        if not group_id:
            raise RefusedError(
                ErrorCode.invalid_request, "Default group resources are not allowed."
            )
        with self._changing:
            texts = _changed(self._saved.of(_GROUP, group_id), changes, GROUP_KEYS)
            _check_group(texts, self.static.broker)
            if not validate_only:
                self._saved.put(_GROUP, group_id, texts)
        logger.info("changed settings of group %s: %s", group_id, ", ".join(sorted(changes)))

    # --- client metrics ----------------------------------------------------------------------

    def of_subscription(self, name: str) -> Mapping[str, str]:
        if self._followed is not None:
            return self._followed.subscriptions.get(name, {})
        return self._saved.of(_CLIENT_METRICS, name)

    def subscription_names(self) -> list[str]:
        """The subscriptions to client metrics, in order."""
        if self._followed is not None:
            return sorted(self._followed.subscriptions)
        return self._saved.names(_CLIENT_METRICS)

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions. One that this version refuses is left out."""
        found = []
        for name in self.subscription_names():
            try:
                found.append(parse_subscription(name, self.of_subscription(name)))
            except ConfigError as error:
                logger.warning("ignoring the client metrics subscription %s: %s", name, error)
        return found

    def when_subscribed(self, listener: Callable[[list[Subscription]], None]) -> None:
        """Call `listener` with all subscriptions, now and after each change of them."""
        with self._changing:
            self._subscribed.append(listener)
            listener(self.subscriptions())

    def _tell_subscriptions(self) -> None:
        found = self.subscriptions()
        for listener in self._subscribed:
            listener(found)

    def alter_subscription(self, name: str, changes: Changes, *, validate_only: bool) -> None:
        with self._changing:
            texts = _changed(self._saved.of(_CLIENT_METRICS, name), changes, SUBSCRIPTION_KEYS)
            parse_subscription(name, texts)
            is_new = name not in self.subscription_names() and bool(texts)
            if is_new and len(self.subscription_names()) >= SUBSCRIPTIONS_MAX:
                raise ConfigError(
                    "client-metrics", name, f"there are {SUBSCRIPTIONS_MAX} subscriptions already"
                )
            if validate_only:
                return
            self._saved.put(_CLIENT_METRICS, name, texts)
            self._tell_subscriptions()
        logger.info("changed client metrics subscription %s: %s", name, ", ".join(sorted(changes)))


def _usable(texts: Mapping[str, str]) -> dict[str, str]:
    """Those that this version knows, as canonical text."""
    found: dict[str, str] = {}
    for name, text in texts.items():
        if name in DYNAMIC_KEYS:
            try:
                found[name] = canonical(name, text, DYNAMIC_KEYS)
            except ConfigError as error:
                logger.warning("this broker leaves a setting of the cluster out: %s", error)
    return found


def _changed(
    now: Mapping[str, str], changes: Changes, keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    texts = dict(now)
    for name, value in changes.items():
        if value is not None:
            texts[name] = canonical(name, value, keys)
        elif name in keys:
            texts.pop(name, None)
        else:
            raise ConfigError(name, value, "cannot be changed while the broker runs")
    return texts


def _check_group(texts: Mapping[str, str], broker: BrokerConfig) -> None:
    """Within the limits that the operator has set for groups."""
    for name, smallest, largest in (
        (
            _HEARTBEAT,
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        (
            _SESSION,
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
    ):
        if name in texts and not smallest <= int(texts[name]) <= largest:
            raise ConfigError(name, texts[name], f"must be {smallest} to {largest}")
    heartbeat = int(texts.get(_HEARTBEAT, broker.group_consumer_heartbeat_interval_ms))
    session = int(texts.get(_SESSION, broker.group_consumer_session_timeout_ms))
    if texts and session <= heartbeat:
        raise ConfigError(_SESSION, session, f"must be greater than {_HEARTBEAT} = {heartbeat}")
