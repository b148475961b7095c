"""Kafka's broker keys for features that Cordwood does not have: ignored ones and refused ones.

A ``server.properties`` that was written for Kafka should work unchanged. So keys about
controllers, replicas and the tuning of Kafka's own threads are accepted without effect, and
reported at start. A key that asks for a protection that Cordwood does not have is refused: no
operator should rely on it.
"""

from typing import Final

WITHOUT_EFFECT: Final = frozenset(
    {
        # controllers are Kafka's, and have these keys
        "metadata.log.dir",
        "metadata.log.segment.bytes",
        "metadata.log.segment.ms",
        "metadata.max.retention.bytes",
        "metadata.max.retention.ms",
        # of controllers, or of Kafka's own replication
        "auto.leader.rebalance.enable",
        "leader.imbalance.check.interval.seconds",
        "leader.imbalance.per.broker.percentage",
        "num.replica.fetchers",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.socket.receive.buffer.bytes",
        "replica.socket.timeout.ms",
        # share groups
        "group.share.enable",
        "producer.id.expiration.ms",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        # migration between the kinds of groups
        "group.consumer.migration.policy",
        "group.consumer.regex.refresh.interval.ms",
        "group.coordinator.rebalance.protocols",
        "offsets.topic.segment.bytes",
        # Kafka's own threads, timers and reporters
        "background.threads",
        "confluent.support.metrics.enable",
        "fetch.purgatory.purge.interval.requests",
        "group.coordinator.append.linger.ms",
        "group.coordinator.threads",
        "log.cleaner.io.buffer.size",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.initial.task.delay.ms",
        "log.retention.check.interval.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "num.network.threads",
        "num.replica.alter.log.dirs.threads",
        "offsets.load.buffer.size",
        "offsets.topic.compression.codec",
        "producer.purgatory.purge.interval.requests",
        "queued.max.requests",
        "request.timeout.ms",
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
        "zookeeper.session.timeout.ms",
    }
)

# References to files, directories and variables need no declaration here.
_CONFIG_PROVIDERS: Final = "config.providers"

_PROTECTION: Final = (
    "authorizer.",
    "delegation.token.",
    "password.encoder.",
    "principal.builder.",
    "sasl.",
    "security.",
    "ssl.",
    "client.quota.",
    "quota.",
)


def is_without_effect(name: str) -> bool:
    """Whether a key of Kafka is accepted, and changes nothing."""
    return name in WITHOUT_EFFECT or name.startswith(_CONFIG_PROVIDERS)


def why_refused(name: str) -> str | None:
    """Why a key of Kafka is refused; None if it is not."""
    if name.startswith(_PROTECTION):
        return (
            "this way of protecting a broker is not available, and it is not ignored in silence; "
            "remove the key. docs/security.md has the keys that are available"
        )
    if name.startswith(("remote.log.", "rlmm.")):
        return "tiered storage is not available; set log.archive.url"
    return None
