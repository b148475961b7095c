"""``cordwood produce``, on every kind of target."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.log.topics.topic import partition_for
from fakes.command_line import CommandLine, CommandTarget


def records(target: CommandTarget, topic: str = "orders") -> list[list[cordwood.Record]]:
    """What is in each partition."""
    with target.open_store() as store:
        return [list(log.read()) for log in store.topic(topic).partitions]


@pytest.fixture
def orders(target: CommandTarget) -> str:
    with target.open_store() as store:
        store.create_topic("orders", partitions=3)
    return "orders"


def test_each_line_is_a_value(on_target: CommandLine, target: CommandTarget, orders: str) -> None:
    ran = on_target.ok("produce", orders, stdin=b"one\ntwo\r\n\nlast without an end")

    found = [record for part in records(target) for record in part]
    assert [r.value for r in found] == [b"one", b"two", b"", b"last without an end"]
    assert all(r.key is None and not r.headers for r in found)
    assert ran.err.startswith("appended 4 records to orders (partition ")
    assert ran.out == ""


def test_keys_are_before_the_separator_and_choose_the_partition(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    lines = [f"user{number}:paid:{number}" for number in range(50)]

    on_target.ok("produce", orders, "-K", ":", stdin="\n".join(lines).encode())

    for number, part in enumerate(records(target)):
        assert part
        for record in part:
            assert record.key is not None
            assert partition_for(record.key, 3) == number
            assert record.value == b"paid:" + record.key.removeprefix(b"user")


def test_json_says_everything_about_a_record(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    lines = [
        {"key": "a", "value": "x", "timestamp": 1_700_000_000_000, "partition": 2},
        {"key": None, "value": {"amount": 1.5}, "partition": 2, "headers": {"src": "web"}},
        {"key_base64": "/wA=", "value_base64": "/w==", "partition": 2, "offset": 7, "topic": "t"},
        {"key": "a", "value": None, "partition": 2, "headers": [{"name": "n", "value": None}]},
    ]

    on_target.ok("produce", orders, "--json", stdin="\n".join(map(json.dumps, lines)).encode())

    _, _, found = records(target)
    assert [(r.key, r.value, tuple(r.headers)) for r in found] == [
        (b"a", b"x", ()),
        (None, b'{"amount":1.5}', (("src", b"web"),)),
        (b"\xff\x00", b"\xff", ()),
        (b"a", None, (("n", None),)),
    ]
    assert found[0].timestamp_ms == 1_700_000_000_000


def test_the_command_line_says_what_lines_do_not(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    on_target.ok(
        "produce",
        orders,
        "-p",
        "1",
        "-H",
        "src=cli",
        "-H",
        "flag",
        "--timestamp",
        "2026-01-02T03:04:05Z",
        "--null-as",
        "NULL",
        "-K",
        "=",
        stdin=b"a=1\nNULL=2\nb=NULL\n",
    )

    _, found, _ = records(target)
    assert [(r.key, r.value) for r in found] == [(b"a", b"1"), (None, b"2"), (b"b", None)]
    assert {tuple(r.headers) for r in found} == {(("src", b"cli"), ("flag", None))}
    assert {r.timestamp_ms for r in found} == {1_767_323_045_000}


def test_a_file_is_read_and_the_summary_is_json_on_request(
    on_target: CommandLine, target: CommandTarget, orders: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(10_000)))

    ran = on_target.ok("produce", orders, str(file), "-p", "0", "--json-summary")

    first, _, _ = records(target)
    assert [r.value for r in first] == [b"%d" % number for number in range(10_000)]
    place = {"partition": 0, "first_offset": 0, "next_offset": 10_000, "records": 10_000}
    assert ran.objects == [{"topic": "orders", "records": 10_000, "partitions": [place]}]
    assert ran.err == ""


def test_success_can_be_silent(on_target: CommandLine, orders: str) -> None:
    ran = on_target.ok("produce", orders, "-q", stdin=b"x\n")

    assert (ran.out, ran.err) == ("", "")


def test_nothing_is_appended_of_nothing(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("produce", orders).err == "appended 0 records to orders\n"


def test_more_than_fits_a_batch_goes_in_many(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    value = b"x" * 100_000

    on_target.ok("produce", orders, "-p", "0", stdin=(value + b"\n") * 100)

    first, _, _ = records(target)
    assert [r.value for r in first] == [value] * 100


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (["none"], b"x", 1, "no topic named 'none'"),
        (["orders", "-p", "3"], b"x", 1, "partitions 0 to 2, not 3"),
        (["orders", "-K", ":"], b"a:1\nb\n", 1, "line 2: no ':' between key and value"),
        (["orders", "-K", ""], b"", 2, "--key-separator"),
        (["orders", "--json"], b'{"value": "x"}\n{', 1, "line 2 is not a record"),
        (["orders", "--json"], b"[]", 1, "line 1 is not a record: not a JSON object"),
        (["orders", "--json"], b'{"key": "x"}', 1, 'no "value"'),
        (["orders", "--json"], b'{"value": "x", "partition": -1}', 1, '"partition" is -1'),
        (["orders", "--json"], b'{"value": "x", "headers": 5}', 1, '"headers" must be'),
        (["orders", "--json"], b'{"value_base64": "?"}', 1, "line 1 is not a record"),
        (["orders", "--json", "-K", ":"], b"", 2, "--json excludes --key, --key-separator"),
        (["orders", "--timestamp", "soon"], b"x", 2, "--timestamp = soon"),
        (["orders"], b"x" * 2_000_000, 1, "larger than max.message.bytes"),
        (["changes"], b"x", 1, "a compacted topic needs a key"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_what_cannot_be_appended_is_told_in_one_line(
    on_target: CommandLine,
    target: CommandTarget,
    orders: str,
    arguments: list[str],
    stdin: bytes,
    code: int,
    message: str,
) -> None:
    with target.open_store() as store:
        store.create_topic("changes", config={"cleanup.policy": "compact"})

    ran = on_target("produce", *arguments, stdin=stdin)

    assert ran.code == code, ran
    assert ran.err.startswith("cordwood: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not any(records(target))


def test_what_consume_writes_as_json_produce_reads(
    on_target: CommandLine, target: CommandTarget, orders: str
) -> None:
    with target.open_store() as store:
        store.create_topic("copy", partitions=3)
        topic = store.topic("orders")
        topic.append(b"\xff\x00", key=b"k", headers=[("a", b"1"), ("a", None), ("b", b"\xfe")])
        topic.append(None, key="schlüssel".encode(), timestamp_ms=1_700_000_000_000)
        topic.append(b"wert\n", partition=2)

    dumped = on_target.ok("consume", "orders", "--json")
    on_target.ok("produce", "copy", "--json", stdin=dumped.out.encode())

    assert records(target, "copy") == records(target)


def test_lines_are_appended_as_they_come(tmp_path: Path) -> None:
    """A slow writer's lines are there before it ends; others who ask for changes are served."""
    data = tmp_path / "data"
    with cordwood.open(data) as store:
        store.create_topic("orders")
    command = [sys.executable, "-m", "cordwood", "produce", "orders", "--at", str(data), "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"first\nhalf a li")
            process.stdin.flush()
            with cordwood.open(data, read_only=True) as store:
                log = store.topic("orders").partition(0)
                assert log.source.wait_beyond(log.start_offset, 60)
                assert [r.value for r in log.read()] == [b"first"]

                from cordwood.library import request_change
                from cordwood.log.inbox.topic_change import CreateTopic

                request_change(data, CreateTopic(topic="other"))

                process.stdin.write(b"ne\n")
                process.stdin.close()
                assert process.wait(60) == 0
                assert [r.value for r in log.read()] == [b"first", b"half a line"]
        finally:
            process.kill()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_progress_bar_is_shown_on_a_terminal(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "lines.txt"
    file.write_bytes(b"x\n" * 1000)
    with cordwood.open(data) as store:
        store.create_topic("orders")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "cordwood", "produce", "orders", str(file), "--at", str(data)]

    process = subprocess.run(command, stderr=theirs, check=False, timeout=60)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)

    assert process.returncode == 0
    assert b"lines.txt to orders" in shown
    assert b"appended 1,000 records" in shown
