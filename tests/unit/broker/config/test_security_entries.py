"""The keys of security in DescribeConfigs: all of them, and no secret."""

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.config_entries import ConfigSource
from cordwood.broker.config.security_config import SECURITY_KEYS, SecurityConfig
from cordwood.broker.config.security_entries import security_entries

BROKER = BrokerConfig(
    listeners="INNER://127.0.0.1:1,OUTER://127.0.0.1:2",
    listener_security_protocol_map="INNER:SASL_PLAINTEXT,OUTER:SASL_SSL",
)


def test_every_key_is_shown_with_its_source_and_secrets_are_not() -> None:
    config = SecurityConfig.assemble(
        BROKER,
        {
            "super.users": "User:admin",
            "ssl.keystore.password": "top-secret",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.outer.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        },
    )

    entries = {entry.key.name: entry for entry in security_entries(config)}

    assert {key.name for key in SECURITY_KEYS} <= set(entries)
    assert entries["super.users"].value == "User:admin"
    assert entries["super.users"].source is ConfigSource.BROKER
    assert entries["allow.everyone.if.no.acl.found"].source is ConfigSource.DEFAULT
    assert entries["sasl.enabled.mechanisms"].value == "SCRAM-SHA-512"
    own = entries["listener.name.outer.sasl.enabled.mechanisms"]
    assert own.value == "SCRAM-SHA-256"
    assert entries["ssl.keystore.password"].key.is_sensitive
    assert "top-secret" not in repr(list(entries.values()))
    assert all(entry.is_read_only for entry in entries.values())
