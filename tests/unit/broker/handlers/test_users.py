"""Describing and changing users through the protocol."""

from dataclasses import replace
from typing import Any

import pytest

from cordwood.broker.handlers.sasl import SaslHandler
from cordwood.broker.handlers.users import UsersHandler
from cordwood.errors import ConfigError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import ScramMechanism
from fakes.handler_calls import HandlerCalls
from fakes.sasl_clients import state_of
from fakes.simulated_fs import SimulatedFileSystem

DESCRIBE = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
ALTER = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture
def file() -> SecurityFile:
    fs = SimulatedFileSystem()
    fs.make_directory("data")
    opened = SecurityFile(fs, ["data"])
    credentials = state_of(("alice", "a"), ("bob", "b")).credentials
    opened.change(lambda state: replace(state, credentials=credentials))
    return opened


@pytest.fixture
def call(file: SecurityFile) -> HandlerCalls:
    return HandlerCalls([UsersHandler(file), SaslHandler()])


def upsertion(name: str, **more: Any) -> dict[str, Any]:
    sound = {"mechanism": SHA_256, "iterations": 8192, "salt": b"s", "salted_password": bytes(32)}
    return {"name": name, **sound, **more}


@pytest.mark.parametrize("asked", [None, []])
def test_everybody_is_described_unless_somebody_is_named(
    call: HandlerCalls, asked: list[Any] | None
) -> None:
    answer = call(DESCRIBE, {"users": asked})

    assert answer.error_code == 0
    assert [(found.user, found.error_code) for found in answer.results] == [
        ("alice", 0),
        ("bob", 0),
    ]
    assert [tuple(info) for info in answer.results[0].credential_infos] == [(1, 4096), (2, 4096)]


def test_unknown_and_repeated_users_fail_alone(call: HandlerCalls) -> None:
    names = ["alice", "nobody", "bob", "bob"]

    answer = call(DESCRIBE, {"users": [{"name": name} for name in names]})

    assert {found.user: found.error_code for found in answer.results} == {
        "alice": 0,
        "nobody": 91,
        "bob": 92,
    }


def test_a_change_is_in_effect_when_it_is_answered(call: HandlerCalls, file: SecurityFile) -> None:
    answer = call(
        ALTER,
        {
            "deletions": [{"name": "alice", "mechanism": SHA_512}],
            "upsertions": [upsertion("carol"), upsertion("dora", iterations=1)],
        },
    )

    assert {found.user: found.error_code for found in answer.results} == {
        "alice": 0,
        "carol": 0,
        "dora": 93,
    }
    assert {(user, kind) for user, kind in file.state.credentials} == {
        ("alice", SHA_256),
        ("bob", SHA_256),
        ("bob", SHA_512),
        ("carol", SHA_256),
    }


def test_a_change_that_cannot_be_written_fails_every_user(
    call: HandlerCalls, file: SecurityFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.state

    def refuse(*_: object) -> None:
        raise ConfigError("cordwood-security", "64 MiB", "is too large")

    monkeypatch.setattr(file, "_write", refuse)
    answer = call(ALTER, {"upsertions": [upsertion("carol"), upsertion("dora")]})

    assert [(found.user, found.error_code) for found in answer.results] == [
        ("carol", 40),
        ("dora", 40),
    ]
    assert file.state is before


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_nobody_authenticates_where_nobody_has_to(call: HandlerCalls, api: ApiKey) -> None:
    assert call(api).error_code == 34
