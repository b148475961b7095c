"""`cordwood console` beside a broker with 10,000 partitions and 1,000 groups.

How long a page takes, what the clients of the broker notice, how fast a search is, and whether the
memory of the console grows while a viewer follows a busy topic.
"""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import cordwood
from bench.broker_servers import OS, BrokerServer, CordwoodServer, free_port, new_topic, running
from bench.child import environment_of_an_installation
from bench.kafka_wire import AnswerError, ProduceFrame, produce_error, produce_frames
from bench.measure import Context, Row, RowMaker, Target, measure_in_turns, measure_row, samples
from bench.peer_process import PeerProcess
from bench.process_tree import tree_cpu_seconds, tree_resident_mb
from bench.wire_load import HOST, connect, receive_frame
from bench.workload import fresh_path

PAGE_MS: Final = 50.0
SEARCH_MB_PER_S: Final = 200.0
GROWTH_MB: Final = 3.0
P99_RATIO: Final = 0.9  # of a broker with a console to one without

_TOPICS: Final = 100
_PARTITIONS: Final = 100  # of each topic
_GROUPS: Final = 1_000
_PAGES: Final = ("/", "/topics", "/groups", "/upkeep")
_VIEWS: Final = 40  # of a page for one figure
_LOOK_S: Final = 2.0  # the console's own interval
_PAUSE_S: Final = 0.002  # between two requests of the ordinary client
_TAIL_RATE: Final = 5_000
_TAIL_BATCH: Final = 50
_SETTLED_S: Final = 5.0
_LOOKS: Final = 10  # at the memory of a live tail


class ConsoleServer(PeerProcess):
    """`cordwood console` in its own interpreter."""

    def __init__(self, target: str, directory: Path) -> None:
        self.port = free_port()
        where = ("--at", target, "--port", str(self.port), "--interval", str(_LOOK_S))
        environment = {
            key: value
            for key, value in environment_of_an_installation().items()
            if not key.startswith("CORDWOOD_")
        }
        super().__init__(
            [sys.executable, "-m", "cordwood", "console", *where],
            directory,
            environment=environment,
        )

    def page(self, path: str) -> bytes:
        """Raises AnswerError unless the console answers with the page."""
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=60)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status != 200:
            raise AnswerError(f"{path} was answered with {answer.status}: {body[:200]!r}")
        return body


@contextmanager
def console_of(target: str, directory: Path) -> Iterator[ConsoleServer]:
    """A console that answers, stopped after the `with`."""
    console = ConsoleServer(target, directory)
    console.launch()
    try:
        console.wait_until(lambda: b"<html" in console.page("/"))
        yield console
    finally:
        console.stop()


class _Stage:
    """One store for all rows, made by the first of them, and its broker."""

    def __init__(self) -> None:
        self._server: CordwoodServer | None = None

    def server(self, context: Context) -> CordwoodServer:
        if self._server is None:
            directory = fresh_path(context.directory, "console")
            directory.mkdir()
            server = CordwoodServer(directory)
            _fill(server.data_directory, topics=context.pick(_TOPICS, _TOPICS // 10))
            context.resources.enter_context(running(server))
            self._server = server
        return self._server

    @contextmanager
    def console(self, context: Context) -> Iterator[ConsoleServer]:
        server = self.server(context)
        work = fresh_path(context.directory, "viewer")
        with console_of(f"{HOST}:{server.port}", work) as console:
            yield console


def _fill(path: Path, *, topics: int) -> None:
    """Topics of 100 partitions, and ten groups for each topic that read one partition."""
    with cordwood.open(path, config={"durability": "os"}) as store:
        for number in range(topics):
            topic = store.create_topic(f"topic-{number}", partitions=_PARTITIONS)
            topic.append_many([(None, b"%d" % value) for value in range(100)], partition=0)
        for number in range(_GROUPS):
            store.group(f"group-{number}").commit({(f"topic-{number % topics}", 0): number % 100})


def row_makers() -> dict[str, RowMaker]:
    stage = _Stage()
    return {
        "pages": partial(_page_rows, stage=stage),
        "clients of the broker": partial(_client_rows, stage=stage),
        "search": _search_rows,
        "live tail": partial(_tail_rows, stage=stage),
    }


# --- pages --------------------------------------------------------------------------------------


def _page_rows(context: Context, stage: _Stage) -> list[Row]:
    size = f"{context.pick(10_000, 1_000):,} partitions, {_GROUPS:,} groups"
    with stage.console(context) as console:
        return [
            measure_row(
                f"page {path}, {size}",
                partial(_page_ms, console, path),
                runs=context.runs,
                durability="-",
                unit="ms",
                target=Target(bound=PAGE_MS),
                is_lower_better=True,
                note="median of 40 views, from the request to the last byte, new connections",
            )
            for path in _PAGES
        ]


def _page_ms(console: ConsoleServer, path: str) -> float:
    taken_s = []
    for _ in range(_VIEWS):
        started = time.perf_counter()
        console.page(path)
        taken_s.append(time.perf_counter() - started)
    return sorted(taken_s)[_VIEWS // 2] * 1000


# --- what the clients of the broker notice ------------------------------------------------------


def _client_rows(context: Context, stage: _Stage) -> list[Row]:
    """A client that sends one record at a time, without a console and beside one with a viewer."""
    server = stage.server(context)
    seconds = float(context.pick(20, 5))

    def with_console() -> float:
        with stage.console(context) as console, _viewer(console):
            return _p99_ms(server, seconds)

    subjects: dict[str, Callable[[], float]] = {
        "Cordwood": with_console,
        "without a console": partial(_p99_ms, server, seconds),
    }
    figures = measure_in_turns(subjects, runs=context.runs)
    return [
        Row(
            title="p99 of a produce while a viewer loads a page every second",
            durability=OS,
            unit="ms",
            cordwood=samples("Cordwood", figures["Cordwood"]),
            limit=samples("without a console", figures["without a console"]),
            target=Target(bound=P99_RATIO, is_ratio=True),
            is_lower_better=True,
            note="the console looks every two seconds; nothing is pinned to a core",
        )
    ]


@contextmanager
def _viewer(console: ConsoleServer) -> Iterator[None]:
    """Loads one page after the other, one a second."""
    is_over = threading.Event()

    def view() -> None:
        number = 0
        while not is_over.wait(1.0):
            console.page(_PAGES[number % len(_PAGES)])
            number += 1

    thread = threading.Thread(target=view, name="viewer")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _p99_ms(server: BrokerServer, seconds: float) -> float:
    taken_ms: list[float] = []
    with new_topic(server, OS) as topic, closing(connect(server.port)) as connection:
        frame = _frame(topic, [bytes(100)])
        until = time.perf_counter() + seconds
        while (started := time.perf_counter()) < until:
            connection.sendall(frame.data)
            _check(bytes(receive_frame(connection)), topic)
            taken_ms.append((time.perf_counter() - started) * 1000)
            time.sleep(_PAUSE_S)
    return sorted(taken_ms)[len(taken_ms) * 99 // 100]


def _frame(topic: str, values: list[bytes]) -> ProduceFrame:
    size = sum(map(len, values)) + 100 * len(values)
    (frame,) = produce_frames(topic, values, batch_bytes=size, now_ms=int(time.time() * 1000))
    return frame


def _check(answer: bytes, topic: str) -> None:
    if produce_error(answer, topic):
        raise AnswerError(f"Produce was refused: {answer[:200]!r}")


# --- search -------------------------------------------------------------------------------------


def _search_rows(context: Context) -> list[Row]:
    records = context.pick(1_000_000, 100_000)
    path = fresh_path(context.directory, "searched")
    size = _fill_with_json(path, records)
    with console_of(str(path), fresh_path(context.directory, "searcher")) as console:
        return [
            measure_row(
                f"search {query}",
                partial(_searched_mb_per_cpu_s, console, query, size),
                runs=context.runs,
                durability="-",
                unit="MB/s",
                target=Target(bound=SEARCH_MB_PER_S),
                note=f"{records:,} records of JSON, to the end; per second of processor time",
            )
            for query in ("value.id = -1", 'value.customer.name = "nobody"', "nowhere")
        ]


def _fill_with_json(path: Path, records: int) -> int:
    """Returns the bytes of keys and values."""
    size = 0
    with cordwood.open(path, config={"durability": "os"}) as store:
        topic = store.create_topic("orders")
        for first in range(0, records, 10_000):
            batch = [_order(number) for number in range(first, first + 10_000)]
            topic.append_many(batch)
            size += sum(len(key) + len(value) for key, value in batch)
    return size


def _order(number: int) -> tuple[bytes, bytes]:
    value = {
        "id": number,
        "status": ("new", "paid", "sent")[number % 3],
        "amount": number % 9_973 / 10,
        "customer": {"name": f"name {number % 5_000}", "city": "Springfield"},
        "note": "leave it at the door, or with the neighbours on the left",
    }
    return b"key-%d" % (number % 5_000), json.dumps(value).encode()


def _searched_mb_per_cpu_s(console: ConsoleServer, query: str, size: int) -> float:
    before = tree_cpu_seconds(console.pid)
    console.page(f"/topics/orders/find?q={quote(query)}")
    after = tree_cpu_seconds(console.pid)
    if before is None or after is None:
        raise AnswerError("this system does not tell the processor time of a process")
    return size / 1e6 / (after - before)


# --- live tail ----------------------------------------------------------------------------------


def _tail_rows(context: Context, stage: _Stage) -> list[Row]:
    server = stage.server(context)
    seconds = float(context.pick(600, 30))
    with (
        new_topic(server, OS) as topic,
        stage.console(context) as console,
        _in_background(partial(_feed, server, topic)),
        _in_background(partial(_follow, console, topic)),
    ):
        time.sleep(_SETTLED_S)
        used_mb = [tree_resident_mb(console.pid) or 0.0]
        for _ in range(_LOOKS):
            time.sleep(seconds / _LOOKS)
            used_mb.append(tree_resident_mb(console.pid) or 0.0)
    return [
        Row(
            title="memory that a live tail adds in the second half of its time",
            durability="-",
            unit="MB",
            cordwood=samples("Cordwood", [max(used_mb[-1] - used_mb[_LOOKS // 2], 0.0)]),
            target=Target(bound=GROWTH_MB),
            is_lower_better=True,
            note=(
                f"{_TAIL_RATE:,} records a second for {seconds:.0f} s; MB at equal distances: "
                + ", ".join(f"{used:.0f}" for used in used_mb)
            ),
        )
    ]


@contextmanager
def _in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """`work` until the `with` ends. What it raises is raised again here."""
    is_over = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(is_over)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def _feed(server: BrokerServer, topic: str, is_over: threading.Event) -> None:
    """Small batches at an even rate."""
    due = time.perf_counter()
    number = 0
    with closing(connect(server.port)) as connection:
        while not is_over.wait(max(due - time.perf_counter(), 0)):
            values = [_order(number + each)[1] for each in range(_TAIL_BATCH)]
            connection.sendall(_frame(topic, values).data)
            _check(bytes(receive_frame(connection)), topic)
            number += _TAIL_BATCH
            due += _TAIL_BATCH / _TAIL_RATE


def _follow(console: ConsoleServer, topic: str, is_over: threading.Event) -> None:
    """Read the stream of the live tail, as a browser does."""
    with closing(http.client.HTTPConnection(HOST, console.port, timeout=60)) as connection:
        connection.request("GET", f"/topics/{topic}/tail")
        answer = connection.getresponse()
        if answer.status != 200:
            raise AnswerError(f"the tail was answered with {answer.status}")
        while not is_over.is_set():
            if not answer.read1(1 << 16):
                raise AnswerError("the console ended the live tail")
