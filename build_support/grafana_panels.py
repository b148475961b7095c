"""The panels of the Grafana board: what an operator looks at, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`queries` maps each expression to the legend of its series."""

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    is_single: bool = False  # a number, not a graph


def chosen(selector: str) -> str:
    """The labels of a query for the chosen brokers; `selector` has further ones."""
    return "{" + ",".join(filter(None, ['instance=~"$instance"', selector])) + "}"


def rate(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{chosen(selector)}[$__rate_interval]))"


def gauge(metric: str, selector: str = "") -> str:
    return metric + chosen(selector)


def total(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) ({gauge(metric, selector)})"


def difference(metric: str, other: str, by: str, selector: str = "") -> str:
    return f"{total(metric, by, selector)} - {total(other, by, selector)}"


def since(metric: str, selector: str = "") -> str:
    return f"time() - {gauge(metric, selector)}"


def top(query: str) -> str:
    return f"topk(10, {query})"


def count(metric: str, by: str, selector: str = "") -> str:
    return f"count by ({by}) ({gauge(metric, selector)})"


def quantile(share: float, metric: str, by: str) -> str:
    inner = rate(f"{metric}_bucket", f"le, {by}" if by else "le")
    return f"histogram_quantile({share}, {inner})"


# Labels that the board's variables choose, and legends.
TOPIC = 'topic=~"$topic"'
GROUP = 'consumergroup=~"$group"'
GROUP_TOPIC = "{{consumergroup}} {{topic}}"
GROUP_PARTITION = "{{consumergroup}} {{topic}}-{{partition}}"
PARTITION = "{{topic}}-{{partition}}"

SECTIONS: dict[str, list[Panel]] = {
    "Overview": [
        Panel(
            title="Brokers",
            queries={
                gauge("kafka_brokers"): "{{instance}}",
                gauge("kafka_broker_info"): "{{address}}",
            },
            is_single=True,
        ),
        Panel(
            title="Version",
            queries={
                gauge("cordwood_build_info"): "{{version}}, Python {{python}}, {{kernels}} kernels"
            },
            is_single=True,
        ),
        Panel(
            title="Needs attention",
            queries={
                total(
                    "cordwood_directory_failed_partitions", "instance"
                ): "partitions refuse appends",
                total("cordwood_directory_offline_partitions", "instance"): "partitions offline",
                gauge("cordwood_damages"): "damages",
                gauge("cordwood_insecure_listeners"): "listeners without authentication",
            },
            is_single=True,
        ),
        Panel(
            title="Records in",
            queries={rate("kafka_topic_partition_current_offset", "topic", TOPIC): "{{topic}}"},
            unit="cps",
        ),
        Panel(
            title="Traffic",
            queries={
                rate("cordwood_received_bytes_total", "instance"): "from clients, {{instance}}",
                rate("cordwood_sent_bytes_total", "instance"): "to clients, {{instance}}",
            },
            unit="Bps",
        ),
        Panel(
            title="Largest lags",
            queries={top(gauge("kafka_consumergroup_lag_sum", GROUP)): GROUP_TOPIC},
        ),
    ],
    "Requests": [
        Panel(
            title="Requests by API",
            queries={rate("cordwood_request_duration_seconds_count", "api"): "{{api}}"},
            unit="reqps",
        ),
        Panel(
            title="Duration of requests, p99",
            queries={quantile(0.99, "cordwood_request_duration_seconds", "api"): "{{api}}"},
            unit="s",
        ),
        Panel(
            title="Errors",
            queries={rate("cordwood_request_errors_total", "api, error"): "{{api}} {{error}}"},
            unit="reqps",
        ),
        Panel(title="Connections", queries={gauge("cordwood_connections"): "{{instance}}"}),
        Panel(
            title="New connections",
            queries={
                rate("cordwood_connections_accepted_total", "instance"): "accepted, {{instance}}",
                rate("cordwood_connections_refused_total", "instance"): "refused, {{instance}}",
            },
            unit="cps",
        ),
    ],
    "Consumer groups": [
        Panel(
            title="Lag by topic",
            queries={gauge("kafka_consumergroup_lag_sum", GROUP): GROUP_TOPIC},
        ),
        Panel(
            title="Records read",
            queries={
                rate(
                    "kafka_consumergroup_current_offset_sum", "consumergroup, topic", GROUP
                ): GROUP_TOPIC
            },
            unit="cps",
        ),
        Panel(
            title="Members",
            queries={gauge("kafka_consumergroup_members", GROUP): "{{consumergroup}}"},
        ),
        Panel(
            title="Groups by state",
            queries={
                count("cordwood_consumergroup_info", "kind, state", GROUP): "{{kind}} {{state}}"
            },
        ),
        Panel(
            title="Lag by partition, largest",
            queries={top(gauge("kafka_consumergroup_lag", GROUP)): GROUP_PARTITION},
        ),
        Panel(
            title="Committed offsets, fastest partitions",
            queries={
                top(
                    rate(
                        "kafka_consumergroup_current_offset",
                        "consumergroup, topic, partition",
                        GROUP,
                    )
                ): GROUP_PARTITION
            },
            unit="cps",
        ),
    ],
    "Topics": [
        Panel(
            title="Size by topic",
            queries={total("cordwood_log_size_bytes", "topic", TOPIC): "{{topic}}"},
            unit="bytes",
        ),
        Panel(
            title="Segments by topic",
            queries={total("cordwood_log_segments", "topic", TOPIC): "{{topic}}"},
        ),
        Panel(
            title="Records not yet synced",
            queries={
                difference(
                    "cordwood_log_end_offset", "cordwood_log_durable_offset", "topic", TOPIC
                ): "{{topic}}"
            },
        ),
        Panel(
            title="Readable offsets",
            queries={
                difference(
                    "kafka_topic_partition_current_offset",
                    "kafka_topic_partition_oldest_offset",
                    "topic",
                    TOPIC,
                ): "{{topic}}"
            },
        ),
        Panel(
            title="Partitions",
            queries={total("kafka_topic_partitions", "topic", TOPIC): "{{topic}}"},
        ),
        Panel(
            title="Topics by configuration",
            queries={
                count(
                    "cordwood_topic_info", "durability, cleanup_policy", TOPIC
                ): "{{durability}}, {{cleanup_policy}}"
            },
        ),
    ],
    "Disks": [
        Panel(
            title="Free space",
            queries={gauge("cordwood_directory_free_bytes"): "{{instance}} {{directory}}"},
            unit="bytes",
        ),
        Panel(
            title="State of directories",
            queries={
                gauge("cordwood_directory_online"): "online, {{directory}}",
                gauge("cordwood_directory_short_of_room"): "short of room, {{directory}}",
            },
        ),
        Panel(
            title="Partitions of directories",
            queries={
                gauge("cordwood_directory_partitions"): "all, {{directory}}",
                gauge("cordwood_directory_offline_partitions"): "offline, {{directory}}",
                gauge("cordwood_directory_failed_partitions"): "refuse appends, {{directory}}",
            },
        ),
        Panel(
            title="Duration of syncs",
            queries={
                quantile(0.5, "cordwood_sync_duration_seconds", ""): "p50",
                quantile(0.99, "cordwood_sync_duration_seconds", ""): "p99",
            },
            unit="s",
        ),
        Panel(
            title="Syncs",
            queries={rate("cordwood_sync_duration_seconds_count", "instance"): "{{instance}}"},
            unit="ops",
        ),
    ],
    "Housekeeping": [
        Panel(
            title="Runs of tasks",
            queries={
                rate("cordwood_upkeep_runs_total", "task"): "{{task}}",
                rate("cordwood_upkeep_failures_total", "task"): "{{task}}, failed",
            },
            unit="ops",
        ),
        Panel(
            title="Duration of tasks",
            queries={gauge("cordwood_upkeep_last_duration_seconds"): "{{task}} {{directory}}"},
            unit="s",
        ),
        Panel(
            title="Space freed",
            queries={
                rate("cordwood_upkeep_reclaimed_bytes_total", "task"): "{{task}}",
                rate(
                    "cordwood_cleaner_reclaimed_bytes_total", "topic", TOPIC
                ): "compaction, {{topic}}",
            },
            unit="Bps",
        ),
        Panel(
            title="Compaction",
            queries={
                rate("cordwood_cleaner_read_bytes_total", "topic", TOPIC): "read, {{topic}}",
                rate("cordwood_cleaner_written_bytes_total", "topic", TOPIC): "written, {{topic}}",
            },
            unit="Bps",
        ),
        Panel(
            title="Partitions that cannot be compacted",
            queries={total("cordwood_cleaner_uncleanable", "topic", TOPIC): "{{topic}}"},
        ),
        Panel(
            title="Time since the last compaction",
            queries={since("cordwood_cleaner_last_run_timestamp_seconds", TOPIC): PARTITION},
            unit="s",
        ),
    ],
    "Archive": [
        Panel(
            title="Copied",
            queries={rate("cordwood_archive_copied_bytes_total", "topic", TOPIC): "{{topic}}"},
            unit="Bps",
        ),
        Panel(
            title="Size of the archive",
            queries={total("cordwood_archive_size_bytes", "topic", TOPIC): "{{topic}}"},
            unit="bytes",
        ),
        Panel(
            title="Failing",
            queries={total("cordwood_archive_failing", "topic", TOPIC): "{{topic}}"},
        ),
        Panel(
            title="Time since the last success",
            queries={since("cordwood_archive_last_success_timestamp_seconds", TOPIC): PARTITION},
            unit="s",
        ),
    ],
    "Security": [
        Panel(
            title="Authentications",
            queries={
                rate("cordwood_authentications_total", "listener, mechanism, result"): (
                    "{{listener}} {{mechanism}} {{result}}"
                )
            },
            unit="cps",
        ),
        Panel(
            title="TLS handshakes that failed",
            queries={rate("cordwood_tls_handshakes_failed_total", "instance"): "{{instance}}"},
            unit="cps",
        ),
        Panel(
            title="Certificates expire in",
            queries={gauge("cordwood_tls_certificate_expiry_seconds"): "{{listener}}"},
            unit="s",
        ),
    ],
    "Process": [
        Panel(
            title="Memory",
            queries={gauge("process_resident_memory_bytes"): "{{instance}}"},
            unit="bytes",
        ),
        Panel(
            title="Processors used",
            queries={rate("process_cpu_seconds_total", "instance"): "{{instance}}"},
        ),
        Panel(
            title="Open files",
            queries={
                gauge("process_open_fds"): "{{instance}}",
                gauge("process_max_fds"): "limit, {{instance}}",
            },
        ),
        Panel(
            title="Uptime",
            queries={since("process_start_time_seconds"): "{{instance}}"},
            unit="s",
        ),
    ],
}
