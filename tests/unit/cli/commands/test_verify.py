"""``cordwood verify``, on every kind of target."""

import threading
from pathlib import Path
from uuid import UUID

import pytest

import cordwood
from cordwood.cli.commands.verify import problem_line
from cordwood.clock import SystemClock
from cordwood.library import open_writer
from cordwood.log.inspection.segment_check import SegmentProblem
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.topic_hosting import HostedTopic
from fakes.command_line import CommandLine, CommandTarget

CONFIG = {"segment.records": 20, "durability": "os", "index.interval.bytes": 100}


@pytest.fixture
def orders(target: CommandTarget) -> str:
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=2, config=CONFIG)
        for n in range(100):
            topic.append(b"v%d" % n, key=b"k%d" % n, partition=n % 2)
    return "orders"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store that nobody holds."""
    path = tmp_path / "data"
    with cordwood.open(path) as store:
        topic = store.create_topic("orders", config=CONFIG)
        store.create_topic("users", config=CONFIG).append(b"v")
        for n in range(100):
            topic.append(b"v%d" % n, key=b"k%d" % n)
    return path


def test_a_sound_store_is_sound_and_all_of_it_is_counted(
    on_target: CommandLine, orders: str
) -> None:
    [summary] = on_target.ok("verify", "orders", "--json").objects

    assert summary["result"] == "sound"
    assert (summary["topics"], summary["partitions"]) == (1, 2)
    assert (summary["segments"], summary["records"]) == (6, 100)
    assert summary["bytes"] > 0
    assert summary["problems"] == 0


def test_all_topics_are_checked_where_none_is_named(on_target: CommandLine, orders: str) -> None:
    lines = on_target.ok("verify", "--jobs", "3").lines

    assert lines[0].split() == ["result", "sound"]
    assert lines[1].split() == ["problems", "0"]


def test_a_store_is_checked_while_it_is_written(cli: CommandLine, tmp_path: Path) -> None:
    config = {**CONFIG, "retention.segments": 3, "file.delete.delay.ms": 0}
    stop = threading.Event()
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("orders", config=config)

        def write() -> None:
            while not stop.is_set():
                topic.append_many([(b"k%d" % n, b"v") for n in range(50)])
                store.maintain()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            results = [cli("verify", "--json") for _ in range(5)]
        finally:
            stop.set()
            writer.join()

    assert [ran.code for ran in results] == [0] * 5, results


def test_damage_is_named_with_file_position_and_offsets(cli: CommandLine, data: Path) -> None:
    log = data / "orders-0" / "00000000000000000020.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 0xFF
    log.write_bytes(content)

    ran = cli("verify")
    as_json = cli("verify", "--json")

    assert (ran.code, as_json.code) == (1, 1)
    assert ran.lines[0] == f"{log}: byte 0, offset 20: the checksum does not match"
    problem, summary = as_json.objects
    assert (problem["file"], problem["position"]) == (str(log), 0)
    assert (problem["offset"], problem["next_offset"]) == (20, 21)
    assert (summary["result"], summary["problems"]) == ("damaged", 1)


def test_only_the_topics_named_are_checked(cli: CommandLine, data: Path) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"?")

    assert cli("verify", "orders").code == 1
    assert cli("verify", "users").code == 0


def test_files_that_are_missing_are_a_problem(cli: CommandLine, data: Path) -> None:
    for path in (data / "orders-0").glob("00000000000000000020.*"):
        path.unlink()

    ran = cli("verify")

    assert ran.code == 1
    assert "offsets from 20 to 40 are missing" in ran.out


def test_a_partition_that_is_not_there_is_a_problem(cli: CommandLine, data: Path) -> None:
    with cordwood.open(data) as store:
        store.create_topic("wide", partitions=2)
    for path in (data / "wide-1").iterdir():
        path.unlink()
    (data / "wide-1").rmdir()

    ran = cli("verify")

    assert ran.code == 1
    assert "wide-1: its files are missing from the data directories" in ran.lines


def test_a_directory_that_kafka_wrote_is_sound(cli: CommandLine) -> None:
    golden = Path(__file__).parents[3] / "golden" / "kafka-4.3" / "data"

    [summary] = cli.ok("verify", "--at", str(golden), "--json").objects

    assert summary["segments"] > 10
    assert summary["records"] > 100


def test_archived_segments_are_looked_at_when_asked(cli: CommandLine, tmp_path: Path) -> None:
    url = (tmp_path / "archive").as_uri()
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic(
            "orders", config={**CONFIG, "archive.url": url, "local.retention.bytes": 1}
        )
        for n in range(50):
            topic.append(b"v%d" % n)
        topic.partition(0).sync()  # only what is durable is archived
        store.archive_now()
        topic.partition(0).upkeep.apply_retention(SystemClock().now_ms())

    [local] = cli.ok("verify", "--json").objects
    [whole] = cli.ok("verify", "--archived", "--json").objects

    assert local["archived_segments_left"] == 2
    assert whole["archived_segments_left"] == 0
    assert whole["records"] == 50


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [(["none"], 1, "no topic named 'none'"), (["--jobs", "0"], 2, "--jobs")],
)
def test_what_cannot_be_checked_is_told(
    cli: CommandLine, data: Path, arguments: list[str], code: int, message: str
) -> None:
    ran = cli("verify", *arguments)

    assert ran.code == code
    assert message in ran.err


def test_a_problem_is_one_line() -> None:
    def line(**place: int) -> str:
        return problem_line(SegmentProblem(file="f", reason="bad", **place))

    assert line() == "f: bad"
    assert line(position=5) == "f: byte 5: bad"
    assert line(position=5, offset=7) == "f: byte 5, offset 7: bad"
    assert line(offset=7, next_offset=9) == "f: offsets 7 to 8: bad"


def test_partitions_that_other_brokers_have_are_not_missing(
    cli: CommandLine, tmp_path: Path
) -> None:
    path = str(tmp_path / "data")
    with open_writer([path], defaults=TopicConfig(), role=AMONG_OTHERS) as store:
        store.hosting.host(
            HostedTopic(
                name="orders", topic_id=UUID(int=7), partitions=3, here=frozenset({1}), config={}
            )
        )

    [summary] = cli.ok("verify", "--at", path, "--json").objects

    assert (summary["result"], summary["problems"]) == ("sound", 0)
