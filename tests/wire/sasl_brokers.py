"""Brokers whose clients have to authenticate, and raw clients that do so by hand."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cordwood
from cordwood.broker.net.accepting.sasl_gate import SaslGate
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from fakes.sasl_clients import Issuer, ScramClient, plain, state_of
from wire.raw_client import RawClient, framed

HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
ALICE, PASSWORD = "alice", "a secret"
ISSUER = Issuer()
NONE, UNSUPPORTED, ILLEGAL, FAILED = 0, 33, 34, 58


def sasl_broker(
    directory: Path, config: Mapping[str, Any] | None = None, **named: Any
) -> cordwood.Broker:
    """A broker with one listener and all mechanisms; alice is there once it is started."""
    keys = directory / "jwks.json"
    keys.write_bytes(ISSUER.key_set())
    return cordwood.Broker(
        config={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.plain.insecure": "true",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "cordwood",
            "sasl.oauthbearer.expected.issuer": "https://issuer.example",
            "connection.failed.authentication.delay.ms": 1,
            **(config or {}),
        },
        **named,
    )


def add_users(broker: cordwood.Broker, *users: tuple[str, str]) -> None:
    added = state_of(*users).credentials
    broker._running().security_file.change(
        lambda state: replace(state, credentials={**state.credentials, **added})
    )


def end_sessions(broker: cordwood.Broker) -> None:
    """The lifetime of every session is over, however long it is."""
    server = broker._running()
    for loop in (server._control, server._data):
        for connection in server._connections.in_loop(loop):
            gate = connection.session.gate
            assert isinstance(gate, SaslGate)
            gate._expires_s = -math.inf


def token(**claims: Any) -> str:
    return ISSUER.token(now_s=time.time(), **claims)


def handshake(client: RawClient, mechanism: str, version: int = 1) -> Fields:
    return client.call(HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(client: RawClient, message: bytes, version: int = 2) -> Fields:
    return client.call(AUTHENTICATE, version, {"auth_bytes": message})


def log_in(client: RawClient, user: str = ALICE, password: str = PASSWORD) -> Fields:
    """By PLAIN."""
    assert handshake(client, "PLAIN").error_code == NONE
    return authenticate(client, plain(user, password))


def log_in_by_scram(
    client: RawClient, mechanism: str, user: str = ALICE, password: str = PASSWORD
) -> Fields:
    assert handshake(client, mechanism).error_code == NONE
    scram = ScramClient("sha" + mechanism[-3:], user, password)
    first = authenticate(client, scram.first())
    assert first.error_code == NONE
    final = authenticate(client, scram.final(bytes(first.auth_bytes)))
    assert final.error_code or scram.is_ours(bytes(final.auth_bytes))
    return final


def send_raw(client: RawClient, message: bytes) -> bytes:
    """A token without a header, as after a handshake of version 0."""
    client.send_bytes(framed(message))
    return client.receive_frame()
