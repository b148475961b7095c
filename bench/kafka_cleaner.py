"""Kafka's log cleaner as a peer of compaction: the same batches, one thread, its own figures.

The batches of one of our logs are produced to a compacted topic that is never due. Then the active
segment is rolled and the topic becomes due, so that one pass of the cleaner covers all of it. The
cleaner reports in Kafka's log how much it processed and how fast, including reading and writing.
Like ours, it reads twice and syncs the result.
"""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.broker_servers import KafkaServer, client_of
from bench.kafka_wire import ProduceFrame, produce_frame
from bench.wire_load import pipeline_produce, wait_for_topic
from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.format.batch_header import LOG_OVERHEAD, decode_batch_header
from cordwood.quantities import KIB, MIB, TimestampMs

# How often the cleaner looks for work. The default of 15 s would delay a run.
CLEANER_PROPERTIES: Final = {"log.cleaner.backoff.ms": "100"}

_TIMEOUT_S: Final = 300.0
_REQUEST_BYTES: Final = 64 * MIB  # of the batches in memory at a time
_CLEANED = re.compile(
    r"cleaned log (?P<log>\S+) .*?"
    r"(?P<megabytes>[\d.,]+) MB of log processed in [\d.,]+ seconds \((?P<rate>[\d.,]+) MB/sec\).*?"
    r"Start size: [\d.,]+ MB \((?P<records>[\d,]+) messages\)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """One pass of the cleaner."""

    size_bytes: float
    records: int
    seconds: float


class CleanerFailedError(Exception):
    """The cleaner did not report a pass."""


def parse_cleaning(printed: str, log: str) -> Cleaning | None:
    """The last pass over `log`; None if there was none yet."""
    found = [match for match in _CLEANED.finditer(printed) if match["log"] == log]
    if not found:
        return None
    megabytes, rate = (_number(found[-1][name]) for name in ("megabytes", "rate"))
    if not rate:
        return None
    return Cleaning(
        size_bytes=megabytes * MIB,
        records=int(_number(found[-1]["records"])),
        seconds=megabytes / rate,
    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def batches_of(paths: Iterable[Path]) -> Iterator[bytes]:
    """The batches of `.log` files as a producer sends them: offsets from 0."""
    for path in paths:
        data = memoryview(path.read_bytes())
        position = 0
        while position + LOG_OVERHEAD <= len(data):
            length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big")
            end = position + LOG_OVERHEAD + length
            yield bytes(8) + bytes(data[position + 8 : end])
            position = end


def _last_frame(topic: str) -> ProduceFrame:
    """One record with a new key and a timestamp in one second."""
    later = TimestampMs(time.time_ns() // 10**6 + 1000)
    style = BatchStyle(bytes_max=KIB)
    (batch,) = build_batches([(b"last", b"last")], later, style, target_bytes=KIB)
    return ProduceFrame(data=produce_frame(topic, bytes(batch.data)), records=1)


class KafkaCleaner:
    """Times the cleaner of a Kafka that was started with `CLEANER_PROPERTIES`."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._number = 0

    def clean(self, files: list[Path], *, segment_bytes: int) -> Cleaning:
        """Write the batches of `files` to a new topic, let Kafka clean it, delete it."""
        topic = f"dirty-{self._number}"
        self._number += 1
        self._create(topic, segment_bytes)
        written = self._write(topic, files)
        self._alter(topic, {"segment.ms": "1"})
        # The segment is too old by now, so this append begins a new one.
        self._send(topic, [_last_frame(topic)])
        self._alter(topic, {"min.cleanable.dirty.ratio": "0.0"})
        cleaning = self._wait(topic)
        self._delete(topic)
        assert cleaning.records >= written * 0.99, (cleaning, written)
        return cleaning

    def _write(self, topic: str, files: list[Path]) -> int:
        frames: list[ProduceFrame] = []
        held = written = 0
        for batch in batches_of(files):
            count = decode_batch_header(batch).record_count
            frames.append(ProduceFrame(data=produce_frame(topic, batch), records=count))
            held += len(batch)
            if held > _REQUEST_BYTES:
                written += self._send(topic, frames)
                frames, held = [], 0
        return written + self._send(topic, frames)

    def _send(self, topic: str, frames: list[ProduceFrame]) -> int:
        if not frames:
            return 0
        return pipeline_produce(
            self._server.port, topic, frames, sum(frame.records for frame in frames)
        )

    def _wait(self, topic: str) -> Cleaning:
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            printed = self._server.server_log.read_text(errors="replace")
            cleaning = parse_cleaning(printed, f"{topic}-0")
            if cleaning is not None:
                return cleaning
            time.sleep(0.05)
        raise CleanerFailedError(f"{topic} was not cleaned\n{self._server.printed()}")

    def _create(self, topic: str, segment_bytes: int) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(segment_bytes),
            "min.cleanable.dirty.ratio": "1.0",  # the dirty ratio is never higher
            "file.delete.delay.ms": "100",
        }
        wanted = NewTopic(topic, num_partitions=1, replication_factor=1, config=config)
        admin = AdminClient(client_of(self._server))
        admin.create_topics([wanted])[topic].result(_TIMEOUT_S)
        wait_for_topic(self._server.port, topic)

    def _alter(self, topic: str, config: dict[str, str]) -> None:
        from confluent_kafka.admin import (
            AdminClient,
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = AdminClient(client_of(self._server))
        for done in admin.incremental_alter_configs([wanted]).values():
            done.result(_TIMEOUT_S)

    def _delete(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(client_of(self._server))
        admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
