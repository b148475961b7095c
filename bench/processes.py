"""One process compared with two of one node: two clients, each with a partition of its own.

Servers and clients share all cores. With two processes the clients use one each. The keeper, a
third process, has nothing to do meanwhile. On a machine with two cores the clients take a part of
them, so two processes cannot be twice as fast: the processor time says what a record costs.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.broker_produce_rows import size_name, workload
from bench.broker_producers import BATCH_BYTES, Workload
from bench.broker_servers import (
    OS,
    CordwoodServer,
    create_topic,
    delete_topic,
    running,
)
from bench.broker_stage import CORDWOOD, Load, cpu_rows, load_row, timed
from bench.measure import Context, Row, RowMaker, measure_in_turns
from bench.wire_load import fetch_all, pipeline_produce, wait_for_topic
from bench.workload import fresh_path
from cordwood.log.topics.store_share import owner_of
from cordwood.quantities import KIB, MIB

_PROCESSES: Final = 2
_PARTITIONS: Final = 2
_FETCH_BYTES: Final = 1 * MIB

Client = Callable[[int, int], int]  # port and partition -> records


class ProcessedServer(CordwoodServer):
    """A broker of one process without a keeper (None), or of several."""

    def __init__(self, context: Context, processes: int | None) -> None:
        self.processes = processes
        super().__init__(
            fresh_path(context.directory, f"processes-{processes or 0}"),
            name=CORDWOOD if processes is None else f"{processes} processes",
            processes=processes,
        )

    def port_of(self, topic: str, partition: int) -> int:
        return self.port + owner_of(topic, partition, self.processes or 1)

    @contextmanager
    def topic(self) -> Iterator[str]:
        topic = create_topic(self, OS, partitions=_PARTITIONS, is_awaited=False)
        for partition in range(_PARTITIONS):
            wait_for_topic(self.port_of(topic, partition), topic, partition=partition)
        yield topic
        delete_topic(self, topic)

    def load(self, topic: str, work: Workload, client: Client) -> Load:
        """One client for each partition, at the process that has it."""

        def work_all() -> tuple[int, int]:
            with ThreadPoolExecutor(_PARTITIONS) as clients:
                ports = [self.port_of(topic, number) for number in range(_PARTITIONS)]
                done = sum(clients.map(client, ports, range(_PARTITIONS)))
            return done, done * work.value_size

        return timed(self, work_all)


class _Servers:
    """Started by the first rows; they run until the end."""

    def __init__(self) -> None:
        self._running: list[ProcessedServer] = []

    def all(self, context: Context) -> list[ProcessedServer]:
        if not self._running:
            for processes in (None, _PROCESSES):
                server = ProcessedServer(context, processes)
                context.resources.enter_context(running(server))
                # In order: workers whose keeper was killed write for a moment longer.
                context.resources.callback(server.stop)
                self._running.append(server)
        return self._running


def _produce(server: ProcessedServer, work: Workload, batch_bytes: int) -> Load:
    with server.topic() as topic:
        frames = [work.frames(topic, batch_bytes, number) for number in range(_PARTITIONS)]
        half = work.records // _PARTITIONS

        def client(port: int, partition: int) -> int:
            return pipeline_produce(port, topic, frames[partition], half)

        return server.load(topic, work, client)


def _consume(server: ProcessedServer, work: Workload) -> Load:
    with server.topic() as topic:
        half = work.records // _PARTITIONS
        for number in range(_PARTITIONS):
            frames = work.frames(topic, BATCH_BYTES, number)
            pipeline_produce(server.port_of(topic, number), topic, frames, half)

        def client(port: int, partition: int) -> int:
            fetch_all(port, topic, records=half, max_bytes=_FETCH_BYTES, partition=partition)
            return half

        return server.load(topic, work, client)


def _rows(
    context: Context,
    servers: _Servers,
    title: str,
    work: Workload,
    load: Callable[[ProcessedServer], Load],
) -> list[Row]:
    subjects = {server.name: partial(load, server) for server in servers.all(context)}
    loads = measure_in_turns(subjects, runs=context.runs)
    in_bytes = work.value_size >= KIB
    row = load_row(
        title,
        OS,
        "MB/s" if in_bytes else "records/s",
        loads,
        (lambda load: load.mb_per_s) if in_bytes else (lambda load: load.records_per_s),
        note=f"two connections, two partitions; {work.records:,} records; not pinned",
    )
    return [row, *cpu_rows(title, OS, loads)]


def _produce_rows(context: Context, servers: _Servers, value_size: int) -> list[Row]:
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    return [
        row
        for batch_bytes in (16 * KIB, BATCH_BYTES)
        for row in _rows(
            context,
            servers,
            f"produce {size_name(value_size)}, batches of {batch_bytes // KIB} KiB",
            work,
            partial(_produce, work=work, batch_bytes=batch_bytes),
        )
    ]


def _consume_rows(context: Context, servers: _Servers, value_size: int) -> list[Row]:
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    title = f"consume {size_name(value_size)}"
    return _rows(context, servers, title, work, partial(_consume, work=work))


def row_makers() -> dict[str, RowMaker]:
    servers = _Servers()
    return {
        "produce 1 KiB": partial(_produce_rows, servers=servers, value_size=KIB),
        "produce 100 B": partial(_produce_rows, servers=servers, value_size=100),
        "consume 1 KiB": partial(_consume_rows, servers=servers, value_size=KIB),
        "consume 100 B": partial(_consume_rows, servers=servers, value_size=100),
    }
