"""What `cordwood doctor` says about listeners, certificates, secrets, users and rules."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.doctor.security_check import check_security, check_users
from cordwood.security.certificates.certificate_authority import CertificateAuthority
from cordwood.security.security_state import SecurityState
from cordwood.security.setup.local_security import BrokerSecurity, allow
from cordwood.settings import settings_from
from fakes.command_line import CommandLine

_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
_RULES = {**_SASL, "authorizer.class.name": "standard", "super.users": "User:admin"}


def _by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {found.name: found for found in findings}


def _checked(config: dict[str, Any], *paths: Path) -> dict[str, Finding]:
    return _by_name(list(check_security(settings_from(config), [str(p) for p in paths], _NOW)))


def _users(config: dict[str, Any], security: BrokerSecurity | None = None) -> dict[str, Finding]:
    state = SecurityState() if security is None else security.apply(SecurityState())
    return _by_name(list(check_users(settings_from(config), state)))


def test_a_local_listener_needs_no_protection() -> None:
    assert _checked({})["listeners"].verdict is Verdict.OK


def test_a_listener_that_lets_everybody_in_is_a_problem_or_if_allowed_a_warning() -> None:
    everywhere = {"host": "0.0.0.0"}

    refused = _checked(everywhere)["listeners"]
    allowed = _checked({**everywhere, "insecure.listeners.allowed": True})["listeners"]

    assert refused.verdict is Verdict.PROBLEM
    assert "--secure" in refused.advice
    assert allowed.verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("days", "verdict"), [(31, Verdict.OK), (29, Verdict.WARNING), (-1, Verdict.PROBLEM)]
)
def test_a_certificate_is_reported_before_it_ends(
    tmp_path: Path, days: int, verdict: Verdict
) -> None:
    made = _NOW - datetime.timedelta(days=100)
    authority = CertificateAuthority.create("x", now=made)
    store = tmp_path / "server.pem"
    store.write_bytes(authority.issue("log", ["localhost"], now=made, days=100 + days).store_pem)
    store.chmod(0o600)

    found = _checked({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)})

    assert found["certificate of SSL"].verdict is verdict
    assert "secrets" not in found


def test_a_missing_certificate_is_a_problem(tmp_path: Path) -> None:
    found = _checked(
        {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(tmp_path / "no.pem")}
    )

    assert found["certificate of SSL"].verdict is Verdict.PROBLEM


def test_secrets_that_everybody_can_read_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "security"
    folder.mkdir()
    for name in ("ca.key", "ca.pem", "admin.password"):
        (folder / name).write_text("x")
        (folder / name).chmod(0o644)

    found = _checked({}, tmp_path)["secrets"]

    assert found.verdict is Verdict.WARNING
    assert "ca.key" in found.advice
    assert "admin.password" in found.advice
    assert "ca.pem" not in found.advice


def test_nobody_who_can_log_in_is_a_problem() -> None:
    assert _users(_SASL)["users"].verdict is Verdict.PROBLEM
    some = _users(_SASL, BrokerSecurity(users={"alice": "x"}))
    assert some["users"].verdict is Verdict.OK
    assert some["rules"].verdict is Verdict.NOTE
    assert "every user may do everything" in some["rules"].value


def test_super_users_that_do_not_exist_are_named() -> None:
    missing = _users(_RULES, BrokerSecurity(users={"alice": "x"}))
    present = _users(_RULES, BrokerSecurity(users={"admin": "x"}))

    assert "admin: there is no such user" in missing["super users"].value
    assert missing["super users"].verdict is Verdict.WARNING
    assert "super users" not in present


def test_users_without_rules_are_named() -> None:
    security = BrokerSecurity(
        users={"admin": "x", "alice": "x", "bob": "x"}, acls=[allow("alice", topic="orders")]
    )

    found = _users(_RULES, security)["rules"]

    assert found.value == "bob: no rule allows anything"
    everybody = BrokerSecurity(users=security.users, acls=[allow("*", topic="orders")])
    assert "rules" not in _users(_RULES, everybody)


def test_a_store_that_serve_secured_is_judged_by_its_own_settings(
    cli: CommandLine, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    (data / "security").mkdir(parents=True)
    settings = data / "security" / "broker.properties"
    settings.write_text("listeners=PLAINTEXT://0.0.0.0:9092\n")
    settings.chmod(0o600)

    ran = cli("doctor", "--json", "--at", str(data))

    found = next(each for each in ran.objects if each["name"] == "listeners")
    assert found["verdict"] == "problem"
