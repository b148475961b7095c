"""How a broker connects to controllers: Kafka's keys."""

from __future__ import annotations

import pytest

from cordwood.broker.cluster.control_security import outbound_security
from cordwood.errors import ConfigError
from cordwood.security.clients.client_security import PLAINTEXT, ClientProtocol, ClientSecurity

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="{}" password="pencil";'
)


def security(**values: str) -> ClientSecurity:
    keys = {key.replace("__", "-").replace("_", "."): value for key, value in values.items()}
    return outbound_security("CONTROLLER", keys, mechanism_key="sasl.mechanism.controller.protocol")


def test_without_keys_controllers_are_reached_in_clear_text() -> None:
    assert security() == PLAINTEXT


def test_keys_of_the_listener_come_before_those_of_the_broker() -> None:
    found = security(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
        sasl_mechanism_controller_protocol="PLAIN",
        sasl_jaas_config=JAAS.format("everybody"),
        listener_name_controller_plain_sasl_jaas_config=JAAS.format("broker"),
        ssl_truststore_location="/all.pem",
        listener_name_controller_ssl_truststore_location="/controllers.pem",
        ssl_endpoint_identification_algorithm="",
    )

    assert found.protocol is ClientProtocol.SASL_SSL
    assert found.user == "broker"
    assert found.trust is not None
    assert found.trust.location == "/controllers.pem"
    assert not found.is_host_verified


def test_a_user_that_is_missing_is_named_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"listener.name.controller.plain.sasl.jaas.config"):
        security(
            listener_security_protocol_map="CONTROLLER:SASL_PLAINTEXT",
            sasl_mechanism_controller_protocol="PLAIN",
        )


def test_a_protocol_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a security protocol"):
        security(listener_security_protocol_map="CONTROLLER:TLS")
