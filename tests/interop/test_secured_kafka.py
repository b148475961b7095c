"""Our clients, and a Kafka broker that wants TLS and SASL: it judges what they send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cordwood.errors import (
    AuthenticationFailedError,
    BrokerNotTrustedError,
    BrokerUnreachableError,
)
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_topics import RemoteTopics
from cordwood.security.certificates.certificate_authority import CertificateAuthority
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.secret import Secret
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools

_PASSWORD = 'pen"cil,=1'
_UNSIGNED_TOKEN = (
    # {"alg":"none"}.{"sub":"alice","iat":1700000000,"exp":4000000000}.
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTcwMDAwMDAwMCwiZXhwIjo0MDAwMDAwMDAwfQ."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    ports: dict[str, int]
    ca: CertificateStore
    client: CertificateStore

    def address(self, listener: str) -> list[tuple[str, int]]:
        return [("localhost", self.ports[listener])]


@pytest.fixture(scope="module")
def secured(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    root = tmp_path_factory.mktemp("secured")
    authority = CertificateAuthority.create("tests")
    ca_file, server_file, client_file = (root / f"{n}.pem" for n in ("ca", "server", "client"))
    ca_file.write_bytes(authority.certificate_pem)
    server_file.write_bytes(authority.issue("kafka", ["localhost"]).store_pem)
    client_file.write_bytes(authority.issue("alice").store_pem)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    sasl = "listener.name.sasl"
    written = _PASSWORD.replace('"', '\\\\"')
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca_file),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl}.plain.sasl.jaas.config": f'{plain} required user_alice="{written}";',
        f"{sasl}.scram-sha-256.sasl.jaas.config": scram,
        f"{sasl}.scram-sha-512.sasl.jaas.config": scram,
        f"{sasl}.oauthbearer.sasl.jaas.config": (
            f'{bearer} required unsecuredLoginStringClaim_sub="broker";'
        ),
        f"{sasl}.scram-sha-256.connections.max.reauth.ms": "2000",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.open.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.open.scram-sha-256.sasl.jaas.config": scram,
    }
    users = [
        argument
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for argument in ("--add-scram", f"{mechanism}=[name=alice,password={_TOOL_PASSWORD}]")
    ]
    with KafkaBroker(
        kafka,
        log_dirs=[root / "logs"],
        work_dir=root / "broker",
        properties=properties,
        jvm_options=QUICK_START,
        listeners={"SASL": "SASL_SSL", "MUTUAL": "SSL", "OPEN": "SASL_PLAINTEXT"},
        format_arguments=users,
    ) as broker:
        yield SecuredKafka(
            ports=broker.ports,
            ca=CertificateStore(option="--ca", location=str(ca_file)),
            client=CertificateStore(option="--cert", location=str(client_file)),
        )


# Kafka's tool splits its argument at commas and equal signs.
_TOOL_PASSWORD = "pencil"


def _sasl(secured: SecuredKafka, mechanism: str, password: str) -> ClientSecurity:
    return ClientSecurity(
        protocol=ClientProtocol.SASL_SSL,
        trust=secured.ca,
        mechanism=mechanism,
        user="alice",
        password=Secret(password),
    )


@pytest.mark.parametrize(
    ("mechanism", "password"),
    [
        ("PLAIN", _PASSWORD),
        ("SCRAM-SHA-256", _TOOL_PASSWORD),
        ("SCRAM-SHA-512", _TOOL_PASSWORD),
    ],
)
def test_kafka_accepts_our_password(secured: SecuredKafka, mechanism: str, password: str) -> None:
    security = _sasl(secured, mechanism, password)

    with RemoteCluster(secured.address("SASL"), security=security) as cluster:
        RemoteTopics(cluster).create(f"t-{mechanism}", partitions=1, config={})
        topics = cluster.describe(None)

    assert f"t-{mechanism}" in topics


def test_kafka_accepts_our_token(secured: SecuredKafka) -> None:
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_SSL,
        trust=secured.ca,
        mechanism="OAUTHBEARER",
        token=lambda: _UNSIGNED_TOKEN,
    )

    with RemoteCluster(secured.address("SASL"), security=security) as cluster:
        assert cluster.describe([]) == {}


def test_a_refused_token_is_reported_with_the_reason(secured: SecuredKafka) -> None:
    expired = (
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTcwMDAwMDAwMCwiZXhwIjoxNzAwMDAwMDAxfQ."
    )
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_SSL,
        trust=secured.ca,
        mechanism="OAUTHBEARER",
        token=lambda: expired,
    )

    with pytest.raises(AuthenticationFailedError, match="token: invalid_token"):
        RemoteCluster(secured.address("SASL"), security=security)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported(secured: SecuredKafka, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailedError, match=r"does not accept user 'alice'") as raised:
        RemoteCluster(secured.address("SASL"), security=_sasl(secured, mechanism, "wrong-password"))

    assert "wrong-password" not in str(raised.value)


def test_sessions_are_renewed_on_the_same_connection(secured: SecuredKafka) -> None:
    """The listener ends sessions of SCRAM-SHA-256 after two seconds."""
    security = _sasl(secured, "SCRAM-SHA-256", _TOOL_PASSWORD)
    with RemoteCluster(secured.address("SASL"), security=security) as cluster:
        connection = cluster.anyone()
        until = time.monotonic() + 5

        while time.monotonic() < until:
            cluster.describe([])

        assert cluster.anyone() is connection
        assert not connection.is_broken


def test_a_client_with_a_certificate_needs_no_password(secured: SecuredKafka) -> None:
    security = ClientSecurity(
        protocol=ClientProtocol.SSL, trust=secured.ca, identity=secured.client
    )

    with RemoteCluster(secured.address("MUTUAL"), security=security) as cluster:
        assert cluster.describe([]) == {}


def test_a_client_without_a_certificate_learns_that_it_needs_one(secured: SecuredKafka) -> None:
    with pytest.raises(AuthenticationFailedError, match="certificate"):
        RemoteCluster(
            secured.address("MUTUAL"),
            security=ClientSecurity(protocol=ClientProtocol.SSL, trust=secured.ca),
        )


def test_an_unknown_authority_is_not_trusted(secured: SecuredKafka) -> None:
    with pytest.raises(BrokerNotTrustedError, match="--ca FILE"):
        RemoteCluster(
            secured.address("MUTUAL"), security=ClientSecurity(protocol=ClientProtocol.SSL)
        )


def test_another_host_name_is_not_trusted_unless_that_is_switched_off(
    secured: SecuredKafka,
) -> None:
    address = [("127.0.0.1", secured.ports["MUTUAL"])]
    with pytest.raises(BrokerNotTrustedError, match=r"not for 127\.0\.0\.1"):
        RemoteCluster(
            address,
            security=ClientSecurity(
                protocol=ClientProtocol.SSL, trust=secured.ca, identity=secured.client
            ),
        )

    unchecked = ClientSecurity(
        protocol=ClientProtocol.SSL,
        trust=secured.ca,
        identity=secured.client,
        is_host_verified=False,
    )
    with RemoteCluster(address, security=unchecked) as cluster:
        assert cluster.describe([]) == {}


def test_a_mechanism_that_the_listener_lacks_is_reported_with_those_it_has(
    secured: SecuredKafka,
) -> None:
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_PLAINTEXT,
        mechanism="SCRAM-SHA-512",
        user="alice",
        password=Secret(_TOOL_PASSWORD),
    )

    with pytest.raises(AuthenticationFailedError, match="it offers SCRAM-SHA-256"):
        RemoteCluster(secured.address("OPEN"), security=security)


def test_a_plain_client_of_a_tls_listener_learns_what_is_wrong(secured: SecuredKafka) -> None:
    with pytest.raises(BrokerUnreachableError, match="pass --tls"):
        RemoteCluster(secured.address("SASL"))


def test_a_client_without_a_user_learns_that_it_needs_one(secured: SecuredKafka) -> None:
    cluster = RemoteCluster(secured.address("OPEN"))

    with cluster, pytest.raises(BrokerUnreachableError, match="require a user"):
        cluster.describe([])


def test_a_tls_client_of_a_plain_listener_learns_what_is_wrong(
    secured: SecuredKafka,
) -> None:
    security = ClientSecurity(protocol=ClientProtocol.SSL, trust=secured.ca)

    with pytest.raises(BrokerUnreachableError, match="TLS"):
        RemoteCluster(secured.address("OPEN"), security=security)
