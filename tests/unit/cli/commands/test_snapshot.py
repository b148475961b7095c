"""``cordwood snapshot``, on every kind of target."""

from dataclasses import replace
from pathlib import Path

import pytest

import cordwood
from cordwood.security.security_state import QuotaEntity
from fakes.command_line import CommandLine, CommandTarget


def fill(target: CommandTarget) -> None:
    with target.open_store() as store:
        topic = store.create_topic("orders", config={"segment.records": 10})
        for _ in range(3):
            topic.append_many([(None, b"x" * 50)] * 10)
        store.group("billing").commit({("orders", 0): 7})


def test_the_copy_is_a_store_of_its_own(
    on_target: CommandLine, target: CommandTarget, tmp_path: Path
) -> None:
    fill(target)

    [made] = on_target.ok("snapshot", "copy", "--json").objects

    assert made["path"] == str(tmp_path / "copy")
    assert made["linked_bytes"] + made["copied_bytes"] > 0
    with cordwood.open(tmp_path / "copy") as copy:
        assert len(list(copy.topic("orders").partition(0).read())) == 30
        assert copy.group("billing").committed("orders", 0) == 7
        copy.topic("orders").append(b"more")
    with target.open_store() as store:
        assert store.topic("orders").partition(0).end_offset == 30


def test_people_see_where_it_is_and_how_large(
    on_target: CommandLine, target: CommandTarget, tmp_path: Path
) -> None:
    fill(target)

    lines = on_target.ok("snapshot", "copy").lines

    assert lines[0].split() == ["path", str(tmp_path / "copy")]
    assert [line.split()[0] for line in lines] == [
        *("path", "partitions", "linked_bytes", "copied_bytes")
    ]


def test_what_is_there_is_not_written_over(on_target: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "precious").write_text("x")

    ran = on_target("snapshot", "copy")

    assert (ran.code, ran.out) == (2, "")
    assert "already exists" in ran.err
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["precious"]


def test_a_copy_cannot_go_to_nowhere_or_into_the_store(
    on_target: CommandLine, target: CommandTarget, tmp_path: Path
) -> None:
    nowhere = on_target("snapshot", "no/such/copy")
    within = on_target("snapshot", "data/copy")

    assert nowhere.code == within.code == 2
    assert f"directory {tmp_path}/no/such does not exist" in nowhere.err
    assert "must not lie within" in within.err


@pytest.mark.parametrize("is_whole", [False, True])
def test_users_and_rules_are_copied_only_if_asked_for(
    on_target: CommandLine, target: CommandTarget, tmp_path: Path, is_whole: bool
) -> None:
    fill(target)
    quotas = {QuotaEntity(user="alice"): {"producer_byte_rate": 1000.0}}
    with target.open_store() as store:
        store.open_security().change(lambda state: replace(state, quotas=quotas))

    on_target.ok("snapshot", "copy", *(["--include-security"] if is_whole else []))

    assert (tmp_path / "copy" / "cordwood-security").exists() == is_whole
