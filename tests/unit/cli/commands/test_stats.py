"""``cordwood stats``, on every kind of target."""

from pathlib import Path

import pytest

import cordwood
from cordwood.cli.commands.stats import figures
from cordwood.format.record import Record
from cordwood.log.inspection.log_statistics import LogStatistics
from fakes.command_line import CommandLine, CommandTarget

START_MS = 1_700_000_000_000


@pytest.fixture
def orders(target: CommandTarget) -> str:
    config = {"retention.ms": -1, "durability": "os"}
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=2, config=config)
        for n in range(50):
            record = Record(b"v" * n, b"k%d" % (n % 5), timestamp_ms=START_MS + 1000 * n)
            topic.partition(n % 2).append_many([record])
    return "orders"


def test_a_topic_is_counted_by_partition_and_as_a_whole(
    on_target: CommandLine, orders: str
) -> None:
    first, second, total = on_target.ok("stats", orders, "--json").objects

    assert [row["partition"] for row in (first, second, total)] == [0, 1, None]
    assert (first["records"], second["records"], total["records"]) == (25, 25, 50)
    assert total["bytes"] == first["bytes"] + second["bytes"]
    assert total["batches"] == 50
    assert total["value_bytes"] == {"total": 1225, "average": 24.5, "min": 0, "max": 49}
    assert total["key_bytes"] == {"total": 100, "average": 2.0, "min": 2, "max": 2}
    assert total["records_per_second"] == pytest.approx(50 / 49, rel=0.001)
    assert total["compression_ratio"] == 1


def test_keys_in_several_partitions_count_once_and_are_compacted_apart(
    on_target: CommandLine, orders: str
) -> None:
    first, _, total = on_target.ok("stats", orders, "--json").objects

    assert (first["keys"], total["keys"]) == (5, 5)
    assert first["duplicate_ratio"] == 0.8
    assert total["compaction_saves_records"] == 40
    assert 0 < total["compaction_saves_bytes"] < total["bytes"]


def test_people_get_words_and_a_table(on_target: CommandLine, orders: str) -> None:
    lines = on_target.ok("stats", orders).lines

    facts = dict(line.split("  ", 1) for line in lines if line and not line.startswith(" "))
    assert facts["records"].strip() == "50"
    assert facts["keys"].strip() == "5"
    assert facts["duplicates"].strip() == "80.0 % of records with a key repeat an earlier key"
    assert facts["compaction"].strip().startswith("would save 40 records, about ")
    assert "1.02 records/s" in facts["rate"]
    assert lines[-2].split()[:2] == ["0", "25"]


def test_only_the_partitions_asked_for_are_counted(on_target: CommandLine, orders: str) -> None:
    ran = on_target.ok("stats", orders, "-p", "1", "--json")

    assert [row["records"] for row in ran.objects] == [25, 25]


def test_an_empty_topic_has_nothing_to_count(cli: CommandLine, tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("empty")

    lines = cli.ok("stats", "empty").lines
    [_, total] = cli.ok("stats", "empty", "--json").objects

    assert "rate         -" in lines
    assert total["records"] == 0


def test_damage_is_told_and_the_rest_is_counted(cli: CommandLine, tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("t", config={"segment.records": 10, "durability": "os"})
        for n in range(30):
            topic.append(b"value %d" % n)
        path = Path(topic.partition(0).segments()[0].path)
    content = bytearray(path.read_bytes())
    content[75] ^= 0xFF
    path.write_bytes(content)

    ran = cli.ok("stats", "t", "--json")

    assert ran.objects[-1]["records"] == 29
    assert ran.objects[-1]["unreadable"] == 1
    assert "not counted: " in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none"], 1, "no topic named 'none'"),
        (["orders", "-p", "9"], 1, "partitions 0 to 1, not 9"),
        ([], 2, "TOPIC"),
    ],
)
def test_what_cannot_be_counted_is_told(
    on_target: CommandLine, orders: str, arguments: list[str], code: int, message: str
) -> None:
    ran = on_target("stats", *arguments)

    assert ran.code == code, ran
    assert message in ran.err


def test_without_times_there_is_no_rate() -> None:
    assert figures(LogStatistics(records=5))["records_per_second"] is None
