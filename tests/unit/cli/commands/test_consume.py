"""``cordwood consume``, on every kind of target."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer

import cordwood
from cordwood.cli.commands.consume import consume
from fakes.command_line import CommandLine, CommandTarget

START_MS = 1_700_000_000_000
DEADLINE_S = 60.0


@pytest.fixture
def orders(target: CommandTarget) -> str:
    """Ten records each in three partitions, a second apart, in turn; partition 0 starts at 2."""
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=3)
        for number in range(3):
            topic.append_many(
                [
                    cordwood.Record(
                        f"v{3 * i + number}".encode(),
                        key=f"k{i % 2}".encode(),
                        timestamp_ms=START_MS + 1000 * (3 * i + number),
                    )
                    for i in range(10)
                ],
                partition=number,
            )
        topic.partition(0).delete_before(2)
    return "orders"


def values(numbers: Iterator[int] | range | list[int]) -> list[str]:
    return [f"v{number}" for number in numbers]


ALL = [number for number in range(30) if number not in (0, 3)]


def test_partitions_are_merged_by_time(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("consume", orders).lines == values(ALL)


def test_a_partition_keeps_its_order_whatever_its_times(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        topic = store.create_topic("late", partitions=2)
        for number, times in enumerate([[5, 1, 9], [2, 7]]):
            topic.append_many(
                [cordwood.Record(b"%d" % t, timestamp_ms=START_MS + t) for t in times],
                partition=number,
            )

    assert on_target.ok("consume", "late").lines == ["2", "5", "1", "7", "9"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-n", "4"], values([1, 2, 4, 5])),
        (["-n", "0"], []),
        (["-p", "1"], values(range(1, 30, 3))),
        (["-p", "1", "-p", "2", "-n", "3"], values([1, 2, 4])),
        (["-p", "1", "--from", "8"], values([25, 28])),
        (["-p", "1", "--from", "3", "--to", "5"], values([10, 13])),
        (["-p", "1", "--to", "2"], values([1, 4])),
        (["--from", "end"], []),
        (["--from", "-1"], values([27, 28, 29])),
        (["--from", "-100", "-n", "2"], values([1, 2])),
        (["--from", f"@{START_MS + 26_500}"], values([27, 28, 29])),
        (["--from", str(START_MS + 27_000)], values([27, 28, 29])),
        (["--from", "2023-11-14T22:13:45Z", "--to", "2023-11-14T22:13:48Z"], values([25, 26, 27])),
        (["--from", "-10m"], []),
        (["--to", "-10m", "-n", "1"], values([1])),
        (["--from", "latest", "--to", "beginning"], []),
        (["--key", "k1", "-p", "2"], values(range(5, 30, 6))),
        (["--key", "none"], []),
        (["--grep", "v2.$"], values(range(20, 30))),
        (["--grep", "^k0$", "-n", "2"], values([1, 2])),
        (["--grep", "v2.$", "-n", "3", "-p", "0"], values([21, 24, 27])),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_only_what_is_asked_for_is_shown(
    on_target: CommandLine, orders: str, arguments: list[str], expected: list[str]
) -> None:
    ran = on_target.ok("consume", orders, *arguments)

    assert ran.lines == expected
    assert ran.err == ""


def test_an_offset_that_is_gone_is_told(on_target: CommandLine, orders: str) -> None:
    ran = on_target.ok("consume", orders, "-p", "0", "--from", "0", "-n", "1")

    assert ran.lines == ["v6"]
    assert ran.err == "cordwood: orders-0: offset 0 no longer exists, starting at 2\n"


def test_an_offset_past_the_end_is_told(on_target: CommandLine, orders: str) -> None:
    ran = on_target.ok("consume", orders, "-p", "1", "--from", "11")

    assert ran.lines == []
    assert ran.err == "cordwood: orders-1: offset 11 does not exist yet, using end 10\n"


def test_a_format_chooses_what_is_shown_of_a_record(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders")
        topic.append(b"\xff", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp_ms=START_MS)
        topic.append(None, timestamp_ms=START_MS + 1)

    ran = on_target.ok(
        "consume",
        "orders",
        "--format",
        "%t/%p/%o %k %T %h %K %S%%\\x21\\t|\\n",
        "--null-as",
        "NULL",
    )

    assert ran.lines == [
        "orders/0/0 k 1700000000000 a=1,b=NULL 1 1%!\t|",
        "orders/0/1 NULL 1700000000001  -1 -1%!\t|",
    ]


def test_json_has_everything_about_a_record(on_target: CommandLine, target: CommandTarget) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders")
        topic.append(b"\xff", key="ä".encode(), headers=[("a", b"\xfe")], timestamp_ms=START_MS)
        topic.append(None, key=b"k", timestamp_ms=START_MS)

    assert on_target.ok("consume", "orders", "--json").objects == [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 0,
            "timestamp": START_MS,
            "key": "ä",
            "value_base64": "/w==",
            "headers": [{"name": "a", "value_base64": "/g=="}],
        },
        {
            "topic": "orders",
            "partition": 0,
            "offset": 1,
            "timestamp": START_MS,
            "key": "k",
            "value": None,
            "headers": [],
        },
    ]


def test_keys_are_shown_with_a_separator(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("consume", orders, "-K", "%", "-n", "1").lines == ["k0%v1"]


def test_compacted_and_compressed_topics_are_read(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        topic = store.create_topic(
            "changes", config={"cleanup.policy": "compact", "compression.type": "zstd"}
        )
        for version in range(5):
            topic.append_many([(b"k%d" % i, b"%d" % version) for i in range(100)])
        store.compact("changes", force=True)
        topic.append(b"last", key=b"k")

    assert on_target.ok("consume", "changes").lines == ["4"] * 100 + ["last"]


def test_many_partitions_are_merged_too(on_target: CommandLine, target: CommandTarget) -> None:
    count = 40
    with target.open_store() as store:
        topic = store.create_topic("wide", partitions=count)
        for number in range(count):
            for batch in range(3):
                topic.append_many(
                    [
                        cordwood.Record(b"%d" % t, timestamp_ms=START_MS + t)
                        for t in (batch * count + number, 1000 + batch * count + number)
                    ][: 1 if batch < 2 else 2],
                    partition=number,
                )

    shown = [int(line) for line in on_target.ok("consume", "wide").lines]

    assert shown == [*range(3 * count), *range(1000 + 2 * count, 1000 + 3 * count)]


# --- groups -----------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_stopped(on_target: CommandLine, orders: str) -> None:
    first = on_target.ok("consume", orders, "-p", "1", "-g", "mine", "-n", "3")
    second = on_target.ok("consume", orders, "-p", "1", "-g", "mine", "-n", "3")
    rest = on_target.ok("consume", orders, "-p", "1", "-g", "mine")
    nothing = on_target.ok("consume", orders, "-p", "1", "-g", "mine")

    shown = [*first.lines, *second.lines, *rest.lines]
    assert shown == values(range(1, 30, 3))
    assert nothing.lines == []


def test_what_did_not_match_is_committed_too(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    on_target.ok("consume", orders, "-g", "mine", "--grep", "v7$")

    with target.open_store() as store:
        committed = store.group("mine").committed()
    assert committed == {("orders", number): 10 for number in range(3)}


def test_a_group_is_told_what_was_deleted_behind_its_back(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    with target.open_store() as store:
        store.group("mine").commit({("orders", 0): 1})

    ran = on_target.ok("consume", orders, "-p", "0", "-g", "mine", "-n", "1")

    assert ran.lines == ["v6"]
    assert "offset 1 no longer exists" in ran.err


def test_a_group_that_has_members_is_not_disturbed(
    cli: CommandLine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with cordwood.Broker(topics=["orders"]) as broker:
        broker.store.topic("orders").append(b"x")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "mine",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe(["orders"])
            assert consumer.poll(DEADLINE_S) is not None

            ran = cli("consume", "orders", "-g", "mine", "--at", broker.bootstrap_servers)
        finally:
            consumer.close()

    assert ran.code == 1
    assert "group mine has 1 active member; stop its members" in ran.err


# --- following --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """``cordwood consume orders`` in a process of its own."""

    process: "subprocess.Popen[str]"
    out: IO[str]
    err: IO[str]


@contextmanager
def consuming(at: str, *arguments: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "cordwood", "consume", "orders", "--at", at, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            yield Running(process=process, out=process.stdout, err=process.stderr)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_shows_what_comes_until_interrupted_and_commits(
    target: CommandTarget, orders: str, number: signal.Signals
) -> None:
    if target.kind == "directory":
        pytest.skip("nobody writes to it")
    with target.open_store() as store:
        topic = store.topic(orders)
        with consuming(target.at, "--follow", "--from", "-1", "-g", "mine") as running:
            assert {running.out.readline() for _ in range(3)} == {"v27\n", "v28\n", "v29\n"}
            for n in range(5):
                topic.append(b"new%d" % n, partition=n % 3)
                assert running.out.readline() == f"new{n}\n"

            running.process.send_signal(number)

            assert running.process.wait(DEADLINE_S) == 0
            assert running.err.read() == ""
        assert store.group("mine").committed() == {
            ("orders", 0): 12,
            ("orders", 1): 12,
            ("orders", 2): 11,
        }


def test_following_begins_at_the_end_and_stops_after_so_many(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("orders")
        topic.append(b"old")
        with consuming(str(tmp_path / "data"), "--follow", "-n", "2") as running:
            deadline_s = time.monotonic() + DEADLINE_S
            while running.process.poll() is None and time.monotonic() < deadline_s:
                topic.append(b"new")
                topic.partition(0).source.wait_beyond(topic.partition(0).end_offset, 0.05)

            assert running.process.wait(DEADLINE_S) == 0
            assert running.out.read().splitlines() == ["new", "new"]


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders").append_many([(None, b"x" * 1000)] * 10_000)
    with consuming(str(tmp_path / "data")) as running:
        running.out.readline()
        running.out.close()

        assert running.process.wait(DEADLINE_S) == 0
        assert running.err.read() == ""


def test_following_survives_a_restart_of_the_broker_and_reads_new_partitions(
    tmp_path: Path,
) -> None:
    with (
        cordwood.Broker(tmp_path / "data", topics={"orders": 1}) as broker,
        consuming(broker.bootstrap_servers, "--follow", "--from", "beginning") as running,
    ):
        broker.store.topic("orders").append(b"before")
        assert running.out.readline() == "before\n"

        broker.restart()
        broker.store.alter_topic("orders", partitions=2)
        broker.store.topic("orders").append(b"after", partition=1)

        assert running.out.readline() == "after\n"
        assert "trying again" in running.err.readline()


def test_records_deleted_while_they_are_waited_for_are_told(tmp_path: Path) -> None:
    from cordwood.cli.at.directory_reader import DirectoryReader
    from cordwood.cli.records.record_stream import RecordStream

    said: list[str] = []
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("orders").partition(0)
        log.append_many([(None, b"%d" % i) for i in range(10)])
        with cordwood.open(tmp_path / "data", read_only=True) as reading:
            reader = DirectoryReader(reading, "orders")
            stream = RecordStream(reader, {0: 3}, said.append)
            log.delete_before(8)

            until = [r.value for rows in stream.until({0: 10}) for _, r in rows.rows]
            following = stream.follow(chooses_partitions=False)
            next(following)
            followed = [r.value for _, r in next(following).rows]

    assert until == followed == [b"8", b"9"]
    assert said == ["orders-0: offsets 3 to 7 were deleted before they could be read"] * 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none"], 1, "no topic named 'none'"),
        (["orders", "-p", "5"], 1, "partitions 0 to 2, not 5"),
        (["orders", "--from", "tomorrow"], 2, "--from = tomorrow: must be beginning, end"),
        (["orders", "--to", "x"], 2, "--to = x: must be beginning, end"),
        (["orders", "--grep", "("], 2, "--grep = (: is not a regular expression"),
        (["orders", "--format", "%q"], 2, "--format = %q: unknown token %q; known are %k"),
        (["orders", "--format", "%v", "--json"], 2, "exclude each other"),
        (["orders", "--follow", "--to", "5"], 2, "--follow and --to exclude each other"),
        (["orders", "--group", ""], 2, "--group = : must not be empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_shown_is_told_in_one_line(
    on_target: CommandLine, orders: str, arguments: list[str], code: int, message: str
) -> None:
    ran = on_target("consume", *arguments)

    assert ran.code == code, ran
    assert ran.err.startswith("cordwood: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_a_terminal_is_not_steered_by_what_is_in_a_record(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("topics", "create", "orders")
    cli.ok("produce", "orders", stdin="\x1b[2Jü\xff\n".encode("latin-1"))
    cli.ok("produce", "orders", stdin="\x1b[2Jü\n".encode())
    out = TerminalOutput()
    monkeypatch.setattr(sys, "stdout", out)

    consume("orders", at="data")

    assert out.buffer.getvalue().decode().splitlines() == ["\\x1b[2J\\xfc\\xff", "\\x1b[2Jü"]


class TerminalOutput:
    def __init__(self) -> None:
        self.buffer = io.BytesIO()

    def isatty(self) -> bool:
        return True


def test_json_lines_are_json(on_target: CommandLine, orders: str) -> None:
    for line in on_target.ok("consume", orders, "--json").lines:
        assert json.loads(line)["topic"] == "orders"


def damaged_store(path: Path) -> None:
    """Two partitions of 40 records in segments of ten; four batches of partition 0 are damaged."""
    with cordwood.open(path) as store:
        topic = store.create_topic("orders", partitions=2, config={"segment.records": 10})
        for number in range(80):
            topic.append(b"v%02d" % number, partition=number % 2, timestamp_ms=START_MS + number)
    segment = path / "orders-0" / "00000000000000000010.log"
    content = bytearray(segment.read_bytes())
    size = len(content) // 10
    for batch in (0, 4, 5, 9):
        content[batch * size + size - 2] ^= 0xFF
    segment.write_bytes(content)


DAMAGED = [20, 28, 30, 38]  # records number n of partition 0 have offset n / 2


@pytest.mark.parametrize("partitions", [[], ["-p", "0"]])
def test_damaged_records_are_skipped_on_request_and_named(
    cli: CommandLine, tmp_path: Path, partitions: list[str]
) -> None:
    damaged_store(tmp_path / "data")
    numbers = range(0, 80, 2 if partitions else 1)

    stopped = cli("consume", "orders", *partitions)
    ran = cli.ok("consume", "orders", "--skip-damaged", *partitions)

    assert stopped.code == 1
    assert "--skip-damaged" in stopped.err
    assert ran.lines == [f"v{n:02d}" for n in numbers if n not in DAMAGED]
    assert [line.partition(": /")[0] for line in ran.err.splitlines()] == [
        f"cordwood: orders-0: skipping {offsets}"
        for offsets in ("offset 10", "offsets 14 to 15", "offset 19")
    ]


def test_damaged_records_are_skipped_while_following(tmp_path: Path) -> None:
    damaged_store(tmp_path / "data")
    command = [
        sys.executable,
        "-m",
        "cordwood",
        "consume",
        "orders",
        "--at",
        str(tmp_path / "data"),
    ]

    finished = subprocess.run(
        [*command, "--skip-damaged", "--follow", "--from", "beginning", "-n", "76"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )

    assert sorted(finished.stdout.split()) == [f"v{n:02d}" for n in range(80) if n not in DAMAGED]


def test_an_unknown_topic_is_answered_with_the_nearest_names(
    on_target: CommandLine, orders: str
) -> None:
    for arguments in (["consume", "oders"], ["produce", "order"], ["topics", "describe", "Orders"]):
        ran = on_target(*arguments)

        assert ran.code == 1
        assert "did you mean orders?" in ran.err
    assert "did you mean" not in on_target("consume", "payments").err
