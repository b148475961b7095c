"""``cordwood users`` on a broker that lets in users only."""

from pathlib import Path

import pytest

from fakes.command_line import CommandLine
from wire.sasl_brokers import ALICE, PASSWORD, add_users, sasl_broker


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_user_adds_another_who_lists_both(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mechanism: str,
) -> None:
    with sasl_broker(tmp_path) as broker:
        add_users(broker, (ALICE, PASSWORD))
        run = CommandLine(capsys, monkeypatch, broker.bootstrap_servers)
        monkeypatch.setenv("CORDWOOD_MECHANISM", mechanism)
        monkeypatch.setenv("CORDWOOD_PASSWORD", PASSWORD)
        added = run("users", "add", "bob", "--password-stdin", "--user", ALICE, stdin=b"b")
        monkeypatch.setenv("CORDWOOD_PASSWORD", "b")
        listed = run("users", "list", "--json", "--user", "bob")
        monkeypatch.setenv("CORDWOOD_PASSWORD", "wrong")
        refused = run("users", "list", "--user", "bob")

    assert added.code == 0, added.err
    assert [row["user"] for row in listed.objects] == [ALICE, "bob"]
    assert refused.code != 0
    assert "wrong" not in refused.err
