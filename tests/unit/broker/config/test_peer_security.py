"""How a member connects to controllers and other brokers: Kafka's keys."""

from __future__ import annotations

import pytest

from cordwood.broker.config.peer_security import PeerSecurity
from cordwood.errors import ConfigError
from cordwood.security.clients.client_security import PLAINTEXT, ClientProtocol
from cordwood.settings import settings_from

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="{}" password="pencil";'
)
SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="{}" password="pencil";'
)
MEMBER = {
    "process.roles": "broker",
    "controller.quorum.bootstrap.servers": "one:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "INTERNAL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT",
}
SECURED = {
    **MEMBER,
    "listener.security.protocol.map": "INTERNAL:SASL_SSL,CLIENTS:PLAINTEXT,CONTROLLER:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.internal.scram-sha-512.sasl.jaas.config": SCRAM.format("inner"),
    "listener.name.controller.plain.sasl.jaas.config": PLAIN.format("broker"),
    "ssl.truststore.location": "/all.pem",
}


def peers(given: dict[str, str], **changes: str) -> PeerSecurity:
    keys = {key.replace("__", "-").replace("_", "."): value for key, value in changes.items()}
    found = settings_from({**given, **keys}).security.peers
    assert found is not None
    return found


def test_without_keys_everybody_is_reached_in_clear_text_at_the_first_listener() -> None:
    assert peers(MEMBER) == PeerSecurity(
        listener="INTERNAL", brokers=PLAINTEXT, controllers=PLAINTEXT
    )


def test_a_broker_that_is_alone_connects_to_nobody() -> None:
    assert settings_from({}).security.peers is None


def test_brokers_and_controllers_each_have_the_user_and_the_mechanism_of_their_listener() -> None:
    found = peers(SECURED)

    assert found.listener == "INTERNAL"
    assert found.brokers.protocol is ClientProtocol.SASL_SSL
    assert (found.brokers.user, found.brokers.mechanism) == ("inner", "SCRAM-SHA-512")
    assert (found.controllers.user, found.controllers.mechanism) == ("broker", "PLAIN")
    assert "pencil" not in repr(found)


def test_keys_of_the_listener_come_before_those_of_the_broker() -> None:
    found = peers(
        SECURED,
        listener_name_controller_ssl_truststore_location="/controllers.pem",
        listener_name_controller_ssl_endpoint_identification_algorithm="",
    )

    assert found.controllers.trust is not None
    assert found.controllers.trust.location == "/controllers.pem"
    assert not found.controllers.is_host_verified
    assert found.brokers.trust is not None
    assert found.brokers.trust.location == "/all.pem"
    assert found.brokers.is_host_verified


def test_the_protocol_between_brokers_can_name_the_listener() -> None:
    named = {
        **MEMBER,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": SCRAM.format("inner"),
    }

    assert peers(named).listener == "SASL_SSL"
    assert peers(named).brokers.user == "inner"


BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
TOKENS = {
    **SECURED,
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    "listener.name.controller.oauthbearer.sasl.oauthbearer.token.endpoint.url": "file:///run/token",
}


@pytest.mark.parametrize("jaas", [None, BEARER])
def test_a_token_is_in_a_file(jaas: str | None) -> None:
    key = "listener.name.controller.oauthbearer.sasl.jaas.config"
    found = peers(TOKENS if jaas is None else {**TOKENS, key: jaas})

    assert (found.controllers.mechanism, found.controllers.token_file) == (
        "OAUTHBEARER",
        "/run/token",
    )
    assert (found.brokers.mechanism, found.brokers.token_file) == ("SCRAM-SHA-512", None)


@pytest.mark.parametrize("url", ["", "https://issuer.example/token", "file://elsewhere/token"])
def test_a_token_that_is_not_in_a_file_is_refused_with_its_key(url: str) -> None:
    key = "listener.name.controller.oauthbearer.sasl.oauthbearer.token.endpoint.url"

    with pytest.raises(ConfigError, match="file:///run/secrets/token") as refused:
        peers({**TOKENS, key: url})

    assert refused.value.key.endswith("sasl.oauthbearer.token.endpoint.url")


@pytest.mark.parametrize(
    ("changes", "key", "rule"),
    [
        ({"inter.broker.listener.name": "OTHER"}, "inter.broker.listener.name", "no listener"),
        (
            {"security.inter.broker.protocol": "SASL_SSL"},
            "security.inter.broker.protocol",
            "together",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
            "sasl.mechanism.inter.broker.protocol",
            "sasl.enabled.mechanisms of INTERNAL",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
            "sasl.mechanism.inter.broker.protocol",
            "must be PLAIN or",
        ),
        (
            {"sasl.mechanism.controller.protocol": ""},
            "sasl.mechanism.controller.protocol",
            "must be set",
        ),
        (
            {"listener.name.controller.plain.sasl.jaas.config": ""},
            "listener.name.controller.plain.sasl.jaas.config",
            "user and the password",
        ),
        (
            {"listener.name.controller.plain.sasl.jaas.config": SCRAM.format("x")},
            "sasl.mechanism.controller.protocol",
            "ScramLoginModule",
        ),
        ({"listener.security.protocol.map": "CONTROLLER:TLS"}, "protocol.map", "not a security"),
        ({"replica.selector.class": "my.Selector"}, "replica.selector.class", "RackAware"),
        ({"listener.name.other.ssl.keystore.location": "/x"}, "other", "no listener OTHER"),
    ],
)
def test_a_wrong_key_is_named_with_its_rule(changes: dict[str, str], key: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as refused:
        settings_from({**SECURED, **changes})

    assert key in refused.value.key
    assert "pencil" not in str(refused.value)


def test_keys_for_other_brokers_have_no_effect_on_a_broker_that_is_alone() -> None:
    alone = settings_from(
        {
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "replica.selector.class": "my.Selector",
            "ssl.endpoint.identification.algorithm": "",
        }
    )

    assert len(alone.without_effect) == 3
