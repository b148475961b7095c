"""What a scraper sees of a broker."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import cordwood
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.observing.health import HealthChecks
from cordwood.broker.observing.metrics import BrokerMetrics
from cordwood.broker.observing.observed_broker import (
    ClusterFacts,
    GroupFacts,
    ObservedBroker,
    ObservedLimits,
    groups_of,
)
from cordwood.broker.security.audit_log import AuditCounts
from cordwood.broker.security.authentication_events import AuthenticationCounts
from cordwood.broker.security.client_quotas import QuotaCounts
from cordwood.log.store.store import Store

Labels = dict[str, str]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cordwood.open(tmp_path) as opened:
        yield opened


def observed(store: Store, *, groups: list[GroupFacts] | None = None) -> ObservedBroker:
    return ObservedBroker(
        store=store,
        config=BrokerConfig(node_id=4),
        address=("broker.example.com", 9092),
        requests=RequestMetrics(),
        authentications=AuthenticationCounts(),
        is_responsive=lambda _timeout_s: True,
        groups=lambda: groups_of(store) if groups is None else groups,
        connection_count=lambda: 3,
        is_coordinator_loaded=lambda: True,
    )


def scrape(broker: ObservedBroker) -> dict[str, list[tuple[Labels, float]]]:
    """All samples by name, as a Prometheus server reads them."""
    samples: dict[str, list[tuple[Labels, float]]] = {}
    text = BrokerMetrics(broker).render().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def value(samples: dict[str, list[tuple[Labels, float]]], name: str, **labels: str) -> float:
    found = [v for have, v in samples[name] if labels.items() <= have.items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_offsets_have_the_names_of_kafka_exporter(store: Store) -> None:
    orders = store.create_topic("orders", partitions=2)
    for _ in range(5):
        orders.append(b"x", partition=1)
    orders.partition(1).delete_before(2)

    samples = scrape(observed(store))

    assert value(samples, "kafka_brokers") == 1
    assert value(samples, "kafka_broker_info", id="4", address="broker.example.com:9092") == 1
    assert value(samples, "kafka_topic_partitions", topic="orders") == 2
    where = {"topic": "orders", "partition": "1"}
    assert value(samples, "kafka_topic_partition_current_offset", **where) == 5
    assert value(samples, "kafka_topic_partition_oldest_offset", **where) == 2
    assert value(samples, "kafka_topic_partition_leader", **where) == 4
    assert value(samples, "kafka_topic_partition_in_sync_replica", **where) == 1
    assert value(samples, "kafka_topic_partition_replicas", **where) == 1
    assert value(samples, "kafka_topic_partition_under_replicated_partition", **where) == 0


def test_a_groups_lag_is_what_it_has_not_read(store: Store) -> None:
    orders = store.create_topic("orders", partitions=2)
    for number in range(10):
        orders.append(b"x", partition=number % 2)
    facts = GroupFacts(
        group="billing",
        kind="consumer",
        state="Stable",
        member_count=2,
        committed={("orders", 0): 2, ("orders", 1): 5, ("gone", 0): 9, ("orders", 7): 1},
    )

    samples = scrape(observed(store, groups=[facts]))

    one = {"consumergroup": "billing", "topic": "orders", "partition": "0"}
    assert value(samples, "kafka_consumergroup_current_offset", **one) == 2
    assert value(samples, "kafka_consumergroup_lag", **one) == 3
    assert value(samples, "kafka_consumergroup_lag", **one | {"partition": "1"}) == 0
    assert value(samples, "kafka_consumergroup_lag_sum", consumergroup="billing") == 3
    assert value(samples, "kafka_consumergroup_current_offset_sum", consumergroup="billing") == 7
    assert value(samples, "kafka_consumergroup_members", consumergroup="billing") == 2
    assert value(samples, "cordwood_consumergroup_info", kind="consumer", state="Stable") == 1
    assert {have["topic"] for have, _ in samples["kafka_consumergroup_lag"]} == {"orders"}


def test_groups_of_a_store_without_a_coordinator_are_those_with_offsets(store: Store) -> None:
    store.create_topic("orders").append(b"x")
    store.group("billing").commit({("orders", 0): 1})

    samples = scrape(observed(store))

    assert value(samples, "kafka_consumergroup_members", consumergroup="billing") == 0
    assert value(samples, "kafka_consumergroup_lag", consumergroup="billing") == 0


def test_requests_are_histograms_by_api_and_errors_have_names(store: Store) -> None:
    broker = observed(store)
    for latency_s in (0.0004, 0.002, 100.0):
        broker.requests.observe(0, latency_s)
    broker.requests.failed(1, 1)
    broker.requests.received(10)
    broker.requests.accepted()

    samples = scrape(broker)

    name = "cordwood_request_duration_seconds"
    assert value(samples, f"{name}_bucket", api="Produce", le="0.0005") == 1
    assert value(samples, f"{name}_bucket", api="Produce", le="0.0025") == 2
    assert value(samples, f"{name}_bucket", api="Produce", le="+Inf") == 3
    assert value(samples, f"{name}_count", api="Produce") == 3
    assert value(samples, f"{name}_sum", api="Produce") == pytest.approx(100.0024)
    assert value(samples, "cordwood_request_errors_total", api="Fetch") == 1
    assert samples["cordwood_request_errors_total"][0][0]["error"] == "offset_out_of_range"
    assert value(samples, "cordwood_received_bytes_total") == 10
    assert value(samples, "cordwood_connections_accepted_total") == 1
    assert value(samples, "cordwood_connections") == 3


def test_the_durability_of_each_topic_can_be_seen(store: Store) -> None:
    store.create_topic("safe")
    store.create_topic("quick", config={"durability": "os", "cleanup.policy": "compact"})

    samples = scrape(observed(store))

    assert value(samples, "cordwood_topic_info", topic="safe", durability="disk") == 1
    assert value(samples, "cordwood_topic_info", topic="quick", durability="os") == 1
    assert value(samples, "cordwood_topic_info", topic="quick", cleanup_policy="compact") == 1


def test_segments_sizes_syncs_and_housekeeping_are_counted(store: Store, tmp_path: Path) -> None:
    log = store.create_topic("orders").partition(0)
    log.append(b"x" * 100)
    log.roll()
    log.append(b"y")
    store.maintain()

    samples = scrape(observed(store))

    where = {"topic": "orders", "partition": "0"}
    assert value(samples, "cordwood_log_segments", **where) == 2
    assert value(samples, "cordwood_log_size_bytes", **where) == log.size_bytes
    assert value(samples, "cordwood_log_durable_offset", **where) == 2
    assert value(samples, "cordwood_sync_duration_seconds_count") >= 2
    assert value(samples, "cordwood_upkeep_runs_total", task="retention") >= 1
    assert value(samples, "cordwood_upkeep_failures_total", task="retention") == 0
    assert value(samples, "cordwood_directory_online", directory=str(tmp_path)) == 1
    assert value(samples, "cordwood_directory_free_bytes", directory=str(tmp_path)) > 0
    assert value(samples, "cordwood_directory_failed_partitions", directory=str(tmp_path)) == 0
    assert value(samples, "cordwood_damages") == 0


def test_compaction_is_counted_for_each_compacted_partition(store: Store) -> None:
    topic = store.create_topic("state", config={"cleanup.policy": "compact"})
    topic.append_many([(b"k", b"%d" % n) for n in range(100)])
    store.compact("state", force=True)

    samples = scrape(observed(store))

    where = {"topic": "state", "partition": "0"}
    assert value(samples, "cordwood_cleaner_runs_total", **where) == 1
    assert value(samples, "cordwood_cleaner_reclaimed_bytes_total", **where) > 0
    assert value(samples, "cordwood_cleaner_uncleanable", **where) == 0
    assert value(samples, "cordwood_cleaner_last_run_timestamp_seconds", **where) > 0


def test_transactions_are_counted_by_state_and_hold_readers_back(store: Store) -> None:
    log = store.create_topic("orders").partition(0)
    with store.transaction("done") as transaction:
        transaction.append("orders", b"a")
    with store.transaction("open") as transaction:
        transaction.append("orders", b"b")
        log.sync()

        samples = scrape(observed(store))

    assert value(samples, "cordwood_transactional_ids", state="CompleteCommit") == 1
    assert value(samples, "cordwood_transactional_ids", state="Ongoing") == 1
    assert value(samples, "cordwood_transaction_oldest_open_seconds") >= 0
    assert value(samples, "cordwood_transaction_unmarked_partitions") == 0
    assert value(samples, "cordwood_transaction_marker_failures_total") == 0
    assert value(samples, "cordwood_partition_last_stable_lag", topic="orders", partition="0") == 1


def test_an_archive_says_how_far_it_has_come(store: Store, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/elsewhere"
    log = store.create_topic("orders", config={"archive.url": url}).partition(0)
    log.append(b"x")
    log.roll()
    log.syncing.checkpoint()  # waits for the segment to be sealed, which is done behind our back
    store.archive_now()

    samples = scrape(observed(store))

    assert value(samples, "cordwood_archive_end_offset", topic="orders") == 1
    assert value(samples, "cordwood_archive_segments", topic="orders") == 1
    assert value(samples, "cordwood_archive_failing", topic="orders") == 0
    assert value(samples, "cordwood_archive_last_success_timestamp_seconds", topic="orders") > 0


def test_the_process_and_the_build_are_described(store: Store) -> None:
    samples = scrape(observed(store))

    assert value(samples, "cordwood_build_info", version=cordwood.__version__) == 1
    assert value(samples, "process_resident_memory_bytes") > 0
    assert value(samples, "process_open_fds") > 0


def test_a_partition_that_is_offline_has_no_leader(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with cordwood.open(first, data_dirs=[second]) as both:
        for log in both.create_topic("orders", partitions=2).partitions:
            log.append(b"x")
    with cordwood.open(first) as store:
        samples = scrape(observed(store))

    leaders = sorted(leader for _, leader in samples["kafka_topic_partition_leader"])
    assert leaders == [-1, 4]
    assert len(samples["kafka_topic_partition_current_offset"]) == 1


def test_quotas_and_the_audit_log_are_counted_with_few_labels(store: Store) -> None:
    label = ("producer_byte_rate", "user")
    limits = ObservedLimits(
        quotas=lambda: QuotaCounts(throttled={label: 2}, throttled_s={label: 1.5}, tracked=7),
        muted_connections=lambda: 4,
        delayed_connections=lambda: 5,
    )
    audit = AuditCounts(written=10, dropped=1, left_out=3)

    samples = scrape(replace(observed(store), limits=limits, audit=lambda: audit))

    by = {"quota": "producer_byte_rate", "measured": "user"}
    assert value(samples, "cordwood_throttled_requests_total", **by) == 2
    assert value(samples, "cordwood_throttle_seconds_total", **by) == 1.5
    assert value(samples, "cordwood_quota_entities") == 7
    assert value(samples, "cordwood_muted_connections") == 4
    assert value(samples, "cordwood_connections_delayed_total") == 5
    assert value(samples, "cordwood_audit_events_written_total") == 10
    assert value(samples, "cordwood_audit_events_dropped_total") == 1
    assert value(samples, "cordwood_audit_events_left_out_total") == 3


FACTS = ClusterFacts(
    partitions=9,
    leaders=4,
    under_replicated=2,
    under_min_isr=1,
    offline=3,
    stopped=5,
    fencing="the controllers are away",
    isr_shrinks=7,
    isr_expands=6,
)


def test_a_member_is_ready_only_while_the_controllers_let_it_lead(store: Store) -> None:
    alone = observed(store)
    led = replace(FACTS, fencing=None)

    fenced = HealthChecks(replace(alone, cluster=lambda: FACTS)).readiness()
    unfenced = HealthChecks(replace(alone, cluster=lambda: led)).readiness()

    [problem] = set(fenced.problems) - set(unfenced.problems)
    assert problem == "the controllers are away"
    assert any("5 replicas stopped" in warning for warning in unfenced.warnings)


def test_a_member_of_a_cluster_counts_its_partitions_with_kafkas_words(store: Store) -> None:
    samples = scrape(replace(observed(store), cluster=lambda: FACTS))

    assert {name: value(samples, f"cordwood_{name}") for name in (
        "partition_count", "leader_count", "under_replicated_partitions",
        "under_min_isr_partition_count", "offline_partitions_count", "stopped_replicas",
        "is_fenced", "isr_shrinks_total", "isr_expands_total",
    )} == {
        "partition_count": 9,
        "leader_count": 4,
        "under_replicated_partitions": 2,
        "under_min_isr_partition_count": 1,
        "offline_partitions_count": 3,
        "stopped_replicas": 5,
        "is_fenced": 1,
        "isr_shrinks_total": 7,
        "isr_expands_total": 6,
    }  # fmt: skip
    assert "cordwood_leader_count" not in scrape(observed(store))
