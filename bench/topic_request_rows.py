"""Topics created and deleted by one request, beside Kafka.

The clock runs from the request until the last of its topics is answered for. A topic is then
durable on both sides: Kafka writes it to the log of its controller.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Final

from bench.broker_servers import (
    DISK,
    BrokerServer,
    CordwoodServer,
    KafkaServer,
    client_of,
    find_kafka,
    running,
)
from bench.broker_stage import CORDWOOD, figure_row
from bench.measure import Context, Row, measure_in_turns, seconds_of
from bench.workload import fresh_path
from interop.kafka_peer import KafkaUnavailableError

# Cordwood may take three times as long: it has one disk to wait for, and Kafka does not wait.
TOPIC_RATIO: Final = 1 / 3

_TOPICS: Final = 100
_TIMEOUT_S: Final = 120.0

_numbers = count()


def topic_request_rows(context: Context) -> list[Row]:
    """100 topics of one partition, in one request."""
    with _servers(context) as (servers, note):
        taken = measure_in_turns(
            {server.name: partial(_create_and_delete_s, server) for server in servers},
            runs=context.runs,
        )
    judge = next((server.name for server in servers if server.name != CORDWOOD), None)
    return [
        figure_row(
            f"{_TOPICS} topics beside Kafka, {what}",
            DISK,
            "ms",
            {name: [each[index] * 1e3 for each in values] for name, values in taken.items()},
            judge=judge,
            ratio=TOPIC_RATIO,
            is_lower_better=True,
            note=note,
        )
        for index, what in enumerate(("created", "deleted"))
    ]


@contextmanager
def _servers(context: Context) -> Iterator[tuple[list[BrokerServer], str]]:
    """Cordwood and, if it can run here, Kafka; and a note if it cannot."""
    note = "one request; until the last answer"
    with ExitStack() as stack:
        directories = [fresh_path(context.directory, name) for name in ("topics", "topics-kafka")]
        for directory in directories:
            directory.mkdir()
        servers: list[BrokerServer] = [CordwoodServer(directories[0])]
        try:
            servers.append(KafkaServer(find_kafka(), directories[1]))
        except KafkaUnavailableError as error:
            note = f"{note}; without Kafka: {error}"
            context.say(f"without Kafka: {error}")
        for server in servers:
            stack.enter_context(running(server))
        yield servers, note


def _create_and_delete_s(server: BrokerServer) -> tuple[float, float]:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(client_of(server))
    names = [f"bench-topic-{next(_numbers)}" for _ in range(_TOPICS)]
    config = dict(server.topic_config(DISK))
    wanted = [
        NewTopic(name, num_partitions=1, replication_factor=1, config=config) for name in names
    ]

    def create() -> None:
        for made in admin.create_topics(wanted, request_timeout=_TIMEOUT_S).values():
            made.result(_TIMEOUT_S)

    def delete() -> None:
        for gone in admin.delete_topics(names, request_timeout=_TIMEOUT_S).values():
            gone.result(_TIMEOUT_S)

    return seconds_of(create), seconds_of(delete)
