"""How a command connects: options, variables, property files, and what counts more."""

from pathlib import Path
from typing import Any

import pytest

from cordwood.cli.at.connection import AtText, ConnectionOptions
from cordwood.cli.at.target import BrokerTarget, parse_target
from cordwood.cli.command_list import COMMANDS
from cordwood.cli.command_tree import CommandsOnDemand
from cordwood.cli.habits import CONNECTION, in_group, in_root
from cordwood.errors import ConfigError
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.secret import Secret
from fakes.command_line import CommandLine


def _security(environment: Any = None, **options: Any) -> ClientSecurity:
    found = ConnectionOptions(**options).security(environment or {}, None)
    assert found is not None
    return found


def test_without_options_there_is_no_protection() -> None:
    assert ConnectionOptions().security({}, None) is None


@pytest.mark.parametrize("options", [{"tls": True}, {"ca": "ca.pem"}, {"cert": "me.pem"}])
def test_a_certificate_implies_tls(options: dict[str, object]) -> None:
    assert _security(**options).protocol is ClientProtocol.SSL


def test_a_user_authenticates_with_scram() -> None:
    security = _security({"CORDWOOD_PASSWORD": "pencil"}, user="alice", ca="ca.pem")

    assert security.protocol is ClientProtocol.SASL_SSL
    assert security.mechanism == "SCRAM-SHA-256"
    assert security.password == Secret("pencil")


def test_the_password_is_asked_for_at_a_terminal() -> None:
    asked: list[str] = []

    def ask(user: str) -> str:
        asked.append(user)
        return "pencil"

    security = ConnectionOptions(user="alice").security({}, ask)

    assert asked == ["alice"]
    assert security is not None
    assert security.password == Secret("pencil")


def test_a_password_file_wins_over_the_variable() -> None:
    security = _security({"CORDWOOD_PASSWORD": "x"}, user="alice", password_file="/run/p")

    assert (security.password, security.password_file) == (None, "/run/p")


def test_options_count_more_than_properties(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=log:9093\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=${env:P}\n"
    )
    options = ConnectionOptions(
        command_config=str(file), tls=True, client_properties=("sasl.mechanism=SCRAM-SHA-512",)
    )

    security = options.security({"P": "pencil"}, None)

    assert security is not None
    assert security.protocol is ClientProtocol.SASL_SSL
    assert security.mechanism == "SCRAM-SHA-512"
    assert security.password == Secret("pencil")
    assert options.bootstrap_servers({"P": "pencil"}) == "log:9093"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"user": "alice"}, "--password-file FILE, or CORDWOOD_PASSWORD"),
        ({"mechanism": "PLAIN"}, "--mechanism = PLAIN: needs --user"),
        ({"password_file": "/run/p"}, "needs --user"),
        ({"cert_key": "me.key"}, "needs --cert"),
        ({"command_config": "/no/such"}, "--command-config = /no/such: cannot be read"),
        ({"client_properties": ("x",)}, "must be KEY=VALUE"),
        ({"client_properties": ("sasl.password=hunter2",)}, "can read the command line"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        _security(**options)

    assert "hunter2" not in str(raised.value)


def test_the_options_travel_with_the_text_of_the_target() -> None:
    target = parse_target(AtText("log:9093", ConnectionOptions(ca="ca.pem")))

    assert isinstance(target, BrokerTarget)
    assert target.security is not None
    assert target.security.protocol is ClientProtocol.SSL


def test_options_for_brokers_are_refused_for_directories_but_variables_are_not(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()

    refused = cli("topics", "list", "--at", "data", "--ca", "ca.pem")
    monkeypatch.setenv("CORDWOOD_CA", "ca.pem")
    monkeypatch.setenv("CORDWOOD_USER", "alice")
    listed = cli("topics", "list", "--at", "data")

    assert refused.code == 2
    assert "--ca is for a broker" in refused.err
    assert listed.code == 0


def test_the_property_file_names_the_broker(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "c.properties").write_text("bootstrap.servers=127.0.0.1:1\n")

    ran = cli("topics", "list", "--command-config", "c.properties")

    assert "no broker answers at 127.0.0.1:1" in ran.err


def test_options_may_come_before_the_command() -> None:
    words = "--tls --ca=ca.pem --user alice --at log:9093 -X a=b topics list"

    adapted = " ".join(in_root(words.split(" ")))

    assert adapted == "topics --at log:9093 --tls --ca ca.pem --connect-user alice -X a=b list"


def test_before_a_command_the_user_is_that_of_the_connection(cli: CommandLine) -> None:
    """`quotas` has a --user of its own; the words before it are not about that one."""
    words = in_root(["--user", "admin", "--at", "log:9093", "quotas", "set", "--user", "bob"])
    within = in_group("quotas", words[1:])

    assert words[0] == "quotas"
    assert within == (["set", "--at", "log:9093", "--connect-user", "admin", "--user", "bob"])


def test_every_command_with_a_target_has_them_and_habits_knows_them() -> None:
    commands = CommandsOnDemand(COMMANDS)
    leaves = [
        leaf
        for name in commands
        if name != "spark"
        for leaf in getattr(commands[name], "commands", {name: commands[name]}).values()
    ]
    with_target = [leaf for leaf in leaves if any(each.name == "at" for each in leaf.params)]

    assert len(with_target) > 15
    for leaf in with_target:
        names = {name for each in leaf.params for name in each.opts}
        assert set(CONNECTION) <= names, leaf.name


def test_variables_of_clients_are_no_settings_of_the_broker(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TLS", "CA", "CERT", "CERT_KEY", "USER", "PASSWORD", "PASSWORD_FILE",
                 "KEY_PASSWORD", "MECHANISM", "TOKEN_FILE", "COMMAND_CONFIG"):  # fmt: skip
        monkeypatch.setenv(f"CORDWOOD_{name}", "x")

    assert cli("config", "show").code == 0
