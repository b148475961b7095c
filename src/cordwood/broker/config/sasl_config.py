"""Keys of SASL: Kafka's, with Kafka's names. Each can be set for one listener alone.

Kafka also sets some of them for one mechanism of one listener:
``listener.name.external.scram-sha-256.connections.max.reauth.ms``; see `mechanism_overrides`.
"""

from collections.abc import Mapping
from typing import Final

from cordwood.broker.config.keyed_config import check_keys, keys_of
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, config_field
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass, field

_TEXT, _LIST, _BOOLEAN = ConfigKind.TEXT, ConfigKind.LIST, ConfigKind.BOOLEAN
_DURATION, _SIZE = ConfigKind.DURATION, ConfigKind.SIZE
_INTEGER = ConfigKind.INTEGER

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslKeys:
    """How clients of a listener authenticate."""

    sasl_enabled_mechanisms: tuple[str, ...] = config_field(
        "sasl.enabled.mechanisms", _LIST, "SCRAM-SHA-256,SCRAM-SHA-512",
        "The mechanisms that clients may use. Kafka's default is GSSAPI, which Cordwood does not "
        "have.",
        choices=MECHANISMS,
    )  # fmt: skip
    sasl_jaas_config: str | None = config_field(
        "sasl.jaas.config", _TEXT, "",
        "Users of PLAIN in Kafka's form, user_alice=\"password\". Without it, PLAIN accepts the "
        "same users and passwords as SCRAM.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    sasl_plain_insecure: bool = config_field(
        "sasl.plain.insecure", _BOOLEAN, "false",
        "Whether PLAIN may be used without TLS, where everybody on the way can read the password.",
        since_cordwood=True,
    )  # fmt: skip
    sasl_server_max_receive_size: int = config_field(
        "sasl.server.max.receive.size", _SIZE, "65536",
        "The largest request before a client is authenticated. Kafka's default is 524288, because "
        "of Kerberos.",
        minimum=1024, maximum=INT32_MAX,
    )  # fmt: skip
    connections_max_reauth_ms: int = config_field(
        "connections.max.reauth.ms", _DURATION, "0",
        "Clients must authenticate again after this long; 0: never.",
    )  # fmt: skip
    sasl_server_authn_timeout_ms: int = config_field(
        "sasl.server.authn.timeout.ms", _DURATION, "10000",
        "A client that is not authenticated after this long is disconnected. Also the limit of a "
        "TLS handshake.",
        minimum=1, maximum=INT32_MAX, since_cordwood=True,
    )  # fmt: skip
    connection_failed_authentication_delay_ms: int = config_field(
        "connection.failed.authentication.delay.ms", _DURATION, "100",
        "How long a client waits for the answer that its authentication failed. The connection is "
        "closed after it.",
        maximum=60_000,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_url: str | None = config_field(
        "sasl.oauthbearer.jwks.endpoint.url", _TEXT, "",
        "Where the keys of the issuer of tokens are: an https or a file URL.", none_text="",
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = config_field(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _DURATION, "3600000",
        "How often these keys are fetched.", minimum=1,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = config_field(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _DURATION, "100",
        "The first pause after a fetch that failed; it doubles each time.", minimum=1,
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = config_field(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _DURATION, "10000",
        "The longest pause after a fetch that failed.", minimum=1,
    )  # fmt: skip
    sasl_oauthbearer_token_endpoint_url: str | None = config_field(
        "sasl.oauthbearer.token.endpoint.url", _TEXT, "",
        "In a cluster, with OAUTHBEARER to brokers or controllers: the file that has the token of "
        "this broker, such as file:///run/secrets/token. It is read for each authentication. "
        "Kafka's brokers may also ask a server; Cordwood's do not.",
        none_text="",
    )  # fmt: skip
    sasl_oauthbearer_expected_audience: tuple[str, ...] = config_field(
        "sasl.oauthbearer.expected.audience", _LIST, "", "A token must be for one of these.",
    )  # fmt: skip
    sasl_oauthbearer_expected_issuer: str | None = config_field(
        "sasl.oauthbearer.expected.issuer", _TEXT, "", "A token must be from this issuer.",
        none_text="",
    )  # fmt: skip
    sasl_oauthbearer_allow_unverified_audience: bool = config_field(
        "sasl.oauthbearer.allow.unverified.audience", _BOOLEAN, "false",
        "Whether tokens for any audience are accepted, if none is expected.",
    )  # fmt: skip
    sasl_oauthbearer_allow_unverified_issuer: bool = config_field(
        "sasl.oauthbearer.allow.unverified.issuer", _BOOLEAN, "false",
        "Whether tokens of any issuer are accepted, if none is expected.",
    )  # fmt: skip
    sasl_oauthbearer_clock_skew_seconds: int = config_field(
        "sasl.oauthbearer.clock.skew.seconds", _INTEGER, "30",
        "By how much the clock of the issuer may differ.", maximum=INT32_MAX,
    )  # fmt: skip
    sasl_oauthbearer_scope_claim_name: str = config_field(
        "sasl.oauthbearer.scope.claim.name", _TEXT, "scope", "The claim that holds the scope.",
    )  # fmt: skip
    sasl_oauthbearer_sub_claim_name: str = config_field(
        "sasl.oauthbearer.sub.claim.name", _TEXT, "sub", "The claim that names the user.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_keys(self)
        if not self.sasl_enabled_mechanisms:
            raise ConfigError("sasl.enabled.mechanisms", "", "must not be empty")
        if "OAUTHBEARER" in self.sasl_enabled_mechanisms:
            self._check_tokens()

    def _check_tokens(self) -> None:
        if self.sasl_oauthbearer_jwks_endpoint_url is None:
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url", "", "must be set for OAUTHBEARER"
            )
        if not (
            self.sasl_oauthbearer_expected_audience
            or self.sasl_oauthbearer_allow_unverified_audience
        ):
            raise ConfigError(
                "sasl.oauthbearer.expected.audience",
                "",
                "must be set for OAUTHBEARER, or a token for any other service would be accepted; "
                "sasl.oauthbearer.allow.unverified.audience=true allows that",
            )
        if self.sasl_oauthbearer_expected_issuer is None and not (
            self.sasl_oauthbearer_allow_unverified_issuer
        ):
            raise ConfigError(
                "sasl.oauthbearer.expected.issuer",
                "",
                "must be set for OAUTHBEARER; sasl.oauthbearer.allow.unverified.issuer=true "
                "accepts any issuer",
            )


SASL_KEYS: Final[tuple[ConfigKey, ...]] = keys_of(SaslKeys)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The SASL of one listener. `by_mechanism` has the keys of each mechanism that is enabled."""

    keys: SaslKeys
    by_mechanism: Mapping[str, SaslKeys] = field(default_factory=dict)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self.keys.sasl_enabled_mechanisms

    def of(self, mechanism: str) -> SaslKeys:
        return self.by_mechanism.get(mechanism, self.keys)
