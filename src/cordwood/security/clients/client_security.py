"""How a client of ours connects: in clear text or with TLS, and as which user.

    PLAINTEXT        neither
    SSL              TLS; the client may have a certificate of its own
    SASL_PLAINTEXT   the client authenticates, and everybody on the way can read along
    SASL_SSL         both

The broker's certificate is always checked, and so is the host name in it, unless that alone is
switched off. Errors name keys of Kafka's property files; no error and no repr shows a secret.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.sasl.sasl_client import (
    CLIENT_MECHANISMS,
    OAUTHBEARER,
    SaslClient,
    sasl_client,
)
from cordwood.security.sasl.scram_client import SaslError
from cordwood.security.secret import Secret
from cordwood.security.secret_references import read_secret_file
from cordwood.value_class import dataclass

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


class ClientProtocol(StrEnum):
    """Kafka's ``security.protocol``."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in {ClientProtocol.SSL, ClientProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        return self in {ClientProtocol.SASL_PLAINTEXT, ClientProtocol.SASL_SSL}

    @classmethod
    def of(cls, *, tls: bool, sasl: bool) -> "ClientProtocol":
        return cls(f"{'SASL_' if sasl else ''}{'SSL' if tls else 'PLAINTEXT'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Validated on construction, except for the files it names: see the module.

    trust          who signs the certificates of brokers; None: the authorities of the system
    identity       the certificate of this client
    password_file  read for each connection, so that a password can be replaced meanwhile
    token          returns a token of OAUTHBEARER, called for each authentication
    token_file     a file with the token, likewise
    """

    protocol: ClientProtocol = ClientProtocol.PLAINTEXT
    trust: CertificateStore | None = None
    identity: CertificateStore | None = None
    is_host_verified: bool = True
    tls_versions: tuple[str, ...] = TLS_VERSIONS
    mechanism: str = "SCRAM-SHA-256"
    user: str = ""
    password: Secret | None = None
    password_file: str | None = None
    token: Callable[[], str] | None = None
    token_file: str | None = None

    def __post_init__(self) -> None:
        if not self.tls_versions or not set(self.tls_versions) <= set(TLS_VERSIONS):
            raise ConfigError(
                "ssl.enabled.protocols",
                ",".join(self.tls_versions),
                f"must be a list with items from {', '.join(TLS_VERSIONS)}",
            )
        if self.protocol.has_sasl:
            self._check_sasl()

    def _check_sasl(self) -> None:
        if self.mechanism not in CLIENT_MECHANISMS:
            raise ConfigError(
                "sasl.mechanism", self.mechanism, f"must be one of {', '.join(CLIENT_MECHANISMS)}"
            )
        if self.mechanism == OAUTHBEARER:
            if (self.token is None) == (self.token_file is None):
                raise ConfigError(
                    "sasl.mechanism", self.mechanism, "needs a token: give the file that holds it"
                )
        elif not self.user:
            raise ConfigError("sasl.mechanism", self.mechanism, "needs a user")
        elif (self.password is None) == (self.password_file is None):
            raise ConfigError(
                "sasl.mechanism", self.mechanism, "needs a password, or a file that holds it"
            )

    @property
    def who(self) -> str:
        """The user, for messages."""
        return f"user {self.user!r}" if self.user else "the client"

    def sasl_client(self) -> SaslClient:
        """A new exchange. Raises `ConfigError` if the password or token cannot be had."""
        assert self.protocol.has_sasl, self.protocol
        try:
            if self.mechanism == OAUTHBEARER:
                token = _read("token file", self.token_file) if self.token is None else self.token()
                return sasl_client(self.mechanism, token=Secret(token.strip()))
            return sasl_client(self.mechanism, user=self.user, password=self.current_password())
        except SaslError as error:
            raise ConfigError("sasl.mechanism", self.mechanism, str(error)) from None

    def current_password(self) -> Secret:
        """The password as it is now. Raises `ConfigError` if its file cannot be read."""
        if self.password_file is None:
            assert self.password is not None, self.mechanism
            return self.password
        return Secret(_read("password file", self.password_file).strip("\r\n"))


PLAINTEXT: Final = ClientSecurity()


def _read(what: str, path: str | None) -> str:
    assert path is not None
    try:
        return read_secret_file(path, lambda _path: None)
    except ValueError as error:
        raise ConfigError(what, path, str(error)) from None
