"""``cordwood roll``, on every kind of target."""

from fakes.command_line import CommandLine, CommandTarget


def fill(target: CommandTarget) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders", partitions=3)
        topic.append_many([(None, b"x" * 100)] * 10, partition=0)
        topic.append_many([(None, b"x" * 100)] * 5, partition=2)


def bases(target: CommandTarget) -> list[list[int]]:
    with target.open_store() as store:
        logs = store.topic("orders").partitions
        return [[segment.base_offset for segment in log.segments()] for log in logs]


def test_active_segments_with_records_are_sealed(
    on_target: CommandLine, target: CommandTarget
) -> None:
    fill(target)

    rows = on_target.ok("roll", "orders", "--json").objects

    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert [row["is_rolled"] for row in rows] == [True, False, True]
    assert [row["records"] for row in rows] == [10, 0, 5]
    assert [row["active_offset"] for row in rows] == [10, 0, 5]
    assert rows[0]["sealed_bytes"] > 1000
    assert bases(target) == [[0, 10], [0], [0, 5]]


def test_one_partition_is_rolled_alone(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target)

    lines = on_target.ok("roll", "orders", "--partition", "2").lines

    assert len(lines) == 2
    assert lines[1].split()[:2] == ["2", "yes"]
    assert bases(target) == [[0], [0], [0, 5]]


def test_an_empty_segment_is_not_rolled_twice(
    on_target: CommandLine, target: CommandTarget
) -> None:
    fill(target)
    on_target.ok("roll", "orders")

    again = on_target.ok("roll", "orders")

    assert again.out.count("no, it is empty") == 3
    assert bases(target) == [[0, 10], [0], [0, 5]]


def test_what_is_not_there_is_an_error(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target)

    assert "no topic named 'none'" in on_target("roll", "none").err
    missing = on_target("roll", "orders", "-p", "7")
    assert (missing.code, missing.out) == (1, "")
    assert "partitions 0 to 2, not 7" in missing.err
    assert on_target("roll", "orders", "-p", "-1").code == 2
