"""SASL over the wire, as the client sees it: what it sends, what it believes, when it repeats."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.errors import AuthenticationFailedError, ConfigError, FormatError
from cordwood.remote.authentication import SASL_AUTHENTICATE, SASL_HANDSHAKE, Authentication
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.secret import Secret

_VERSIONS = {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}


def _string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def handshake(code: int = 0, *mechanisms: str) -> bytes:
    listed = struct.pack(">i", len(mechanisms)) + b"".join(map(_string, mechanisms))
    return struct.pack(">h", code) + listed


def authenticated(
    message: bytes = b"", *, code: int = 0, text: str | None = None, lifetime_ms: int = 0
) -> bytes:
    said = struct.pack(">h", code) + _string(text)
    return said + struct.pack(">i", len(message)) + message + struct.pack(">q", lifetime_ms)


class Peer:
    """Answers what it is given, and keeps what it was sent. Its clock is the test's."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[int, int, bytes]] = []
        self.now_s = 1000.0

    def exchange(self, api: int, version: int, body: bytes) -> memoryview:
        self.sent.append((api, version, body))
        return memoryview(self.answers.pop(0))

    def authentication(self, mechanism: str = "PLAIN", **more: object) -> Authentication:
        fields: dict[str, object] = {"user": "alice", "password": Secret("pencil"), **more}
        security = ClientSecurity(
            protocol=ClientProtocol.SASL_PLAINTEXT,
            mechanism=mechanism,
            **fields,  # type: ignore[arg-type]
        )
        return Authentication(security, "h:9092", self.exchange, lambda: self.now_s)


def test_a_handshake_and_then_the_messages() -> None:
    peer = Peer(handshake(0, "PLAIN"), authenticated())

    peer.authentication().run(_VERSIONS)

    assert peer.sent == [
        (SASL_HANDSHAKE, 1, b"\0\5PLAIN"),
        (SASL_AUTHENTICATE, 1, b"\0\0\0\x0d\0alice\0pencil"),
    ]


def test_an_older_broker_gets_the_older_version() -> None:
    peer = Peer(handshake(), authenticated()[:-8])

    authentication = peer.authentication()
    authentication.run({SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 0)})

    assert peer.sent[1][1] == 0
    assert not authentication.is_due


@pytest.mark.parametrize("lifetime_ms", [1, 1000, 3_600_000])
def test_it_is_repeated_before_the_session_expires(lifetime_ms: int) -> None:
    peer = Peer(handshake(), authenticated(lifetime_ms=lifetime_ms))
    authentication = peer.authentication()
    authentication.run(_VERSIONS)

    def is_due_after(share: float) -> bool:
        peer.now_s = 1000 + share * lifetime_ms / 1000
        return authentication.is_due

    assert [is_due_after(0.84), is_due_after(0.96)] == [False, True]
    peer.answers = [handshake(), authenticated()]
    authentication.run(_VERSIONS)
    assert not is_due_after(0.96)


def test_a_session_without_an_end_is_not_repeated() -> None:
    peer = Peer(handshake(), authenticated())
    authentication = peer.authentication()
    authentication.run(_VERSIONS)

    peer.now_s = 1e12

    assert not authentication.is_due


_SCRAM = "SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([handshake(33, "SCRAM-SHA-512", "OAUTHBEARER")], "offers SCRAM-SHA-512, OAUTHBEARER"),
        ([handshake(33)], "it offers nothing"),
        ([handshake(34)], "has no SASL"),
        ([handshake(29)], "refuses SASL with topic_authorization_failed"),
        ([handshake(), authenticated(code=58, text="nope")], r"user 'alice'.*\(nope\)"),
        ([handshake(), authenticated(code=1234)], "error 1234"),
    ],
)
def test_a_refusal_is_reported_with_what_the_broker_said(
    answers: list[bytes], message: str
) -> None:
    with pytest.raises(AuthenticationFailedError, match=message) as raised:
        Peer(*answers).authentication().run(_VERSIONS)

    assert "pencil" not in str(raised.value)


def test_a_broker_that_accepts_without_proof_is_not_believed() -> None:
    """An impostor says yes at once, or sends a signature that it cannot know."""
    at_once = Peer(handshake(), authenticated())
    with pytest.raises(AuthenticationFailedError, match="has not the form"):
        at_once.authentication(_SCRAM).run(_VERSIONS)

    class Impostor(Peer):
        def exchange(self, api: int, version: int, body: bytes) -> memoryview:
            self.sent.append((api, version, body))
            if api == SASL_HANDSHAKE:
                return memoryview(handshake())
            if len(self.sent) == 2:
                nonce = body.rpartition(b"r=")[2].decode()
                return memoryview(authenticated(f"r={nonce}x,s=c2FsdA==,i=4096".encode()))
            return memoryview(authenticated(b"v=" + b"A" * 43 + b"="))

    with pytest.raises(AuthenticationFailedError, match="signature is wrong"):
        Impostor().authentication(_SCRAM).run(_VERSIONS)


@pytest.mark.parametrize(
    "answers",
    [
        [b""],
        [handshake()[:-1]],
        [b"\0\0\x7f\xff\xff\xff"],
        [handshake(), b"\0\0"],
        [handshake(), b"\0\0\xff\xff\xff\xff\xff\xfe"],
        [handshake(), b"\0\0\xff\xff\x7f\xff\xff\xff"],
    ],
)
def test_an_answer_that_cannot_be_read_is_refused(answers: list[bytes]) -> None:
    with pytest.raises(FormatError):
        Peer(*answers).authentication().run(_VERSIONS)


def test_a_refused_token_is_reported_with_the_reason() -> None:
    peer = Peer(handshake(), authenticated(b'{"status":"invalid_token"}'), authenticated(code=58))
    token: Callable[[], str] = lambda: "abc"  # noqa: E731

    with pytest.raises(AuthenticationFailedError, match="token: invalid_token"):
        peer.authentication("OAUTHBEARER", user="", password=None, token=token).run(_VERSIONS)

    assert peer.sent[-1][2] == b"\0\0\0\1\x01"


def test_a_listener_without_sasl_is_reported() -> None:
    with pytest.raises(AuthenticationFailedError, match="has no SASL; leave out"):
        Peer().authentication().run({18: (0, 4)})


def test_a_password_that_cannot_be_read_is_reported_before_it_is_needed(tmp_path: Path) -> None:
    peer = Peer(handshake())

    with pytest.raises(ConfigError, match="password file"):
        peer.authentication(password=None, password_file=str(tmp_path / "no")).run(_VERSIONS)
