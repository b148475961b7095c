"""Kafka Streams with exactly_once_v2: every word counts once, whatever is killed meanwhile."""

from __future__ import annotations

import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from interop.committed_topic import CommittedTopic, create_topic
from interop.java_programs import JavaProgram, find_libraries
from interop.kafka_peer import KafkaTools, KafkaUnavailableError
from wire.served_process import ServedProcess

SOURCE = Path(__file__).with_name("streams") / "WordCounts.java"
WORDS = ("ash", "birch", "cedar", "elm", "fir", "larch", "oak")
PARTITIONS = 2


@pytest.fixture
def word_counts(kafka: KafkaTools, tmp_path: Path) -> JavaProgram:
    try:
        streams = find_libraries(
            "streams", folder="kafka-streams", variable="CORDWOOD_KAFKA_STREAMS_LIBS"
        )
        return JavaProgram.compile(
            kafka, SOURCE, [streams, kafka.libraries], tmp_path / "word-counts"
        )
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


class Feed:
    """Writes words for as long as it runs, each once; counts those that were acknowledged."""

    def __init__(self, servers: str) -> None:
        self.sent: Counter[str] = Counter()
        self.failures: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="words")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failures

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(0.01):
            for _ in range(5):
                word = WORDS[number % len(WORDS)]
                self._producer.produce("words", word.encode(), on_delivery=self._report)
                self.sent[word] += 1
                number += 1
            self._producer.poll(0)

    def _report(self, error: object, _: Message) -> None:
        if error is not None:
            self.failures.append(error)


@contextmanager
def feeding(servers: str) -> Iterator[Feed]:
    feed = Feed(servers)
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()


def remove_local_state(directory: Path) -> None:
    """The files of the stores: they are restored from the changelog.

    The name of the process stays, so that it takes over the transaction that it left open.
    """
    for store in directory.glob("word-counts/*_*"):
        shutil.rmtree(store)


def counts_by_word(messages: list[Message]) -> dict[str, list[int]]:
    """The counts of each word, in the order of the topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        found[key.decode()].append(int(value))
    return dict(found)


def test_kafka_streams_counts_exactly_once_though_it_and_the_broker_are_killed(
    word_counts: JavaProgram, tmp_path: Path
) -> None:
    """Its repartition topic, its changelog, its offsets and its output are one transaction.

    Each word gives one count. So the committed counts of a word are 1, 2, 3 ... without a gap or
    a repetition, exactly if every word was counted once.
    """
    state = tmp_path / "state"
    settings = ("group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=0")
    with ServedProcess(tmp_path / "data", *settings) as served:
        for topic in ("words", "counts"):
            create_topic(served.address, topic, partitions=PARTITIONS)
        with CommittedTopic(served.address, "counts", partitions=PARTITIONS) as counts:
            with feeding(served.address) as feed:
                with word_counts.start(served.address, state) as streams:
                    counts.wait_for(200, during=streams)
                    streams.kill()
                with word_counts.start(served.address, state) as streams:
                    counts.wait_for(len(counts.messages) + 200, during=streams)
                    served.kill()
                    served.start()
                    counts.wait_for(len(counts.messages) + 200, during=streams)
                    streams.kill()
                    remove_local_state(state)
            with word_counts.start(served.address, state) as streams:
                counts.wait_for(feed.sent.total(), during=streams)
                streams.stop()
            counts.take(1.0)

            found = counts_by_word(counts.messages)

    assert found == {word: list(range(1, sent + 1)) for word, sent in feed.sent.items()}
