"""``cordwood users`` on a directory, and through a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.security.security_state import ScramMechanism
from fakes.command_line import CommandLine

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
BOTH = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


@pytest.fixture(params=["directory", "broker"])
def users(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CommandLine]:
    if request.param == "directory":
        # It does not exist: users are added before the first start.
        yield CommandLine(capsys, monkeypatch, str(tmp_path_factory.mktemp("users") / "data"))
    else:
        with cordwood.Broker() as broker:
            yield CommandLine(capsys, monkeypatch, broker.bootstrap_servers)


def test_users_are_added_listed_and_removed(users: CommandLine) -> None:
    added = users.ok("users", "add", "alice", "--password-stdin", stdin=b"secret\n")
    users.ok("users", "add", "bob", "-m", "scram-sha-512", "--iterations", "8192",
             "--password-stdin", stdin="pässword".encode())  # fmt: skip
    listed = users.ok("users", "list", "--json").objects
    users.ok("users", "remove", "alice")
    left = users.ok("users", "list", "--json").objects

    assert "secret" not in added.out + added.err
    assert listed == [
        {"user": "alice", "mechanisms": BOTH},
        {"user": "bob", "mechanisms": {"SCRAM-SHA-512": 8192}},
    ]
    assert [row["user"] for row in left] == ["bob"]


def test_one_mechanism_is_removed_and_the_other_stays(users: CommandLine) -> None:
    users.ok("users", "add", "alice", "--password-stdin", stdin=b"secret")
    removed = users.ok("users", "remove", "alice", "-m", "SCRAM-SHA-256", "--json")
    again = users("users", "remove", "alice", "-m", "SCRAM-SHA-256")

    assert removed.objects == [{"user": "alice", "removed": ["SCRAM-SHA-256"]}]
    assert again.code == 2
    assert "has no password for SCRAM-SHA-256" in again.err
    assert "SCRAM-SHA-512 (4096)" in users.ok("users", "list").out


def test_a_password_that_is_changed_for_one_mechanism_leaves_a_warning(users: CommandLine) -> None:
    users.ok("users", "add", "alice", "--password-stdin", stdin=b"old")
    changed = users.ok(
        "users", "add", "alice", "-m", "SCRAM-SHA-256", "--password-stdin", stdin=b"new"
    )

    assert "changed the password of alice for SCRAM-SHA-256" in changed.err
    assert "keeps the password that it had for SCRAM-SHA-512" in changed.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        (("add", "alice", "--password-stdin"), b"", "must not be empty"),
        (("add", "alice", "--password-stdin"), b"\n", "must not be empty"),
        (("add", "alice", "--password-stdin"), b"two\nlines\n", "control"),
        (("add", "alice", "--password-stdin"), b"\xff", "not UTF-8"),
        (("add", "", "--password-stdin"), b"x", "user name"),
        (("add", "a\tb", "--password-stdin"), b"x", "unprintable"),
        (("add", "alice", "--password-stdin", "-m", "MD5"), b"x", "SCRAM-SHA-256"),
        (("add", "alice", "--password-stdin", "--iterations", "1"), b"x", "4096 to 16384"),
        (("add", "alice"), b"x", "--password-stdin"),
        (("remove", "nobody"), b"", "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_clearly(
    users: CommandLine, arguments: tuple[str, ...], stdin: bytes, text: str
) -> None:
    users.ok("users", "add", "first", "--password-stdin", stdin=b"x")
    ran = users("users", *arguments, stdin=stdin)

    assert ran.code != 0
    assert text in ran.err
    assert [row["user"] for row in users.ok("users", "list", "--json").objects] == ["first"]


def test_users_of_a_directory_that_a_broker_serves_are_changed_through_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with cordwood.Broker(data_dir=str(tmp_path)):
        ran = CommandLine(capsys, monkeypatch, str(tmp_path))(
            "users", "add", "alice", "--password-stdin", stdin=b"x"
        )

    assert ran.code != 0
    assert "through the broker" in ran.err


def test_a_user_that_was_added_before_the_first_start_logs_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = CommandLine(capsys, monkeypatch, str(tmp_path))
    command.ok("users", "add", "alice", "--password-stdin", stdin=b"secret")

    with cordwood.Broker(data_dir=str(tmp_path)) as broker:
        credentials = broker._running().security_file.state.credentials

    assert {(user, kind) for user, kind in credentials} == {("alice", SHA_256), ("alice", SHA_512)}


def test_a_terminal_is_asked_twice_and_shows_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, object]] = []

    def prompt(text: str, **options: object) -> str:
        asked.append({"text": text, **options})
        return "secret"

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("cordwood.cli.commands.users.is_terminal", lambda: True)
    CommandLine(capsys, monkeypatch, str(tmp_path)).ok("users", "add", "alice")

    assert asked == [
        {
            "text": "Password of alice",
            "hide_input": True,
            "confirmation_prompt": True,
            "err": True,
        }
    ]


def test_users_of_a_cluster_are_not_changed_in_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster-member").write_text("")
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\n")
    command = CommandLine(capsys, monkeypatch, str(tmp_path))

    refused = command("users", "add", "alice", "--password-stdin", stdin=b"secret")

    assert refused.code != 0
    assert "belongs to a broker of a cluster" in refused.err
    assert not (tmp_path / "cordwood-security").exists()
