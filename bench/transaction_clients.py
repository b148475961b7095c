"""Two clients that commit transactions: librdkafka (version 1) and Kafka's Java (version 2).

Each producer has a transactional id and a partition of its own. It begins the next transaction as
soon as the last commit was acknowledged. Nothing lingers, so a transaction takes as long as its
requests.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.broker_producers import JAVA_CLIENT, ClientFailedError, Workload
from bench.broker_servers import BrokerServer, client_of
from bench.process_tree import tree_cpu_seconds
from bench.wire_load import HOST
from interop.kafka_peer import KafkaTools

if TYPE_CHECKING:
    from confluent_kafka import Producer

JAVA_PROGRAM: Final = Path(__file__).with_name("java") / "TransactionLoad.java"

_TIMEOUT_S: Final = 60.0
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionWork:
    """What each of some producers does."""

    producers: int
    records: int  # in a transaction
    value_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLoad:
    """Transactions that were committed, and what they cost."""

    transactions: int
    seconds: float
    server_cpu_s: float | None
    client_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.transactions / self.seconds

    @property
    def server_ms_each(self) -> float | None:
        if self.server_cpu_s is None:
            return None
        return self.server_cpu_s / self.transactions * 1000

    @property
    def client_ms_each(self) -> float:
        return self.client_cpu_s / self.transactions * 1000


# --- librdkafka -------------------------------------------------------------------------------


def librdkafka_transactions(
    server: BrokerServer, topic: str, work: TransactionWork, seconds: float
) -> TransactionLoad:
    """confluent-kafka, with one thread for each producer."""
    producers = transactional_producers(server, work.producers)
    values = Workload(value_size=work.value_size, records=work.records).values()
    cpu_before, client_before = tree_cpu_seconds(server.pid), time.process_time()
    started = time.perf_counter()
    committed = commit_until(producers, topic, values, started + seconds)
    taken_s = time.perf_counter() - started
    client_s, cpu_after = time.process_time() - client_before, tree_cpu_seconds(server.pid)
    return TransactionLoad(
        transactions=committed,
        seconds=taken_s,
        server_cpu_s=None if cpu_before is None or cpu_after is None else cpu_after - cpu_before,
        client_cpu_s=client_s,
    )


def transactional_producers(server: BrokerServer, number: int) -> "list[Producer]":
    """Producers with new transactional ids, ready to begin."""
    from confluent_kafka import Producer

    producers = [
        Producer(
            {
                **client_of(server),
                "transactional.id": f"bench-{time.time_ns()}-{next(_numbers)}",
                "linger.ms": 0,
            }
        )
        for _ in range(number)
    ]
    for producer in producers:
        producer.init_transactions(_TIMEOUT_S)
    return producers


def commit_until(
    producers: "Sequence[Producer]",
    topic: str,
    values: Sequence[bytes],
    deadline_s: float,
    *,
    has_own_partitions: bool = True,
    aborts_every: int = 0,
    most: int = 0,
) -> int:
    """Transactions ended by all producers together; every so many of them is aborted.

    Each producer ends at most `most`, if that is given.
    """
    messages = [{"value": value} for value in values]
    counts = [0] * len(producers)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        producer, partition = producers[number], number if has_own_partitions else 0
        try:
            while time.perf_counter() < deadline_s and not (most and counts[number] >= most):
                producer.begin_transaction()
                taken = producer.produce_batch(topic, messages, partition=partition)
                if taken != len(messages):
                    raise ClientFailedError(f"{taken} of {len(messages)} records were taken")
                if aborts_every and counts[number] % aborts_every == 0:
                    producer.flush(_TIMEOUT_S)  # otherwise nothing of it would reach the log
                    producer.abort_transaction(_TIMEOUT_S)
                else:
                    producer.commit_transaction(_TIMEOUT_S)
                counts[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(producers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ClientFailedError(f"a transaction failed: {failures[0]}") from failures[0]
    return sum(counts)


# --- Java -------------------------------------------------------------------------------------


def java_transactions(
    server: BrokerServer, topic: str, work: TransactionWork, seconds: float, tools: KafkaTools
) -> TransactionLoad:
    """Kafka's producer, after as long a time to warm up, which is not counted.

    The server's processor time is that of the whole run, in proportion.
    """
    cpu_before = tree_cpu_seconds(server.pid)
    printed = tools.run(
        str(JAVA_PROGRAM),
        *(f"{HOST}:{server.port}", topic, f"bench-{time.time_ns()}-"),
        *(str(work.producers), str(work.records), str(work.value_size)),
        *(str(seconds), str(seconds)),
        jvm_options=JAVA_CLIENT,
    )
    cpu_after = tree_cpu_seconds(server.pid)
    transactions, taken_s, client_s = printed.split()
    cpu_s = None
    if cpu_before is not None and cpu_after is not None:
        cpu_s = (cpu_after - cpu_before) / 2
    return TransactionLoad(
        transactions=int(transactions),
        seconds=float(taken_s),
        server_cpu_s=cpu_s,
        client_cpu_s=float(client_s),
    )
