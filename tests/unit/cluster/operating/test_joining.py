"""Whether a cluster takes a new broker."""

from __future__ import annotations

import pytest

from cordwood.cluster.control.membership import SUPPORTED_FEATURES
from cordwood.cluster.image.broker_image import VersionRange
from cordwood.cluster.operating.cluster_picture import (
    BrokerPicture,
    ClusterPicture,
    QuorumMember,
    QuorumPicture,
)
from cordwood.cluster.operating.joining import checked_features, checked_node_id
from cordwood.errors import ConfigError

PICTURE = ClusterPicture(
    cluster_id="c",
    brokers=(BrokerPicture(node_id=1), BrokerPicture(node_id=2)),
    partitions=(),
    quorum=QuorumPicture(
        leader_id=3000,
        leader_epoch=1,
        high_watermark=1,
        voters=(QuorumMember(node_id=3000, log_end=1),),
    ),
)


def test_features_that_are_supported_pass() -> None:
    checked_features({name: known.max for name, known in SUPPORTED_FEATURES.items()})
    checked_features({"unheard.of": 0})


def test_a_feature_that_is_too_new_is_named_with_the_command_that_helps() -> None:
    supported = {"group.version": VersionRange(0, 1)}

    with pytest.raises(ConfigError, match=r"downgrade --feature group.version=1"):
        checked_features({"group.version": 2}, supported)
    with pytest.raises(ConfigError, match=r"downgrade --feature other=0"):
        checked_features({"other": 1}, supported)


def test_the_id_of_another_node_is_refused() -> None:
    checked_node_id(PICTURE, 3, is_own=False)
    checked_node_id(PICTURE, 2, is_own=True)
    with pytest.raises(ConfigError, match="is the id of a broker that is alive"):
        checked_node_id(PICTURE, 2, is_own=False)
    with pytest.raises(ConfigError, match="is the id of a controller"):
        checked_node_id(PICTURE, 3000, is_own=False)
