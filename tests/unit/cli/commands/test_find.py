"""``cordwood find``, on every kind of target."""

import pytest

from cordwood.cli.at.access import files_of, local_files_of
from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, parse_target
from cordwood.errors import LogError
from fakes.command_line import CommandLine, CommandTarget


@pytest.fixture(params=["true", "false"], ids=["key index", "no index"])
def orders(target: CommandTarget, request: pytest.FixtureRequest) -> str:
    config = {"key.index": request.param, "segment.records": 20}
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=3, config=config)
        for version in range(3):
            topic.append_many([(b"k%d" % i, b"v%d of %d" % (version, i)) for i in range(50)])
        topic.append(None, key=b"k7")
        elsewhere = [n for n in range(3) if not _has(topic.partition(n), b"odd")]
        topic.append(b"by hand", key=b"odd", partition=elsewhere[0])
        topic.append(b"bytes", key=b"\xff\x00")
    return "orders"


def _has(log: object, key: bytes) -> bool:
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.topics.topic import partition_for

    assert isinstance(log, PartitionLog)
    return partition_for(key, 3) == log.partition


def test_the_newest_record_of_a_key_is_found(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("find", orders, "k3", "--format", "%v\\n").lines == ["v2 of 3"]


def test_a_tombstone_is_a_record_too(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("find", orders, "k7").lines[0].endswith("(deleted)")

    [found] = on_target.ok("find", orders, "k7", "--json").objects
    assert (found["key"], found["value"]) == ("k7", None)


def test_all_records_of_a_key_are_found(on_target: CommandLine, orders: str) -> None:
    found = on_target.ok("find", orders, "k7", "--history", "--json").objects

    assert [record["value"] for record in found] == ["v0 of 7", "v1 of 7", "v2 of 7", None]


def test_a_key_that_was_put_elsewhere_is_found(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("find", orders, "odd", "--format", "%v\\n").lines == ["by hand"]


def test_a_key_may_be_bytes(on_target: CommandLine, orders: str) -> None:
    assert on_target.ok("find", orders, "0xff00", "--format", "%v\\n").lines == ["bytes"]


@pytest.mark.parametrize("history", [[], ["--history"]])
def test_a_key_that_nobody_has_is_told_with_exit_code_1(
    on_target: CommandLine, orders: str, history: list[str]
) -> None:
    ran = on_target("find", orders, "nobody", *history)

    assert ran.code == 1
    assert ran.err == "cordwood: topic orders has no record with key nobody\n"
    assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none", "k"], 1, "no topic named 'none'"),
        (["orders", "0xz"], 2, "KEY = 0xz: must be 0x and hex digits"),
        (["orders", "k", "-p", "3"], 1, "partitions 0 to 2, not 3"),
        (["orders", "k", "--json", "--format", "%v"], 2, "exclude each other"),
    ],
)
def test_what_cannot_be_looked_for_is_told_in_one_line(
    on_target: CommandLine, orders: str, arguments: list[str], code: int, message: str
) -> None:
    ran = on_target("find", *arguments)

    assert (ran.code, ran.err.count("\n")) == (code, 1), ran
    assert message in ran.err


def test_without_its_files_a_broker_is_read(
    on_target: CommandLine, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.cli.at.access.local_files_of", lambda target: None)

    assert on_target.ok("find", orders, "k3", "--format", "%v\\n").lines == ["v2 of 3"]
    history = on_target.ok("find", orders, "k3", "--history", "--format", "%v\\n").lines
    assert history == ["v0 of 3", "v1 of 3", "v2 of 3"]


def test_the_files_of_a_broker_on_this_machine_are_known(target: CommandTarget) -> None:
    with target.open_store() as store:
        expected = DirectoryTarget(paths=tuple(store.data_dirs))

    assert files_of(parse_target(target.at)) == expected


def test_files_that_are_not_here_are_told(
    target: CommandTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parse_target(target.at)
    if not isinstance(found, BrokerTarget):
        pytest.skip("a directory is here")
    monkeypatch.setattr("cordwood.cli.at.access._cluster_of", lambda path: "another")

    assert local_files_of(found) is None
    with pytest.raises(LogError, match="run it on the broker's machine with --at DIR"):
        files_of(found)
