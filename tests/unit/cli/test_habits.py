"""Words of kcat, rpk and Kafka's scripts: accepted where they are clear, else with a hint."""

from pathlib import Path

import pytest

import cordwood
from cordwood.cli.failures import UsageError
from cordwood.cli.habits import Habit, adapted, in_command, in_group, in_root
from fakes.command_line import CommandLine

CONSUME = {
    "--at": True,
    "--from": True,
    "-n": True,
    "--count": True,
    "--follow": False,
    "-f": False,
    "--json": False,
    "--grep": True,
    "-K": True,
}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--at data topics list", "topics --at data list"),
        ("--at=data topics list", "topics --at data list"),
        ("-b localhost:1 consume orders", "consume --at localhost:1 orders"),
        ("-b localhost,other:9093 topics", "topics --at localhost:9092,other:9093"),
        ("cat orders", "consume orders"),
        ("tail orders", "consume --from -10 orders"),
        ("tail -f -n 5 orders", "consume --from -10 -f --from -5 orders"),
        ("ls", "topics list"),
        ("help", "--help"),
        ("help topics create", "topics create --help"),
        ("version", "--version"),
        ("consume cat", "consume cat"),
        ("--at", "--at"),
        ("", ""),
    ],
)
def test_words_before_and_in_place_of_a_command(theirs: str, ours: str) -> None:
    assert in_root(theirs.split()) == ours.split()


@pytest.mark.parametrize(
    ("group", "theirs", "ours"),
    [
        ("topics", "ls", "list"),
        ("topics", "--at data ls", "list --at data"),
        ("topics", "--list --bootstrap-server x:1", "list --bootstrap-server x:1"),
        ("topics", "--bootstrap-server x:1 --create --topic a", "create --at x:1 --topic a"),
        ("topics", "describe list", "describe list"),
        ("groups", "lag billing", "describe billing"),
        ("groups", "--reset-offsets --group g", "reset --group g"),
        ("spark", "export a", "export a"),
        ("topics", "", ""),
    ],
)
def test_words_in_place_of_a_command_of_a_group(group: str, theirs: str, ours: str) -> None:
    assert in_group(group, theirs.split()) == ours.split()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("-t orders", "orders"),
        ("-b localhost -t orders -o beginning -e", "orders --at localhost:9092 --from beginning"),
        ("-torders -o-5 -c1", "orders --from -5 --count 1"),
        ("orders -o s@1760000000000", "orders --from @1760000000000"),
        ("--topic=orders --from-beginning --max-messages 3", "orders --from beginning --count 3"),
        ("orders -J", "orders --json"),
        ("orders --grep -e -K -o", "orders --grep -e -K -o"),  # values are left alone
        ("orders -- -e -t x", "orders -- -e -t x"),
        ("orders -f -n5", "orders -f -n5"),
    ],
)
def test_options_of_other_tools(theirs: str, ours: str) -> None:
    assert in_command("consume", theirs.split(), CONSUME, "TOPIC") == ours.split()


def test_an_option_of_the_command_wins_over_a_foreign_one() -> None:
    habit = Habit(names=("-t",), words=("other",))

    assert adapted(["-t", "4"], [habit], {"-t": True}) == ["-t", "4"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["-o", "stored"], "--group"),
        (["--property", "print.key=true"], "--key-separator"),
        (["-f", "%s"], "--format '%s'"),
        (["-t"], "requires a value"),
    ],
)
def test_an_option_without_a_counterpart_gets_a_hint(words: list[str], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        in_command("consume", words, CONSUME, "TOPIC")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["broker", "info"], "cordwood doctor"),
        (["-L"], "cordwood topics list"),
        (["-C", "-t", "a"], "cordwood consume"),
    ],
)
def test_a_command_without_a_counterpart_gets_a_hint(words: list[str], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        in_root(words)


def test_a_line_of_kafkas_scripts_or_kcat_does_what_it_did_there(
    cli: CommandLine, tmp_path: Path
) -> None:
    with cordwood.Broker(tmp_path / "data") as broker:
        address = broker.bootstrap_servers
        cli.ok(
            *("topics", "--bootstrap-server", address, "--create", "--topic", "orders"),
            *("--partitions", "1", "--replication-factor", "1"),
        )
        given = ["produce", "-b", address, "-t", "orders", "-k", "anna"]
        cli.ok(*given, stdin=b"paid\nsent\n")

        read = cli.ok("consume", "-b", address, "-t", "orders", "-o", "beginning", "-e", "-K:")
        last = cli.ok("--at", address, "tail", "-n", "1", "orders")
        listed = cli.ok("topics", "ls", "--brokers", address)
        refused = cli("topics", "create", "x", "-b", address, "--replication-factor", "3")

    assert read.lines == ["anna:paid", "anna:sent"]
    assert last.lines == ["sent"]
    assert listed.lines[1].split()[0] == "orders"
    assert refused.code == 2
    assert "one replica" in refused.err
