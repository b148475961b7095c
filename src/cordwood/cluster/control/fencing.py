"""Why a broker may not lead now, in the words of an operator."""

from cordwood.cluster.control.membership import NO_EPOCH
from cordwood.cluster.image.metadata_image import MetadataImage


def fencing_reason(
    image: MetadataImage, *, node_id: int, epoch: int, is_silent: bool, session_timeout_ms: int
) -> str | None:
    """None if it may lead. `epoch` is that of its registration.

    `is_silent`: no heartbeat was answered for a session. Then other brokers may lead whatever the
    image says, and clients are refused here.
    """
    if epoch == NO_EPOCH:
        return "this broker is not registered: no controller of the cluster has accepted it yet"
    if is_silent:
        return (
            "no controller of the cluster has answered for more than broker.session.timeout.ms = "
            f"{session_timeout_ms}: other brokers may lead, so clients are refused here"
        )
    own = image.brokers.get(node_id)
    if own is None or own.epoch != epoch:
        return "this broker does not have the metadata of the cluster yet that it is registered in"
    if own.is_fenced:
        return (
            "the controllers of the cluster do not let this broker lead: it is fenced, until it "
            "has opened its replicas and its heartbeats are in time"
        )
    return None
