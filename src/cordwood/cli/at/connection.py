"""How a command connects to a broker: options of the command line, variables, property files.

    --tls --ca FILE --cert FILE --cert-key FILE --no-verify-host     TLS
    --user NAME --password-file FILE --mechanism NAME --token-file FILE   SASL
    --command-config FILE, -X KEY=VALUE                              Kafka's client properties

Options count more than properties. A password comes from a file, from CORDWOOD_PASSWORD, or from
the terminal; never from the command line, which every user of the machine can read.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.errors import ConfigError, FormatError, is_secret_key
from cordwood.value_class import dataclass, replace

if TYPE_CHECKING:
    from cordwood.security.clients.client_properties import ClientProperties
    from cordwood.security.clients.client_security import ClientSecurity
    from cordwood.security.secret import Secret

PASSWORD_VARIABLE: Final = "CORDWOOD_PASSWORD"
KEY_PASSWORD_VARIABLE: Final = "CORDWOOD_KEY_PASSWORD"

_COMMAND_CONFIG: Final = "--command-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The options as they were given, without the passwords."""

    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    no_verify_host: bool = False
    user: str | None = None
    password_file: str | None = None
    mechanism: str | None = None
    token_file: str | None = None
    command_config: str | None = None
    client_properties: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == _NONE

    def bootstrap_servers(self, environment: Mapping[str, str]) -> str | None:
        """The brokers that the property file names."""
        found = self._properties(environment)
        return None if found is None else found.bootstrap_servers

    def security(
        self, environment: Mapping[str, str], ask_password: Callable[[str], str] | None
    ) -> "ClientSecurity | None":
        """What the options mean; None if there are none. `ask_password` asks at the terminal."""
        if self.is_empty:
            return None
        from cordwood.security.clients.client_security import PLAINTEXT, ClientProtocol

        found = self._properties(environment)
        base = PLAINTEXT if found is None else found.security
        if self.cert_key and not self.cert:
            raise ConfigError("--cert-key", self.cert_key, "needs --cert, the certificate")
        changes: dict[str, object] = self._tls_changes(environment)
        changes |= self._sasl_changes(base, environment, ask_password)
        protocol = ClientProtocol.of(
            tls=self._has_tls or base.protocol.has_tls,
            sasl=base.protocol.has_sasl or self.user is not None or self.token_file is not None,
        )
        if self.mechanism is not None and not protocol.has_sasl:
            raise ConfigError("--mechanism", self.mechanism, "needs --user")
        if self.password_file is not None and not protocol.has_sasl:
            raise ConfigError("--password-file", self.password_file, "needs --user")
        return replace(base, protocol=protocol, **changes)  # type: ignore[arg-type]

    @property
    def _has_tls(self) -> bool:
        return bool(self.tls or self.ca or self.cert)

    def _tls_changes(self, environment: Mapping[str, str]) -> dict[str, object]:
        from cordwood.security.certificates.certificate_store import CertificateStore
        from cordwood.security.secret import Secret

        changes: dict[str, object] = {}
        given = environment.get(KEY_PASSWORD_VARIABLE)
        password = Secret(given) if given else None
        if self.ca is not None:
            changes["trust"] = CertificateStore(option="--ca", location=self.ca)
        if self.cert is not None:
            changes["identity"] = CertificateStore(
                option="--cert",
                location=self.cert,
                key_location=self.cert_key,
                password=password,
                key_password=password,
            )
        if self.no_verify_host:
            changes["is_host_verified"] = False
        return changes

    def _sasl_changes(
        self,
        base: "ClientSecurity",
        environment: Mapping[str, str],
        ask_password: Callable[[str], str] | None,
    ) -> dict[str, object]:
        changes: dict[str, object] = {}
        if self.mechanism is not None:
            changes["mechanism"] = self.mechanism.upper()
        if self.token_file is not None:
            changes |= {"token_file": self.token_file, "mechanism": "OAUTHBEARER"}
        if self.user is not None:
            changes["user"] = self.user
        if self.password_file is not None:
            changes |= {"password": None, "password_file": self.password_file}
        elif self.user is not None and (base.password is None or self.user != base.user):
            changes["password"] = _password(self.user, environment, ask_password)
        return changes

    def _properties(self, environment: Mapping[str, str]) -> "ClientProperties | None":
        if self.command_config is None and not self.client_properties:
            return None
        from cordwood.security.clients.client_properties import parse_client_properties

        given: dict[str, str] = {}
        if self.command_config is not None:
            given = _read_properties(self.command_config, environment)
        for text in self.client_properties:
            name, equals, value = text.partition("=")
            if is_secret_key(name):
                raise ConfigError(
                    f"-X {name}",
                    value,
                    "every user of this machine can read the command line; use --password-file or "
                    f"{_COMMAND_CONFIG}",
                )
            if not equals or not name.strip():
                raise ConfigError("-X", text, "must be KEY=VALUE")
            given[name.strip()] = value.strip()
        return parse_client_properties(given)


_NONE: Final = ConnectionOptions()


class AtText(str):
    """The text of ``--at``, with the options beside it that say how to connect.

    A command hands it to `parse_target` as it hands over a plain text.
    """

    __slots__ = ("_can_ask", "connection", "flags")

    connection: ConnectionOptions
    _can_ask: bool
    flags: tuple[str, ...]  # options that were given on the command line, not by variables

    def __new__(
        cls,
        text: str,
        connection: ConnectionOptions,
        *,
        flags: tuple[str, ...] = (),
        can_ask: bool = True,
    ) -> "AtText":
        made = super().__new__(cls, text)
        made.connection = connection
        made.flags = flags
        made._can_ask = can_ask
        return made

    def security(self) -> "ClientSecurity | None":
        """Asks for a password if it must and can."""
        ask = _ask_at_terminal if self._can_ask and _has_terminal() else None
        return self.connection.security(os.environ, ask)


def _password(
    user: str, environment: Mapping[str, str], ask_password: Callable[[str], str] | None
) -> "Secret":
    from cordwood.security.secret import Secret

    given = environment.get(PASSWORD_VARIABLE)
    if given:
        return Secret(given)
    if ask_password is None:
        raise ConfigError(
            "--user",
            user,
            f"needs a password: --password-file FILE, or {PASSWORD_VARIABLE} in the environment",
        )
    return Secret(ask_password(user))


def _ask_at_terminal(user: str) -> str:
    import getpass

    return getpass.getpass(f"Password of {user}: ")


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_properties(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    from cordwood.format.small_files.meta_properties import parse_properties
    from cordwood.security.secret_references import read_secret_file, resolve_references

    try:
        written = parse_properties(read_secret_file(path, lambda _path: None))
    except (ValueError, FormatError) as error:
        reason = "is not a properties file" if isinstance(error, FormatError) else str(error)
        raise ConfigError(_COMMAND_CONFIG, path, reason) from None
    found: dict[str, str] = {}
    for key, text in written.items():
        try:
            found[key] = resolve_references(text, environment).text
        except ValueError as error:
            raise ConfigError(key, "", f"{error} (from {path})") from None
    return found
