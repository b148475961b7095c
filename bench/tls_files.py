"""One certificate and one set of TLS settings for every server of a row.

TLS 1.3 with AES-256-GCM, a key on P-256: what both servers choose by default. A connection with
other parameters is an error, so no row compares two ciphers. librdkafka's connections cannot be
checked; it prefers the same cipher, and Kafka is limited to it.
"""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.security.certificates.certificate_authority import CertificateAuthority

VERSION: Final = "TLSv1.3"
CIPHER: Final = "TLS_AES_256_GCM_SHA384"

_NAME: Final = "localhost"


class TlsDiffersError(Exception):
    """A server negotiated other parameters than the row compares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """What a client needs to connect."""

    ca: Path
    context: ssl.SSLContext

    @property
    def librdkafka(self) -> Mapping[str, str]:
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.ca)}

    def begun(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection before its handshake, which the caller does."""
        return self.context.wrap_socket(
            connection, server_hostname=_NAME, do_handshake_on_connect=False
        )

    def wrapped(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection after its handshake. Closes it if that fails."""
        tls = self.begun(connection)
        try:
            tls.do_handshake()
            check_parameters(tls)
        except BaseException:
            tls.close()
            raise
        return tls


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The key store of all servers, and their clients."""

    key_store: Path
    client: ClientTls

    @property
    def server_properties(self) -> Mapping[str, str]:
        return {"ssl.keystore.location": str(self.key_store), "ssl.enabled.protocols": VERSION}

    @property
    def kafka_properties(self) -> Mapping[str, str]:
        return {
            **self.server_properties,
            "ssl.keystore.type": "PEM",
            "ssl.cipher.suites": CIPHER,
        }


def create_tls_files(directory: Path) -> TlsFiles:
    """An authority, and a certificate for this machine."""
    directory.mkdir(parents=True)
    authority = CertificateAuthority.create("bench")
    ca, key_store = directory / "ca.pem", directory / "server.pem"
    ca.write_bytes(authority.certificate_pem)
    key_store.touch(mode=0o600)
    key_store.write_bytes(authority.issue("server", [_NAME, "127.0.0.1"]).store_pem)
    return TlsFiles(key_store=key_store, client=client_tls(ca))


def client_tls(ca: Path) -> ClientTls:
    context = ssl.create_default_context(cafile=str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return ClientTls(ca=ca, context=context)


def check_parameters(tls: ssl.SSLSocket) -> None:
    cipher = tls.cipher()
    found = (tls.version(), None if cipher is None else cipher[0])
    if found != (VERSION, CIPHER):
        raise TlsDiffersError(f"{found} was negotiated instead of {(VERSION, CIPHER)}")
