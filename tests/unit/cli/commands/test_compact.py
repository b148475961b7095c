"""``cordwood compact``, on every kind of target."""

from fakes.command_line import CommandLine, CommandTarget


def fill(target: CommandTarget, **config: str) -> None:
    """Ten keys in two partitions, each written thirty times, all in active segments."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    with target.open_store() as store:
        topic = store.create_topic(
            "accounts", partitions=2, config={"cleanup.policy": "compact", **keys}
        )
        topic.append_many([(b"k%d" % (n % 10), b"%d" % n) for n in range(300)])


def values(target: CommandTarget) -> list[int]:
    with target.open_store() as store:
        logs = store.topic("accounts").partitions
        return sorted(int(record.value or b"") for log in logs for record in log.read())


def sizes(target: CommandTarget) -> list[int]:
    with target.open_store() as store:
        return [log.size_bytes for log in store.topic("accounts").partitions]


def test_the_newest_record_of_each_key_stays(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target)
    before = sizes(target)

    rows = on_target.ok("compact", "accounts", "--json").objects

    assert [row["outcome"] for row in rows] == ["done", "done"]
    assert sum(row["records_removed"] for row in rows) == 290
    assert [row["bytes_before"] for row in rows] == before
    assert [row["bytes_after"] for row in rows] == sizes(target)
    assert values(target) == list(range(290, 300))


def test_a_dry_run_says_what_a_run_then_does(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target)

    foreseen = on_target.ok("compact", "accounts", "--dry-run", "--json")
    assert values(target) == list(range(300))
    done = on_target.ok("compact", "accounts", "--json").objects

    assert "nothing was compacted" in foreseen.err
    rows = foreseen.objects
    assert [row["is_due"] for row in rows] == [True, True]
    assert [row["dirty_ratio"] for row in rows] == [1.0, 1.0]
    assert [r["records_removed"] for r in rows] == [r["records_removed"] for r in done]
    saved = [row["bytes_before"] - row["bytes_after"] for row in done]
    assert [row["bytes_saved"] for row in rows] == saved


def test_what_is_not_due_is_left_alone_with_the_reason(
    on_target: CommandLine, target: CommandTarget
) -> None:
    fill(target)

    planned = on_target.ok("compact", "accounts", "--due-only", "--dry-run").lines
    done = on_target.ok("compact", "accounts", "--due-only").lines

    assert planned[0].split()[:3] == ["partition", "due", "dirty"]
    assert all("no" in line and "active segment" in line for line in planned[1:])
    assert all("nothing to do" in line and "active segment" in line for line in done[1:])
    assert values(target) == list(range(300))


def test_what_is_due_is_compacted(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target, min_cleanable_dirty_ratio="0.01")
    on_target.ok("roll", "accounts")

    planned = on_target.ok("compact", "accounts", "--due-only", "--dry-run", "--json").objects
    done = on_target.ok("compact", "accounts", "--due-only", "--json").objects

    assert [row["reason"] for row in planned] == [
        "more of the log is dirty than min.cleanable.dirty.ratio"
    ] * 2
    assert [row["outcome"] for row in done] == ["done", "done"]
    assert values(target) == list(range(290, 300))


def test_one_partition_is_compacted_alone(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target)
    before = sizes(target)

    [row] = on_target.ok("compact", "accounts", "-p", "1", "--json").objects

    assert row["partition"] == 1
    after = sizes(target)
    assert after[0] == before[0]
    assert after[1] == row["bytes_after"] < before[1]


def test_people_see_before_and_after(on_target: CommandLine, target: CommandTarget) -> None:
    fill(target)

    lines = on_target.ok("compact", "accounts").lines

    header = ["partition", "outcome", "before", "after", "removed", "seconds"]
    assert lines[0].split() == header
    assert [line.split()[:2] for line in lines[1:]] == [["0", "done"], ["1", "done"]]


def test_a_topic_that_is_not_compacted_is_refused(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        store.create_topic("orders")

    for arguments in (["compact", "orders"], ["compact", "orders", "--dry-run"]):
        ran = on_target(*arguments)

        assert (ran.code, ran.out) == (1, "")
        assert "its cleanup.policy is delete" in ran.err
        assert "cordwood topics alter orders --config cleanup.policy=compact" in ran.err
    assert "no topic named 'none'" in on_target("compact", "none").err


def test_a_partition_that_cannot_be_compacted_is_exit_code_1(
    on_target: CommandLine, target: CommandTarget
) -> None:
    with target.open_store() as store:
        topic = store.create_topic("accounts", config={"cleanup.policy": "compact"})
        topic.append_many([(b"k", b"x" * 100)] * 10)
        topic.append_many([(b"k", b"x" * 100)] * 10)
        path = topic.partition(0).segments()[0].path
        topic.partition(0).roll()
        topic.partition(0).syncing.sync_pending()
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"damage")

    ran = on_target("compact", "accounts", "--json")

    assert ran.code == 1
    assert ran.objects[0]["outcome"] == "failed"
    assert "Corrupt" in ran.objects[0]["reason"]
