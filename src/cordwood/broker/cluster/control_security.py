"""How this broker connects to controllers and other brokers, from Kafka's keys of a broker.

A listener of others is reached with the keys that a listener of one's own would have:

    listener.security.protocol.map=CONTROLLER:SASL_SSL,...
    sasl.mechanism.controller.protocol=PLAIN
    listener.name.controller.plain.sasl.jaas.config=...        user and password of this broker
    ssl.truststore.location=..., ssl.keystore.location=...     or listener.name.controller.ssl...
"""

from collections.abc import Mapping
from typing import Final

from cordwood.errors import ConfigError
from cordwood.security.clients.client_properties import SECURITY_KEYS, parse_client_properties
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity

_MAP_KEY: Final = "listener.security.protocol.map"
_JAAS: Final = "sasl.jaas.config"
_VERIFICATION: Final = "ssl.endpoint.identification.algorithm"
_DEFAULT_MECHANISM: Final = "GSSAPI"  # Kafka's; it must be replaced


def outbound_security(
    listener: str, values: Mapping[str, str], *, mechanism_key: str
) -> ClientSecurity:
    """How to connect to the listeners with this name. Raises `ConfigError`.

    `mechanism_key` is ``sasl.mechanism.controller.protocol`` or
    ``sasl.mechanism.inter.broker.protocol``.
    """
    protocol = _protocol(listener, values.get(_MAP_KEY, ""))
    own = f"listener.name.{listener.lower()}."
    given: dict[str, str] = {}
    for key in SECURITY_KEYS:
        value = values.get(own + key, values.get(key))
        # An empty value counts as none, except where it switches the check of host names off.
        if key.startswith("ssl.") and value is not None and (value or key == _VERIFICATION):
            given[key] = value
    given["security.protocol"] = protocol
    if ClientProtocol(protocol).has_sasl:
        mechanism = values.get(mechanism_key, _DEFAULT_MECHANISM)
        jaas_keys = (f"{own}{mechanism.lower()}.{_JAAS}", own + _JAAS, _JAAS)
        given["sasl.mechanism"] = mechanism
        jaas = next((values[key] for key in jaas_keys if values.get(key)), None)
        if jaas is None:
            raise ConfigError(
                jaas_keys[0], "", f"must have the user and the password for {listener}"
            )
        given[_JAAS] = jaas
        token = "sasl.oauthbearer.token.endpoint.url"
        if values.get(token):
            given[token] = values[token]
    return parse_client_properties(given).security


def _protocol(listener: str, text: str) -> str:
    """The security protocol of a listener; a name that is one needs no entry in the map."""
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = entry.partition(":")
        if name.strip().upper() == listener.upper():
            found = protocol.strip().upper()
            if found not in ClientProtocol.__members__:
                raise ConfigError(_MAP_KEY, text, f"{protocol!r} is not a security protocol")
            return found
    if listener.upper() in ClientProtocol.__members__:
        return listener.upper()
    if listener.upper() == "CONTROLLER":
        return ClientProtocol.PLAINTEXT  # as in Kafka's own example configuration
    raise ConfigError(_MAP_KEY, text, f"has no entry for the listener {listener}")
