"""Start a broker on a new directory; an ordinary admin client creates two topics."""

from __future__ import annotations

from demo.demo_plan import ACCOUNTS, PAYMENTS
from demo.quantities_shown import shown_s
from demo.scene import Scene


def serve(scene: Scene) -> None:
    start = scene.broker.start()
    scene.screen.say(
        f"listening on {start.address} after {shown_s(start.process_s)}, "
        f"of which opening the store took {shown_s(start.opening_ms / 1000)}"
    )
    scene.recording.figure("broker started in", shown_s(start.process_s))

    made = _create_topics(scene)

    scene.screen.check(
        f"an ordinary Kafka client created the topics {PAYMENTS} ({made[PAYMENTS]} partitions) "
        f"and {ACCOUNTS} ({made[ACCOUNTS]}, compacted)",
        made == {PAYMENTS: scene.plan.payment_partitions, ACCOUNTS: scene.plan.account_partitions},
    )
    scene.start_stream()
    scene.connect_producer()
    scene.watch.start()


def _create_topics(scene: Scene) -> dict[str, int]:
    """Create the topics; return the number of partitions of each."""
    from confluent_kafka.admin import AdminClient, NewTopic

    plan = scene.plan
    small = {"segment.records": str(plan.segment_records), "file.delete.delay.ms": "1000"}
    admin = AdminClient({"bootstrap.servers": scene.broker.address, "log_level": 0})
    created = admin.create_topics(
        [
            NewTopic(PAYMENTS, plan.payment_partitions, 1, config=small),
            NewTopic(
                ACCOUNTS,
                plan.account_partitions,
                1,
                config={**small, "cleanup.policy": "compact", "key.index": "true"},
            ),
        ]
    )
    for future in created.values():
        future.result(30)
    topics = admin.list_topics(timeout=30).topics
    return {name: len(topics[name].partitions) for name in (PAYMENTS, ACCOUNTS) if name in topics}
