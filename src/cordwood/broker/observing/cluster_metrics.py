"""Metrics of a member of a cluster, under the names of Kafka's replica manager."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cordwood.broker.observing.observed_broker import ObservedBroker


class ClusterCollector(Collector):
    """What this broker leads, and how many replicas are behind. Nothing if it is alone."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        if self._broker.cluster is None:
            return
        facts = self._broker.cluster()
        for name, text, value in (
            ("partition_count", "Partitions that this broker has a replica of.", facts.partitions),
            ("leader_count", "Partitions that this broker leads.", facts.leaders),
            (
                "under_replicated_partitions",
                "Partitions that this broker leads with replicas that are not in sync.",
                facts.under_replicated,
            ),
            (
                "under_min_isr_partition_count",
                "Partitions that this broker leads with fewer replicas in sync than "
                "min.insync.replicas: acks=all is refused.",
                facts.under_min_isr,
            ),
            (
                "offline_partitions_count",
                "Partitions of the whole cluster that nobody leads.",
                facts.offline,
            ),
            (
                "stopped_replicas",
                "Replicas of this broker that stopped and need help; the log says why.",
                facts.stopped,
            ),
            (
                "is_fenced",
                "Whether this broker may not lead: it is new, or the controllers do not answer.",
                int(facts.fencing is not None),
            ),
            (
                "leader_replication_byte_rate",
                "Bytes per second that this broker sends to throttled replicas as their leader.",
                facts.leader_replication_rate,
            ),
            (
                "follower_replication_byte_rate",
                "Bytes per second that this broker fetches for its throttled replicas.",
                facts.follower_replication_rate,
            ),
            (
                "alter_log_dirs_replication_byte_rate",
                "Bytes per second that are copied for replicas that move between directories.",
                facts.move_rate,
            ),
        ):
            yield GaugeMetricFamily(f"cordwood_{name}", text, value)
        yield CounterMetricFamily(
            "cordwood_isr_shrinks", "Replicas that fell out of sync.", facts.isr_shrinks
        )
        yield CounterMetricFamily(
            "cordwood_isr_expands", "Replicas that came in sync again.", facts.isr_expands
        )
