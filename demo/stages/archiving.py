"""Move old segments to an archive, delete their local copies, and read both as one log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import cordwood
from demo.demo_plan import PAYMENTS
from demo.quantities_shown import shown_bytes, shown_s
from demo.recording import ARCHIVED
from demo.scene import Scene

if TYPE_CHECKING:
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.topics.topic import Topic

_READ_TIMEOUT_S: Final = 60.0


def archive(scene: Scene) -> None:
    took_s = scene.broker.stop()
    scene.screen.say(f"the broker stops cleanly in {shown_s(took_s)}; we open its directory")
    url = scene.files.archive.absolute().as_uri()
    with cordwood.open(scene.files.store) as store:
        local_bytes = sum(log.size_bytes for log in store.topic(PAYMENTS).partitions)
        topic = store.alter_topic(
            PAYMENTS,
            config={
                "archive.url": url,
                "archive.after.ms": 0,
                # About a third of each partition stays on the local disk.
                "local.retention.bytes": local_bytes // scene.plan.payment_partitions // 3,
            },
        )
        began_s = time.monotonic()
        statuses = store.archive_now()
        took_s = time.monotonic() - began_s
        store.maintain()  # retention drops the local copies
        places = _places(topic)
    scene.watch.look()
    scene.recording.mark("archived")

    copied = sum(status.size_bytes for status in statuses)
    count = sum(status.segment_count for status in statuses)
    scene.screen.say(
        f"copied {count} segments, {shown_bytes(copied)}, and compared the copies in "
        f"{shown_s(took_s)}; {places[ARCHIVED]} of them are now only in the archive"
    )
    scene.recording.figure("archived", f"{count} segments, {shown_bytes(copied)}")
    scene.screen.check(
        "no copy failed, and old segments are gone from the local disk",
        places[ARCHIVED] > 0 and all(status.last_error is None for status in statuses),
    )
    start = scene.broker.start()
    scene.screen.say(
        f"the broker restarts in {shown_s(start.process_s)}; "
        "a Kafka consumer reads everything from the first offset to the last"
    )
    _read_across(scene)


def _places(topic: Topic[PartitionLog]) -> dict[str, int]:
    """How many segments are only in the archive, and how many are local."""
    states = [segment.state for log in topic.partitions for segment in log.segments()]
    return {ARCHIVED: states.count(ARCHIVED), "local": len(states) - states.count(ARCHIVED)}


def _read_across(scene: Scene) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": scene.broker.address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    partitions = range(scene.plan.payment_partitions)
    offsets: dict[int, list[int]] = {partition: [] for partition in partitions}
    expected = scene.producer.produced
    began_s = time.monotonic()
    try:
        consumer.assign([TopicPartition(PAYMENTS, p, OFFSET_BEGINNING) for p in partitions])
        while sum(map(len, offsets.values())) < expected:
            if time.monotonic() - began_s > _READ_TIMEOUT_S:
                break
            for message in consumer.consume(1_000, 0.2):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    offsets[partition].append(offset)
    finally:
        consumer.close()
    found = sum(map(len, offsets.values()))
    scene.screen.check(
        f"read {found:,} archived and local records as one log, without a gap, "
        f"in {shown_s(time.monotonic() - began_s)}",
        found == expected and all(seen == list(range(len(seen))) for seen in offsets.values()),
    )
