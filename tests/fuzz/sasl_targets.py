"""Everything that strangers may send before they are known. See `targets`."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from cordwood.broker.config.sasl_config import SaslConfig, SaslKeys
from cordwood.broker.net.accepting.sasl_gate import SaslGate, guarded
from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.requests.answer import Answer
from cordwood.broker.net.requests.request_metrics import RequestMetrics, ThreadCounts
from cordwood.broker.net.requests.session import UNLIMITED, Session
from cordwood.broker.security.authentication import ListenerAuthentication
from cordwood.broker.security.authentication_events import AuthenticationCounts, EventGroup
from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from cordwood.security.principal import ANONYMOUS
from cordwood.security.sasl.jaas import parse_plain_users
from cordwood.security.sasl.oauth_exchange import OAuthExchange, parse_bearer
from cordwood.security.sasl.plain_exchange import ListedPasswords, PlainExchange, parse_plain
from cordwood.security.sasl.scram_credentials import UserDirectory
from cordwood.security.sasl.scram_exchange import ScramExchange
from cordwood.security.sasl.scram_messages import (
    parse_client_final,
    parse_client_first,
    parse_name,
    render_name,
)
from cordwood.security.sasl.token_keys import parse_key_set
from cordwood.security.sasl.tokens import RefusedTokenError, TokenRules, check_token
from cordwood.security.security_state import ScramMechanism
from fakes.manual_clock import ManualClock
from fakes.sasl_clients import Issuer, bearer, plain, state_of
from fakes.sessions import LOCAL_SESSION
from fuzz.target import target
from wire.raw_client import request_header

PASSWORD: Final = "pencil"
_ISSUER: Final = Issuer()
_KEYS: Final = parse_key_set(_ISSUER.key_set())
_NOW_S: Final = 1_800_000_000
_TOKEN: Final = _ISSUER.token(now_s=_NOW_S)
_DIRECTORY: Final = UserDirectory(state_of(("alice", PASSWORD)), b"secret")
_LISTED: Final = ListedPasswords({"alice": PASSWORD})

# --- messages -----------------------------------------------------------------------------------


@target(
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"n,a=a=2Cb,n=a=2Cb,r=x,tokenauth=true,other=1",
    "n,,n=Jürgen,r=x".encode(),
)
def scram_first(data: bytes) -> None:
    """What is read can be put together again."""
    found = parse_client_first(data)
    assert (found.header + found.bare).encode() == data
    assert found.bare.startswith(f"n={render_name(found.user)},r={found.nonce}")
    assert parse_name(render_name(found.user)) == found.user


@target(
    b"c=biws,r=xours,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"c=bixhPXgs,r=x,ext=1,p=AAAA",
)
def scram_final(data: bytes) -> None:
    found = parse_client_final(data)
    assert data.startswith(found.without_proof.encode() + b",p=")


@target(plain("alice", PASSWORD), plain("ü", "ü", "ü"))
def plain_message(data: bytes) -> None:
    login = parse_plain(data)
    assert "\0".join(login).encode() == data
    assert login.authorization_id in {"", login.user}


@target(bearer(_TOKEN), bearer("x", "n,a=a=3Db,"), b"n,,\x01auth=Bearer x\x01trace=1\x01\x01")
def bearer_message(data: bytes) -> None:
    login = parse_bearer(data)
    assert login.token.encode() in data
    assert "auth" not in login.extensions


@target(_TOKEN.encode(), refusals=(RefusedTokenError, UnicodeDecodeError))
def bearer_token(data: bytes) -> None:
    """No change of a token is accepted, except of the bits that base64 leaves unused."""
    found = check_token(data.decode(), _KEYS, TokenRules(), _NOW_S * 1000)
    assert found.subject == "alice"
    assert data.split(b".")[:2] == _TOKEN.encode().split(b".")[:2]


@target(_ISSUER.key_set())
def key_set(data: bytes) -> None:
    assert parse_key_set(data).keys


@target(
    b"org.apache.kafka.common.security.plain.PlainLoginModule required\n"
    b' username="a" password="b" user_alice="x\\"y\\101" user_bob=word; // end',
    b"org.apache.kafka.common.security.scram.ScramLoginModule Optional /* c */;",
    refusals=(ValueError,),
)
def jaas_users(data: bytes) -> None:
    for user, password in parse_plain_users(data.decode()).items():
        assert user
        assert password


# --- frames in every state ----------------------------------------------------------------------


class _Loop:
    """A loop that does everything at once."""

    turn_s = 0.0
    is_current = True

    def now_s(self) -> float:
        return self.turn_s

    def call_soon(self, function: Callable[[], None]) -> None:
        function()

    def call_later(self, delay_s: float, function: Callable[[], None]) -> None:
        function()


class _Connection:
    """Counts what is sent."""

    muted_until_s = 0.0
    throttle_ms = 0

    def mute(self, pause_s: float) -> None: ...

    def __init__(self, session: Session) -> None:
        self.loop: Any = _Loop()
        self.session = session
        self.answers: deque[Answer] = deque()
        self.sent = 0
        self.counts = ThreadCounts()
        self.is_closed = False

    def send_alone(self, answer: Answer, frame: bytes) -> int:
        return -1

    def send_ready(self) -> None:
        while self.answers and self.answers[0].is_ready:
            self.answers.popleft()
            self.sent += 1

    def close(self, reason: str) -> None:
        self.is_closed = True


class _Checks:
    def submit(self, client_host: str, check: Callable[[], None]) -> None:
        check()


def _authentication() -> ListenerAuthentication:
    def scram() -> ScramExchange:
        return ScramExchange(ScramMechanism.SCRAM_SHA_256, _DIRECTORY.find, "ours")

    keys = replace(
        SaslKeys(),
        sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"),
        sasl_oauthbearer_jwks_endpoint_url="file:///x",
        sasl_oauthbearer_allow_unverified_audience=True,
        sasl_oauthbearer_allow_unverified_issuer=True,
        connections_max_reauth_ms=1000,
    )
    return ListenerAuthentication(
        name="L",
        sasl=SaslConfig(keys=keys),
        exchanges={
            "PLAIN": lambda: PlainExchange(_LISTED.is_password),
            "SCRAM-SHA-256": scram,
            "OAUTHBEARER": lambda: OAuthExchange(
                lambda token, _: check_token(token, _KEYS, TokenRules(), _NOW_S * 1000)
            ),
        },
        checks=cast("Any", _Checks()),
        events=EventGroup(),
        counts=AuthenticationCounts(),
        clock=ManualClock(),
    )


_HOST: Final = ConnectionHost(
    router=cast("Any", None),
    registry=cast("Any", None),
    memory=cast("Any", None),
    metrics=RequestMetrics(),
    frame_bytes_max=1 << 20,
    access_of=lambda _principal, _host: UNLIMITED,
)
_AUTHENTICATION: Final = _authentication()


def _framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">H", len(frame)) + frame for frame in frames)


def _versions(version: int = 3) -> bytes:
    api = ApiKey.API_VERSIONS
    named = {"client_software_name": "x", "client_software_version": "1"}
    return request_header(api, version, 1) + encode_request(api, version, named)


def _handshake(mechanism: str, version: int = 1) -> bytes:
    api = ApiKey.SASL_HANDSHAKE
    return request_header(api, version, 2) + encode_request(api, version, {"mechanism": mechanism})


def _proof(message: bytes, version: int = 2) -> bytes:
    api = ApiKey.SASL_AUTHENTICATE
    body = encode_request(api, version, {"auth_bytes": message})
    return request_header(api, version, 3) + body


_SOUND: Final = plain("alice", PASSWORD)


@target(
    _framed(_versions(), _handshake("PLAIN"), _proof(_SOUND), _versions()),
    _framed(_handshake("PLAIN", 0), _SOUND),
    _framed(_handshake("SCRAM-SHA-256"), _proof(b"n,,n=alice,r=x", 0), _proof(b"c=biws", 1)),
    _framed(_handshake("SCRAM-SHA-256", 0), b"n,,n=alice,r=x", b"c=biws,r=xours,p=AAAA"),
    _framed(_handshake("OAUTHBEARER"), _proof(bearer(_TOKEN))),
    _framed(_handshake("OAUTHBEARER"), _proof(bearer("bad")), _proof(b"\x01")),
    _framed(_handshake("PLAIN"), _proof(_SOUND), _handshake("PLAIN"), _proof(_SOUND)),
    _framed(_handshake("GSSAPI"), _proof(_SOUND)),
)
def sasl_frames(data: bytes) -> None:
    """Frames one after the other, each behind its size in two bytes.

    Nobody is let in without a password or a token, and every frame is answered, closes the
    connection, or passes.
    """
    session = guarded(LOCAL_SESSION, _AUTHENTICATION, _HOST, 0.0)
    connection = _Connection(session)
    at, answered = 0, 0
    while at + 2 <= len(data) and not connection.is_closed:
        (size,) = struct.unpack_from(">H", data, at)
        frame = memoryview(data)[at + 2 : at + 2 + size]
        at += 2 + size
        gate = connection.session.gate
        if gate is None or not len(frame):
            continue
        assert isinstance(gate, SaslGate)
        was_unknown = connection.session.principal is ANONYMOUS
        try:
            passes = gate.admits(connection, frame, 0, len(frame))
        except FormatError:
            break
        if passes:
            is_versions = len(frame) >= 2 and struct.unpack_from(">h", frame) == (18,)
            assert is_versions or not was_unknown
            continue
        answered += 1
        assert connection.sent == answered
        assert not connection.answers
    if connection.session.principal is not ANONYMOUS:
        assert connection.session.principal.name == "alice"
        assert PASSWORD.encode() in data or _TOKEN[:80].encode() in data
