"""Keys of TLS: Kafka's, with Kafka's names. Each can be set for one listener alone.

A key and its certificates come as PEM, in a file or as the value itself, or as a PKCS12 file.
"""

from typing import Final

from cordwood.broker.config.keyed_config import check_keys, keys_of
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, config_field
from cordwood.value_class import dataclass

_TEXT, _LIST, _BOOLEAN = ConfigKind.TEXT, ConfigKind.LIST, ConfigKind.BOOLEAN
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The TLS of one listener. Files are read when the listener opens, and again as they change."""

    ssl_keystore_type: str | None = config_field(
        "ssl.keystore.type", _TEXT, "",
        "The form of the key store: PEM or PKCS12; empty: by the ending of the file's name. "
        "Kafka's default is JKS, which Cordwood does not read.",
        choices=_STORE_TYPES, none_text="",
    )  # fmt: skip
    ssl_keystore_location: str | None = config_field(
        "ssl.keystore.location", _TEXT, "",
        "The file with the broker's private key and its certificates.", none_text="",
    )  # fmt: skip
    ssl_keystore_password: str | None = config_field(
        "ssl.keystore.password", _TEXT, "", "The password of a PKCS12 key store.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    ssl_key_password: str | None = config_field(
        "ssl.key.password", _TEXT, "", "The password of an encrypted PEM key.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    ssl_keystore_key: str | None = config_field(
        "ssl.keystore.key", _TEXT, "", "The private key itself, as PEM, instead of a file.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    ssl_keystore_certificate_chain: str | None = config_field(
        "ssl.keystore.certificate.chain", _TEXT, "",
        "The certificates themselves, as PEM, the broker's first; with ssl.keystore.key.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    ssl_truststore_type: str | None = config_field(
        "ssl.truststore.type", _TEXT, "",
        "The form of the trust store: PEM or PKCS12; empty: by the ending of the file's name.",
        choices=_STORE_TYPES, none_text="",
    )  # fmt: skip
    ssl_truststore_location: str | None = config_field(
        "ssl.truststore.location", _TEXT, "",
        "The file with the certificates that sign the certificates of clients.", none_text="",
    )  # fmt: skip
    ssl_truststore_password: str | None = config_field(
        "ssl.truststore.password", _TEXT, "", "The password of a PKCS12 trust store.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    ssl_truststore_certificates: str | None = config_field(
        "ssl.truststore.certificates", _TEXT, "",
        "These certificates themselves, as PEM, instead of a file.",
        none_text="", is_sensitive=True,
    )  # fmt: skip
    ssl_client_auth: str = config_field(
        "ssl.client.auth", _TEXT, "none",
        "Whether clients must (required) or may (requested) have a certificate of their own.",
        choices=("none", "requested", "required"),
    )  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = config_field(
        "ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "The versions of TLS that are accepted.",
        choices=_PROTOCOLS,
    )  # fmt: skip
    ssl_cipher_suites: tuple[str, ...] = config_field(
        "ssl.cipher.suites", _LIST, "",
        "The cipher suites that are accepted, by their IANA names; empty: those of OpenSSL.",
    )  # fmt: skip
    ssl_principal_mapping_rules: str = config_field(
        "ssl.principal.mapping.rules", _TEXT, "DEFAULT",
        "How the subject of a client's certificate becomes the name of its user: "
        "RULE:pattern/replacement/[LU], comma-separated, the first that matches; DEFAULT: the "
        "whole subject.",
    )  # fmt: skip
    ssl_endpoint_identification_algorithm: str | None = config_field(
        "ssl.endpoint.identification.algorithm", _TEXT, "https",
        "https: the certificates of other brokers and of controllers must have the host name that "
        "this broker connects to. Empty: they need not.",
        choices=("https",), none_text="",
    )  # fmt: skip
    ssl_allow_dn_changes: bool = config_field(
        "ssl.allow.dn.changes", _BOOLEAN, "false",
        "Whether a reloaded certificate may have another subject.",
    )  # fmt: skip
    ssl_allow_san_changes: bool = config_field(
        "ssl.allow.san.changes", _BOOLEAN, "false",
        "Whether a reloaded certificate may lack an alternative name of the one before.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_keys(self)
        if not self.ssl_enabled_protocols:
            raise ConfigError("ssl.enabled.protocols", "", "must not be empty")
        if self.ssl_keystore_key is not None and self.ssl_keystore_certificate_chain is None:
            raise ConfigError(
                "ssl.keystore.certificate.chain", "", "must be set, because ssl.keystore.key is"
            )


TLS_KEYS: Final[tuple[ConfigKey, ...]] = keys_of(TlsConfig)
