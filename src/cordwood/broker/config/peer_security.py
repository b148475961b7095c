"""How a member of a cluster connects to controllers and other brokers: Kafka's keys of a broker.

A listener of others is reached with the keys that a listener of one's own has:

    listener.security.protocol.map=CONTROLLER:SASL_SSL,INTERNAL:SASL_SSL,...
    inter.broker.listener.name=INTERNAL                   or security.inter.broker.protocol=SASL_SSL
    sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
    sasl.mechanism.controller.protocol=PLAIN
    listener.name.internal.scram-sha-512.sasl.jaas.config=...       user and password of this broker
    listener.name.internal.oauthbearer.sasl.oauthbearer.token.endpoint.url=file:///...     its token
    ssl.truststore.location=..., ssl.keystore.location=...          or listener.name.internal.ssl...
"""

from cordwood.broker.config.keyed_config import render_keys
from cordwood.broker.config.listeners import SecurityProtocol
from cordwood.broker.config.tls_config import TlsConfig
from cordwood.errors import ConfigError
from cordwood.security.clients.client_properties import SECURITY_KEYS, parse_client_properties
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.value_class import dataclass, field

_JAAS = "sasl.jaas.config"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_OAUTHBEARER = "OAUTHBEARER"
_VERIFICATION = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSecurity:
    """How to connect to `brokers`, at their listeners named `listener`, and to `controllers`."""

    listener: str
    brokers: ClientSecurity
    controllers: ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundWay:
    """The keys for connections to listeners of one name; `mechanism_key` is that of `mechanism`."""

    listener: str
    protocol: SecurityProtocol
    tls: TlsConfig
    mechanism_key: str
    mechanism: str | None = None
    jaas: str | None = field(default=None, repr=False)
    token_url: str | None = None

    def client_security(self) -> ClientSecurity:
        """Raises `ConfigError`, which names the key."""
        given: dict[str, str] = {"security.protocol": self.protocol}
        if self.protocol.is_encrypted:
            # An empty value counts as none, except where it switches the check of names off.
            given |= {
                key: text
                for key, text in render_keys(self.tls).items()
                if key in SECURITY_KEYS and (text or key == _VERIFICATION)
            }
        if self.protocol.has_sasl:
            given |= self._sasl()
        prefix = f"listener.name.{self.listener.lower()}."
        try:
            return parse_client_properties(given).security
        except ConfigError as error:
            if error.key == "sasl.mechanism":
                raise ConfigError(self.mechanism_key, error.value, error.reason) from None
            raise ConfigError(prefix + error.key, error.value, error.reason) from None

    def _sasl(self) -> dict[str, str]:
        if self.mechanism is None:
            raise ConfigError(
                self.mechanism_key,
                "",
                f"must be set, because {self.listener} has {self.protocol}; use SCRAM-SHA-512, "
                "SCRAM-SHA-256, PLAIN or OAUTHBEARER",
            )
        own = f"listener.name.{self.listener.lower()}.{self.mechanism.lower()}."
        if self.mechanism == _OAUTHBEARER:
            if self.token_url is None:
                raise ConfigError(
                    own + _TOKEN_URL,
                    "",
                    f"must name the file with the token of this broker for {self.listener}, such "
                    "as file:///run/secrets/token",
                )
            given = {"sasl.mechanism": self.mechanism, _TOKEN_URL: self.token_url}
            return given if self.jaas is None else {**given, _JAAS: self.jaas}
        if self.jaas is None:
            raise ConfigError(
                own + _JAAS,
                "",
                f"must have the user and the password of this broker for {self.listener}",
            )
        return {"sasl.mechanism": self.mechanism, _JAAS: self.jaas}
