"""Whether a cluster would take a new broker. Decisions only."""

from collections.abc import Mapping

from cordwood.cluster.control.membership import SUPPORTED_FEATURES
from cordwood.cluster.image.broker_image import VersionRange
from cordwood.cluster.operating.cluster_picture import ClusterPicture, with_missing
from cordwood.errors import ConfigError

_NONE = VersionRange(0, 0)


def checked_features(
    finalized: Mapping[str, int], supported: Mapping[str, VersionRange] = SUPPORTED_FEATURES
) -> None:
    """Raise `ConfigError` if the cluster has a feature at a level that a broker of ours has not.

    The controllers would refuse it: every broker must support what the cluster has.
    """
    for name, level in sorted(finalized.items()):
        known = supported.get(name, _NONE)
        if known.min <= level <= known.max:
            continue
        below = level > known.max
        raise ConfigError(
            name,
            level,
            f"is what the cluster has, and this version supports {known.min} to {known.max}; "
            + (
                f"run: kafka-features.sh downgrade --feature {name}={known.max}"
                if below
                else f"run: kafka-features.sh upgrade --feature {name}={known.min}"
            ),
        )


def checked_node_id(picture: ClusterPicture, node_id: int, *, is_own: bool) -> None:
    """Raise `ConfigError` if another node has the id.

    `is_own` says that the data directory was formatted for this node before.
    """
    broker = next((each for each in with_missing(picture) if each.node_id == node_id), None)
    if broker is not None and not is_own:
        used = sorted(each.node_id for each in with_missing(picture))
        raise ConfigError(
            "--node-id",
            node_id,
            f"is the id of a broker that is {broker.state}; choose another than "
            f"{', '.join(map(str, used))}, or remove that broker: cordwood cluster remove "
            f"{node_id}",
        )
    quorum = picture.quorum
    if quorum is not None and any(each.node_id == node_id for each in quorum.voters):
        raise ConfigError("--node-id", node_id, "is the id of a controller; choose another")
