"""Apache Flink's sink for Kafka with EXACTLY_ONCE: it commits with its checkpoints.

After a failure it resumes the transactions of its last checkpoint with the producer id and epoch
that they had, and commits them; others that it left open it aborts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.committed_topic import CommittedTopic, create_topic
from interop.java_programs import JavaProgram, find_libraries
from interop.kafka_peer import KafkaTools, KafkaUnavailableError
from wire.served_process import ServedProcess

SOURCE = Path(__file__).with_name("flink") / "NumbersToTopic.java"
NUMBERS = 4000  # at 500 a second
# As Flink's own start scripts do for this Java.
OPENED = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
    for package in ("lang", "net", "util", "util.concurrent", "io", "nio", "time", "text")
)


@pytest.fixture
def numbers_to_topic(kafka: KafkaTools, tmp_path: Path) -> JavaProgram:
    try:
        flink = find_libraries("flink", folder="flink", variable="CORDWOOD_FLINK_LIBS")
        return JavaProgram.compile(kafka, SOURCE, [flink], tmp_path / "flink", jvm_options=OPENED)
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_s_sink_writes_each_number_once_though_it_and_the_broker_are_killed(
    numbers_to_topic: JavaProgram, tmp_path: Path, naming: str
) -> None:
    checkpoints = tmp_path / "checkpoints"
    with ServedProcess(tmp_path / "data") as served:
        create_topic(served.address, "numbers")
        arguments = (served.address, checkpoints, str(NUMBERS), naming)
        with CommittedTopic(served.address, "numbers") as numbers:
            with numbers_to_topic.start(*arguments) as flink:
                numbers.wait_for(500, during=flink)
                flink.kill()
            with numbers_to_topic.start(*arguments) as flink:
                numbers.wait_for(len(numbers.messages) + 700, during=flink)
                served.kill()
                served.start()
                flink.wait(90)
            numbers.wait_for(NUMBERS)
            numbers.take(1.0)

            found = [message.value() for message in numbers.messages]

    assert found == [b"%d" % number for number in range(NUMBERS)]
