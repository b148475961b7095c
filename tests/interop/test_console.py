"""The console over Apache Kafka: the pages that a broker alone can fill."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig
from interop.cluster_members import CordwoodMember, KafkaMember
from interop.cluster_records import await_in_sync
from interop.kafka_peer import KafkaTools, StartBroker
from interop.kraft_controllers import KraftControllers
from wire.waiting import await_true


def test_the_console_works_with_kafka_itself(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.console.console.local_directories", lambda cluster: ())
    kafka = start_broker()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(20):
        producer.produce("orders", b'{"id": %d}' % n, key=b"k")
    producer.flush()
    config = ConsoleConfig(addresses=(("127.0.0.1", kafka.port),), port=0, interval_s=0.5)

    with served(config) as console:
        console.console.keeper.take_now()
        pages = [
            "/",
            "/topics",
            "/topics/orders",
            "/topics/orders/messages/0/3",
            "/topics/orders/partitions",
            "/topics/orders/config",
            "/groups",
            "/transactions",
            "/security",
            "/settings",
            "/topics/orders/export?from=oldest",
            "/topics/orders?from=key&key=k",
        ]
        statuses = {page: console.get(page).status for page in pages}
        found = console.get("/topics/orders/find?q=value.id+%3D+7").text
        segments = console.get("/topics/orders/segments").status
        overview = console.get("/").text

    assert statuses == dict.fromkeys(pages, 200)
    assert found.count("event: hit") == 1
    assert segments == 404
    assert "Upkeep" not in overview


OURS, THEIRS = 1, 101


def leads_to_cluster(console: ServedConsole) -> bool:
    return 'href="/cluster"' in console.get("/").text


def test_a_cluster_of_both_kinds_is_shown_with_what_is_not_in_sync(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    alone = {"offsets.topic.replication.factor": "1"}
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, tmp_path / "controllers"))
        ours = running.enter_context(
            CordwoodMember(controllers, tmp_path / "ours", node_id=OURS, properties=alone)
        )
        theirs = running.enter_context(
            KafkaMember(kafka, controllers, tmp_path / "theirs", node_id=THEIRS, properties=alone)
        )
        topic = NewTopic("orders", num_partitions=1, replica_assignment=[[OURS, THEIRS]])
        admin = AdminClient({"bootstrap.servers": ours.address})
        admin.create_topics([topic])["orders"].result(30)
        await_in_sync(ours.address, "orders", 2)
        consoles = [
            running.enter_context(
                served(ConsoleConfig(addresses=(("127.0.0.1", m.port),), port=0, interval_s=0.5))
            )
            for m in (ours, theirs)
        ]
        for console in consoles:
            view = console.get("/api/v1/cluster?show=all").json
            assert [(n["node_id"], n["state"]) for n in view["nodes"]] == [
                (OURS, "alive"),
                (THEIRS, "alive"),
            ]
            row = next(r for r in view["table"]["rows"] if r["topic"] == "orders")
            assert (row["leader"], row["replicas"], row["state"]) == (
                OURS,
                [OURS, THEIRS],
                "in sync",
            )
            assert view["moves"] == []
            assert "Every partition has a leader" in console.get("/cluster").text
            await_true(partial(leads_to_cluster, console))
            assert view["quorum"]["members"]

        theirs.kill()
        first = consoles[0]
        await_true(lambda: first.get("/api/v1/cluster").json["under_replicated"] > 0)
        view = first.get("/api/v1/cluster").json
        assert [
            row["out_of_sync"] for row in view["table"]["rows"] if row["topic"] == "orders"
        ] == [[THEIRS]]
        assert next(n for n in view["nodes"] if n["node_id"] == THEIRS)["state"] != "alive"
        assert "under-replicated" in first.get("/").text
