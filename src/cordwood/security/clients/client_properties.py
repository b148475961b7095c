"""Kafka's client properties as a `ClientSecurity`: the keys of Java's clients and of librdkafka.

    security.protocol, sasl.mechanism, sasl.jaas.config, ssl.truststore.*, ssl.keystore.*,
    ssl.key.password, ssl.endpoint.identification.algorithm, ssl.enabled.protocols       Java
    sasl.mechanisms, sasl.username, sasl.password, ssl.ca.location, ssl.ca.pem,
    ssl.certificate.location, ssl.certificate.pem, ssl.key.location, ssl.key.pem         librdkafka

A key of security that is not understood is refused, because its author expects protection from it.
Other keys have no effect here, and are named.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from cordwood.errors import HIDDEN, ConfigError
from cordwood.security.certificates.certificate_store import STORE_KINDS, CertificateStore
from cordwood.security.clients.client_security import TLS_VERSIONS, ClientProtocol, ClientSecurity
from cordwood.security.sasl.jaas import JaasEntry, parse_jaas
from cordwood.security.sasl.sasl_client import CLIENT_MECHANISMS, OAUTHBEARER, PLAIN
from cordwood.security.secret import Secret
from cordwood.value_class import dataclass

SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.")

_BOOTSTRAP: Final = ("bootstrap.servers", "metadata.broker.list")
_PROTOCOL: Final = "security.protocol"
_JAAS: Final = "sasl.jaas.config"
SECURITY_KEYS: Final = frozenset(
    {
        _PROTOCOL,
        _JAAS,
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
    }
)
# Accepted, because they change nothing about how well a connection is protected.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "security.providers",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    }
)
_WITHOUT_EFFECT_PREFIXES: Final = ("sasl.login.refresh.", "sasl.login.retry.", "sasl.kerberos.")
_MODULES: Final = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProperties:
    """What properties say. `without_effect` are the keys of other things."""

    security: ClientSecurity
    bootstrap_servers: str | None = None
    without_effect: tuple[str, ...] = ()


def parse_client_properties(properties: Mapping[str, str]) -> ClientProperties:
    """Raises `ConfigError`, which names the key."""
    given = {key: text.strip() for key, text in properties.items()}
    without_effect: list[str] = []
    for key, text in given.items():
        if key in SECURITY_KEYS or key in _BOOTSTRAP:
            continue
        if key.startswith(SECURITY_PREFIXES) and not _is_idle(key):
            # Perhaps a misspelt password: the name does not tell.
            raise ConfigError(key, HIDDEN if text else "", _unknown(key))
        without_effect.append(key)
    protocol = _protocol(given)
    sasl = _sasl(given) if protocol.has_sasl else _Sasl()
    return ClientProperties(
        security=ClientSecurity(
            protocol=protocol,
            trust=_trust(given) if protocol.has_tls else None,
            identity=_identity(given) if protocol.has_tls else None,
            is_host_verified=_is_host_verified(given),
            tls_versions=_tls_versions(given),
            mechanism=sasl.mechanism,
            user=sasl.user,
            password=sasl.password,
            token_file=sasl.token_file,
        ),
        bootstrap_servers=next((given[key] for key in _BOOTSTRAP if given.get(key)), None),
        without_effect=tuple(without_effect),
    )


def _is_idle(key: str) -> bool:
    return key in _WITHOUT_EFFECT or key.startswith(_WITHOUT_EFFECT_PREFIXES)


def _unknown(key: str) -> str:
    near = get_close_matches(key, sorted(SECURITY_KEYS), n=2, cutoff=0.8)
    if near:
        return f"unknown key; did you mean {' or '.join(near)}?"
    return "is not supported, and connecting without it may be less safe than you expect; remove it"


def _protocol(given: Mapping[str, str]) -> ClientProtocol:
    text = given.get(_PROTOCOL, "")
    if not text:
        others = [key for key in given if key.startswith(("ssl.", "sasl."))]
        if others:
            raise ConfigError(
                _PROTOCOL,
                "",
                f"must be set, or {others[0]} has no effect; one of {', '.join(ClientProtocol)}",
            )
        return ClientProtocol.PLAINTEXT
    try:
        return ClientProtocol(text.upper())
    except ValueError:
        raise ConfigError(_PROTOCOL, text, f"must be one of {', '.join(ClientProtocol)}") from None


# --- TLS ---------------------------------------------------------------------------------------


def _trust(given: Mapping[str, str]) -> CertificateStore | None:
    for key in ("ssl.truststore.location", "ssl.ca.location"):
        location = given.get(key)
        if location and not (key == "ssl.ca.location" and location == "probe"):
            return CertificateStore(
                option=key,
                location=location,
                kind=_kind(given, "ssl.truststore.type") if "truststore" in key else None,
                password=_secret(given, "ssl.truststore.password"),
            )
    for key in ("ssl.truststore.certificates", "ssl.ca.pem"):
        if given.get(key):
            return CertificateStore(option=key, pem=given[key])
    return None


def _identity(given: Mapping[str, str]) -> CertificateStore | None:
    key_password = _secret(given, "ssl.key.password")
    if given.get("ssl.keystore.location"):
        return CertificateStore(
            option="ssl.keystore.location",
            location=given["ssl.keystore.location"],
            kind=_kind(given, "ssl.keystore.type"),
            password=_secret(given, "ssl.keystore.password"),
            key_password=key_password,
        )
    for chain, key in (
        ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
        ("ssl.certificate.pem", "ssl.key.pem"),
    ):
        if given.get(chain) or given.get(key):
            _require_both(given, chain, key)
            return CertificateStore(
                option=chain,
                pem=given[chain],
                key_pem=Secret(given[key]),
                key_password=key_password,
            )
    if given.get("ssl.certificate.location"):
        return CertificateStore(
            option="ssl.certificate.location",
            location=given["ssl.certificate.location"],
            kind="PEM",
            key_location=given.get("ssl.key.location") or None,
            key_password=key_password,
        )
    return None


def _require_both(given: Mapping[str, str], chain: str, key: str) -> None:
    for one, other in ((chain, key), (key, chain)):
        if not given.get(one):
            raise ConfigError(one, "", f"must be set, because {other} is")


def _kind(given: Mapping[str, str], key: str) -> str | None:
    """The form of a store. Java's default is JKS, which a file need not have: see its content."""
    text = given.get(key, "").upper()
    if text in ("", "JKS"):
        return None
    if text not in STORE_KINDS:
        raise ConfigError(key, given[key], f"must be one of {', '.join(STORE_KINDS)}")
    return text


def _is_host_verified(given: Mapping[str, str]) -> bool:
    verification = given.get("enable.ssl.certificate.verification", "true").lower()
    if verification != "true":
        raise ConfigError(
            "enable.ssl.certificate.verification",
            verification,
            "is not supported: without it anybody can pretend to be the broker; name its authority "
            "with ssl.ca.location",
        )
    key = "ssl.endpoint.identification.algorithm"
    text = given.get(key, "https").lower()
    if text not in ("https", "", "none"):
        raise ConfigError(key, given[key], "must be https, or empty to switch off the check")
    return text == "https"


def _tls_versions(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("ssl.enabled.protocols")
    if not text:
        return TLS_VERSIONS
    return tuple(part.strip() for part in text.split(",") if part.strip())


# --- SASL --------------------------------------------------------------------------------------


class _Sasl(NamedTuple):
    mechanism: str = "SCRAM-SHA-256"
    user: str = ""
    password: Secret | None = None
    token_file: str | None = None


def _sasl(given: Mapping[str, str]) -> _Sasl:
    entry = _jaas(given)
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").upper()
    if not mechanism:
        mechanism = "SCRAM-SHA-256" if entry is None else _MODULES[entry.name][0]
    if mechanism not in CLIENT_MECHANISMS:
        raise ConfigError(
            "sasl.mechanism", mechanism, f"must be one of {', '.join(CLIENT_MECHANISMS)}"
        )
    if entry is not None and mechanism not in _MODULES[entry.name]:
        raise ConfigError("sasl.mechanism", mechanism, f"{entry.name} in {_JAAS} is not for it")
    if mechanism == OAUTHBEARER:
        return _Sasl(mechanism, token_file=_token_file(given))
    options = {} if entry is None else entry.options
    user = options.get("username") or given.get("sasl.username")
    password = options.get("password") or given.get("sasl.password")
    if not user or not password:
        raise ConfigError(
            _JAAS if entry is not None else "sasl.username",
            user or "",
            'must have username="..." and password="..."'
            if entry is not None
            else f"must be set with sasl.password, or use {_JAAS}",
        )
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError(_JAAS, "tokenauth", "delegation tokens are not supported")
    return _Sasl(mechanism, user, Secret(password))


def _jaas(given: Mapping[str, str]) -> JaasEntry | None:
    text = given.get(_JAAS)
    if not text:
        return None
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(_JAAS, text, str(error)) from None
    if entry.name not in _MODULES:
        raise ConfigError(
            _JAAS, text, f"{entry.name} is not supported; use one of {', '.join(_MODULES)}"
        )
    return entry


def _token_file(given: Mapping[str, str]) -> str:
    key = "sasl.oauthbearer.token.endpoint.url"
    url = urlsplit(given.get(key, ""))
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not os.path.isabs(url.path):
        raise ConfigError(
            key,
            given.get(key, ""),
            "must be the URL of a file with the token, such as file:///run/secrets/token: this "
            "client does not fetch tokens from servers",
        )
    return unquote(url.path)


def _secret(given: Mapping[str, str], key: str) -> Secret | None:
    return Secret(given[key]) if given.get(key) else None
