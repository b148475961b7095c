"""TLS records of strangers, and what is read about users, rules and certificates. See `targets`."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final, cast

import trustme

from cordwood.broker.config.tls_config import TlsConfig
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.broker.security.tls_context import make_context
from cordwood.errors import FormatError
from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.access.acl_filter import InvalidRuleError
from cordwood.security.access.acl_text import parse_kafka_list
from cordwood.security.certificates.certificate import Certificate, certificates_in
from cordwood.security.certificates.principal_mapping import PrincipalMapping
from cordwood.security.security_document import (
    SecurityDocument,
    decode_security,
    encode_security,
)
from cordwood.security.security_state import AclRule, QuotaEntity
from fakes.sasl_clients import state_of
from fakes.tls_files import TlsFiles
from fuzz.target import target

# --- TLS ----------------------------------------------------------------------------------------


class _Stream:
    """A socket that delivers `data` in portions; then the client has left, if it `is_over`."""

    def __init__(self, data: bytes, portion: int, *, is_over: bool) -> None:
        self.data, self.is_over = data, is_over
        self.portion = portion
        self.sent = bytearray()

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not (self.data or self.is_over):
            raise BlockingIOError
        got = self.data[: min(size, self.portion)]
        if not flags:
            self.data = self.data[len(got) :]
        return got

    def send(self, data: bytes | memoryview) -> int:
        self.sent += data
        return len(data)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    with tempfile.TemporaryDirectory() as directory:
        files = TlsFiles(Path(directory))
        broker = make_context(TlsConfig(ssl_keystore_location=files.broker)).context
        return broker, files.client_context()


_BROKER, _CLIENT = _contexts()


def _hello(version: ssl.TLSVersion) -> bytes:
    """The first message of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = version
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise AssertionError("a handshake without an answer")


def _received(broker: TlsSocket) -> bytes:
    """Everything that a connection reads until it has nothing more."""
    buffer, found = memoryview(bytearray(64 * 1024)), b""
    for _ in range(1000):
        try:
            count = broker.recv_into(buffer)
        except BlockingIOError:
            if not broker.has_more:
                return found
            continue
        if not count:
            return found
        found += buffer[:count]
    raise AssertionError("reading does not end")


@target(
    b"\xff" + _hello(ssl.TLSVersion.TLSv1_2),
    b"\x05" + _hello(ssl.TLSVersion.TLSv1_3),
    b"\xff" + bytes.fromhex("1403030001011503030002010017030300050000000000"),
    b"\xffGET / HTTP/1.1\r\n\r\n",
)
def tls_handshake(data: bytes) -> None:
    """The first bytes of a connection; the first one is the size of portions. Nobody gets in."""
    stream = _Stream(data[1:], 1 + (data[0] if data else 0), is_over=True)
    broker = TlsSocket(cast("Any", stream), _BROKER)
    try:
        for _ in range(2 + len(data)):  # one byte at a time is progress, too
            try:
                broker.do_handshake()
            except BlockingIOError:
                continue
            raise AssertionError("a handshake without the client's answer")
        raise AssertionError("the handshake does not end")
    except ssl.SSLError:
        assert len(stream.sent) < 64 * 1024
    finally:
        broker.close()


@target(
    b"\xff" + bytes.fromhex("1703030005") + b"\0" * 5,
    b"\x03" + bytes.fromhex("150303000201001403030001011603030004000000001803030002"),
    b"\x40" + bytes.fromhex("160301000401000000"),
)
def tls_records(data: bytes) -> None:
    """Bytes that somebody puts behind the records of a client: none of them is believed."""
    client, stream, broker = _connected()
    client.write(b"before")
    stream.data += client.flush()
    assert _received(broker) == b"before"
    stream.data, stream.is_over = data[1:], True
    stream.portion = 1 + (data[0] if data else 0)
    with contextlib.suppress(ssl.SSLError):
        assert _received(broker) == b""
    broker.close()


class _Client:
    """The other end, in memory."""

    def __init__(self) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = _CLIENT.wrap_bio(self._in, self._out, server_hostname="localhost")

    def do_handshake(self) -> None:
        self.tls.do_handshake()

    def write(self, data: bytes) -> None:
        self.tls.write(data)

    def take(self, data: bytearray) -> None:
        self._in.write(bytes(data))
        data.clear()

    def flush(self) -> bytes:
        return self._out.read()


def _connected() -> tuple[_Client, _Stream, TlsSocket]:
    client, stream = _Client(), _Stream(b"", 64 * 1024, is_over=False)
    broker = TlsSocket(cast("Any", stream), _BROKER)
    waiting: list[_Client | TlsSocket] = [client, broker]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            else:
                waiting.remove(side)
            stream.data += client.flush()
            client.take(stream.sent)
    return client, stream, broker


# --- certificates -------------------------------------------------------------------------------

_MADE: Final = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert(
    "a.example",
    "127.0.0.1",
    "::1",
    "a@b.example",
    common_name="ü, b",
    key_type=trustme.KeyType.ECDSA,
)
_PEM: Final = _MADE.cert_chain_pems[0].bytes()


@target(certificates_in(_PEM.decode())[0])
def certificate(data: bytes) -> None:
    found = Certificate.decode(data)
    assert found.subject.isascii() or found.subject
    assert all(name for name in found.alternative_names)


@target(_PEM, refusals=(FormatError, UnicodeDecodeError))
def certificate_text(data: bytes) -> None:
    certificates_in(data.decode())


@target(
    rb"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT",
    rb"RULE:^.*CN=([a-z]+)\/x$/a$1\$/U,RULE:.*/x/",
    refusals=(ValueError,),
)
def principal_rules(data: bytes) -> None:
    mapping = PrincipalMapping(data.decode())
    for subject in ("CN=a,OU=b,O=c", "CN=" + "a" * 900, ""):
        mapping.name_of(subject)


# --- the security file, and rules as text -------------------------------------------------------

_STATE: Final = state_of(("alice", "pencil"))
_RULE: Final = AclRule(
    AclResource.TOPIC,
    AclPattern.PREFIXED,
    "or",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


def _document() -> bytes:
    state = type(_STATE)(
        credentials=_STATE.credentials,
        rules=frozenset({_RULE}),
        quotas={QuotaEntity("alice", None, None): {"producer_byte_rate": 1024.0}},
    )
    return encode_security(SecurityDocument(state, b"x" * 32))


@target(_document())
def security_document(data: bytes) -> None:
    found = decode_security(data)
    assert decode_security(encode_security(found)) == found


_LIST: Final = """\
Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`:
 \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)
 \t(principal=User:CN=b,O=c, host=10.0.0.1, operation=DESCRIBE_CONFIGS, permissionType=DENY)
"""


@target(_LIST.encode(), refusals=(InvalidRuleError, UnicodeDecodeError))
def acl_list(data: bytes) -> None:
    for rule in parse_kafka_list(data.decode().split("\n")):
        assert rule.principal
        assert rule.pattern in {AclPattern.LITERAL, AclPattern.PREFIXED}
