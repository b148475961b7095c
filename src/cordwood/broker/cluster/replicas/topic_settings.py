"""The configuration of a topic, and of brokers, from what the controllers keep. Decisions only.

Controllers refuse topic keys that Kafka does not have. So Cordwood's own keys are kept in the
configuration of all brokers, under ``cordwood.topic.<topic>.<key>``. ``flush.messages=1`` on a
topic, which is Kafka's way to ask for a sync before the acknowledgement, means durability=disk.
"""

import logging
from collections.abc import Mapping
from typing import Final

from cordwood.archive.objects.object_store import shown_url, why_unconditional
from cordwood.broker.config.dynamic_keys import ConfigLayers
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import ConfigError
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts

logger = logging.getLogger(__name__)

_TOPIC: Final = 2
_BROKER: Final = 4
_CLIENT_METRICS: Final = 16
_GROUP: Final = 32
_EVERY_BROKER: Final = ""
OWN_PREFIX: Final = "cordwood.topic."
_ARCHIVE_URL: Final = "archive.url"


def check_cluster_archive(url: str, *, key: str = _ARCHIVE_URL) -> None:
    """Raise `ConfigError` if brokers of a cluster cannot archive to `url` together."""
    reason = why_unconditional(url)
    if reason is not None:
        raise ConfigError(key, shown_url(url), reason)


def broker_settings(image: MetadataImage, node_id: int) -> ConfigLayers:
    """What is set for one broker, and for all of them: defaults of topics, for example. Also what
    is set for groups, and which metrics clients are to send.

    The controllers decide by the same values who may lead: with ``min.insync.replicas`` of all
    brokers, for topics that have none of their own (KIP-966).
    """
    return ConfigLayers(
        own=image.config_of(_BROKER, str(node_id)),
        shared=image.config_of(_BROKER, _EVERY_BROKER),
        groups=_named(image, _GROUP),
        subscriptions=_named(image, _CLIENT_METRICS),
    )


def _named(image: MetadataImage, kind: int) -> dict[str, Mapping[str, str]]:
    return {name: texts for (its, name), texts in image.configs.items() if its == kind}


def topic_settings(image: MetadataImage, name: str) -> dict[str, str]:
    """The keys that are set for a topic, as far as this broker knows them.

    A key that it does not know, or a value that it cannot use, is left out with a warning: another
    broker of the cluster may know it.
    """
    given = dict(image.config_of(_TOPIC, name))
    if given.get("flush.messages") == "1":
        given["durability"] = "disk"
    prefix = f"{OWN_PREFIX}{name}."
    for key, value in image.config_of(_BROKER, _EVERY_BROKER).items():
        if key.startswith(prefix):
            given[key.removeprefix(prefix)] = value
    settings: dict[str, str] = {}
    for key, value in given.items():
        try:
            TopicConfig.parse({**settings, key: value})
            if key == _ARCHIVE_URL and value:
                check_cluster_archive(value)
        except ConfigError as error:
            logger.warning("topic %s: this broker leaves a setting out: %s", name, error)
        else:
            settings[key] = value
    return canonical_texts(settings)
