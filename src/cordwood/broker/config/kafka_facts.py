"""Kafka's broker keys that have no effect here, with the values that describe this broker.

Tools look for them when they describe a broker. A value is Kafka's default, null where Kafka has
none, except that there is one replica of everything.
"""

from collections.abc import Mapping
from typing import Final

from cordwood.log.rules.config_key import ConfigKey, ConfigKind
from cordwood.quantities import INT32_MAX, INT64_MAX

_INT: Final = (ConfigKind.INTEGER, INT32_MAX)
_LONG: Final = (ConfigKind.INTEGER, INT64_MAX)
_BOOLEAN: Final = (ConfigKind.BOOLEAN, 0)
_LIST: Final = (ConfigKind.LIST, 0)
_TEXT: Final = (ConfigKind.TEXT, 0)

_FACTS: Final[Mapping[str, tuple[tuple[ConfigKind, int], str | None]]] = {
    "auto.leader.rebalance.enable": (_BOOLEAN, "true"),
    "background.threads": (_INT, "10"),
    "broker.heartbeat.interval.ms": (_INT, "2000"),
    "broker.session.timeout.ms": (_INT, "9000"),
    "controlled.shutdown.enable": (_BOOLEAN, "true"),
    "controller.quorum.bootstrap.servers": (_LIST, ""),
    "controller.quorum.voters": (_LIST, ""),
    "default.replication.factor": (_INT, "1"),
    "fetch.purgatory.purge.interval.requests": (_INT, "1000"),
    "group.consumer.assignment.interval.ms": (_INT, "1000"),
    "group.consumer.migration.policy": (_TEXT, "bidirectional"),
    "group.consumer.regex.refresh.interval.ms": (_INT, "600000"),
    "group.coordinator.append.linger.ms": (_INT, "-1"),
    "group.coordinator.rebalance.protocols": (_LIST, "classic,consumer,streams"),
    "group.coordinator.threads": (_INT, "4"),
    "inter.broker.listener.name": (_TEXT, None),
    "leader.imbalance.check.interval.seconds": (_LONG, "300"),
    "log.cleaner.io.buffer.size": (_INT, "524288"),
    "log.flush.offset.checkpoint.interval.ms": (_INT, "60000"),
    "log.flush.scheduler.interval.ms": (_LONG, "9223372036854775807"),
    "log.flush.start.offset.checkpoint.interval.ms": (_INT, "60000"),
    "log.initial.task.delay.ms": (_LONG, "30000"),
    "log.retention.check.interval.ms": (_LONG, "300000"),
    "log.retention.hours": (_INT, "168"),
    "log.retention.minutes": (_INT, None),
    "log.roll.hours": (_INT, "168"),
    "log.roll.jitter.hours": (_INT, "0"),
    "metadata.log.dir": (_TEXT, None),
    "metadata.log.segment.bytes": (_INT, "1073741824"),
    "metadata.log.segment.ms": (_LONG, "604800000"),
    "metadata.max.retention.bytes": (_LONG, "104857600"),
    "metadata.max.retention.ms": (_LONG, "604800000"),
    "metric.reporters": (_LIST, "org.apache.kafka.common.metrics.JmxReporter"),
    "metrics.num.samples": (_INT, "2"),
    "metrics.recording.level": (_TEXT, "INFO"),
    "metrics.sample.window.ms": (_LONG, "30000"),
    "num.network.threads": (_INT, "3"),
    "num.replica.alter.log.dirs.threads": (_INT, None),
    "num.replica.fetchers": (_INT, "1"),
    "offsets.load.buffer.size": (_INT, "5242880"),
    "offsets.topic.compression.codec": (_INT, "0"),
    "offsets.topic.replication.factor": (_INT, "1"),
    "offsets.topic.segment.bytes": (_INT, "104857600"),
    "process.roles": (_LIST, "broker,controller"),
    "producer.id.expiration.ms": (_INT, "86400000"),
    "producer.purgatory.purge.interval.requests": (_INT, "1000"),
    "queued.max.requests": (_INT, "500"),
    "replica.fetch.backoff.ms": (_INT, "1000"),
    "replica.fetch.max.bytes": (_INT, "1048576"),
    "replica.fetch.min.bytes": (_INT, "1"),
    "replica.fetch.response.max.bytes": (_INT, "10485760"),
    "replica.fetch.wait.max.ms": (_INT, "500"),
    "replica.high.watermark.checkpoint.interval.ms": (_LONG, "5000"),
    "replica.lag.time.max.ms": (_LONG, "30000"),
    "replica.selector.class": (_TEXT, None),
    "replica.socket.receive.buffer.bytes": (_INT, "65536"),
    "replica.socket.timeout.ms": (_INT, "30000"),
    "request.timeout.ms": (_INT, "30000"),
    "security.inter.broker.protocol": (_TEXT, "PLAINTEXT"),
    "share.coordinator.state.topic.min.isr": (_INT, "1"),
    "share.coordinator.state.topic.num.partitions": (_INT, "50"),
    "share.coordinator.state.topic.replication.factor": (_INT, "1"),
    "transaction.state.log.min.isr": (_INT, "1"),
    "transaction.state.log.replication.factor": (_INT, "1"),
}


def fact_key(name: str, kind: ConfigKind = ConfigKind.TEXT, maximum: int = INT64_MAX) -> ConfigKey:
    return ConfigKey(
        name=name, kind=kind, default_text="", doc="No effect here.", minimum=-1, maximum=maximum
    )


KAFKA_FACTS: Final[tuple[tuple[ConfigKey, str | None], ...]] = tuple(
    (fact_key(name, kind, maximum or INT64_MAX), value)
    for name, ((kind, maximum), value) in sorted(_FACTS.items())
)
