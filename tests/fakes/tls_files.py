"""Certificates of tests: an authority, the broker's key store, and clients, as files."""

import datetime
import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

BROKER_NAMES = ("localhost", "127.0.0.1")


class TlsFiles:
    """An authority and what it signed, in a directory. `other` is one that nobody trusts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.other = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.ca = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.broker = self.write_broker()

    def _write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        # Replaced as a whole, as a careful operator does it.
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.chmod(0o600)
        new.rename(path)
        return str(path)

    def write_broker(
        self,
        *names: str,
        subject: str = "broker",
        not_after: datetime.datetime | None = None,
        key_type: trustme.KeyType = trustme.KeyType.ECDSA,
    ) -> str:
        """A new key and certificate of the broker, in its key store."""
        made = self.authority.issue_cert(
            *(names or BROKER_NAMES),
            common_name=subject,
            organization_unit_name="brokers",
            not_after=not_after,
            key_type=key_type,
        )
        return self._write("broker.pem", made.private_key_and_cert_chain_pem.bytes())

    def write_mismatch(self) -> str:
        """A key and a certificate that do not belong together."""
        one, other = (
            self.authority.issue_cert(*BROKER_NAMES, key_type=trustme.KeyType.ECDSA)
            for _ in range(2)
        )
        pem = one.private_key_pem.bytes() + other.cert_chain_pems[0].bytes()
        return self._write("broker.pem", pem)

    def client(
        self,
        name: str,
        *,
        authority: trustme.CA | None = None,
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> str:
        """A client's key and certificate, in one file."""
        made = (authority or self.authority).issue_cert(
            f"{name}.example",
            common_name=name,
            organization_unit_name="clients",
            not_before=not_before,
            not_after=not_after,
            key_type=trustme.KeyType.ECDSA,
        )
        chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
        return self._write(f"{name}.pem", _as_pkcs8(made.private_key_pem.bytes()) + chain)

    def listener_config(self, **more: object) -> dict[str, object]:
        """The broker's settings for one TLS listener; `ssl_client_auth="required"` adds a key."""
        config: dict[str, object] = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": self.broker,
            "ssl.truststore.location": self.ca,
        }
        return config | {name.replace("_", "."): value for name, value in more.items()}

    def client_context(
        self, client: str | None = None, *, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """A client that checks the broker."""
        context = ssl.create_default_context(cafile=self.ca)
        if client is not None:
            context.load_cert_chain(client)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


def _as_pkcs8(key: bytes) -> bytes:
    """The only form that Java reads."""
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
