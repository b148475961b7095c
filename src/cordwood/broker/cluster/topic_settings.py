"""The configuration of a topic, from what the controllers keep of it. Decisions only.

Controllers refuse topic keys that Kafka does not have. So Cordwood's own keys are kept in the
configuration of all brokers, under ``cordwood.topic.<topic>.<key>``. ``flush.messages=1`` on a
topic, which is Kafka's way to ask for a sync before the acknowledgement, means durability=disk.
"""

import logging
from typing import Final

from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import ConfigError
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts

logger = logging.getLogger(__name__)

_TOPIC: Final = 2
_BROKER: Final = 4
_EVERY_BROKER: Final = ""
OWN_PREFIX: Final = "cordwood.topic."


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
        except ConfigError as error:
            logger.warning("topic %s: this broker leaves a setting out: %s", name, error)
        else:
            settings[key] = value
    return canonical_texts(settings)
