"""Our control channel and a controller that wants TLS and SASL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cordwood.cluster.control.broker_lifecycle import Phase
from cordwood.security.certificates.certificate_authority import CertificateAuthority
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.secret import Secret
from interop.control_member import ControlMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.kraft_requests import create_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredQuorum:
    controllers: KraftControllers
    security: ClientSecurity


@pytest.fixture(scope="module")
def secured(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredQuorum]:
    root = tmp_path_factory.mktemp("secured-quorum")
    authority = CertificateAuthority.create("tests")
    ca, server = root / "ca.pem", root / "server.pem"
    ca.write_bytes(authority.certificate_pem)
    server.write_bytes(authority.issue("controller", ["localhost", "127.0.0.1"]).store_pem)
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{plain} required username="broker" password="pencil" user_broker="pencil";'
        ),
        "listener.name.controller.plain.connections.max.reauth.ms": "2000",
    }
    with KraftControllers(
        kafka, root / "quorum", properties=properties, protocol="SASL_SSL"
    ) as controllers:
        yield SecuredQuorum(
            controllers=controllers,
            security=ClientSecurity(
                protocol=ClientProtocol.SASL_SSL,
                trust=CertificateStore(option="ssl.truststore.location", location=str(ca)),
                mechanism="PLAIN",
                user="broker",
                password=Secret("pencil"),
            ),
        )


def test_a_broker_joins_over_tls_and_sasl_and_authenticates_again(secured: SecuredQuorum) -> None:
    controllers = secured.controllers
    with ControlMember(
        controllers.bootstrap, controllers.cluster_id, security=secured.security
    ) as member:
        member.wait_until(Phase.RUNNING)
        # Sessions end after two seconds, unless the client authenticates again.
        for at in range(8):
            create_topic(member, f"over-tls-{at}", *([[1]] * 50))
            heard = member.control.image.end
            member.wait(lambda heard=heard: member.control.image.end > heard)  # type: ignore[misc]

        assert member.failure is None
        assert member.control.phase is Phase.RUNNING
        assert member.phases.count(Phase.FENCED) <= 1


def test_a_wrong_password_and_a_wrong_authority_are_named(
    secured: SecuredQuorum, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(CertificateAuthority.create("other").certificate_pem)
    trust = CertificateStore(option="ssl.truststore.location", location=str(other))
    for security, words in (
        (replace(secured.security, password=Secret("marzipan")), "does not accept user 'broker'"),
        (replace(secured.security, trust=trust), "is not trusted"),
    ):
        caplog.clear()
        with ControlMember(
            secured.controllers.bootstrap, secured.controllers.cluster_id, security=security
        ) as member:
            member.wait(lambda words=words: words in caplog.text, polls=True)  # type: ignore[misc]

        assert "pencil" not in caplog.text
        assert "marzipan" not in caplog.text
