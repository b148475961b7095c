"""A cluster in which everybody uses TLS and passwords: a controller, our broker, Kafka's broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.remote.wire_connection import WireConnection
from cordwood.security.certificates.certificate_authority import CertificateAuthority
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.secret import Secret
from interop.cluster_members import CordwoodMember, KafkaMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.mixed_cluster import OURS, THEIRS
from wire.waiting import await_true

RACKS = {OURS: "left", THEIRS: "right"}
PASSWORD = "pencil"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MECHANISM = "SCRAM-SHA-512"
_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredCluster:
    tools: KafkaTools
    controllers: KraftControllers
    ours: CordwoodMember
    theirs: KafkaMember
    ca: Path

    @property
    def members(self) -> dict[int, CordwoodMember | KafkaMember]:
        return {OURS: self.ours, THEIRS: self.theirs}

    def client(
        self, user: str, *, password: str = PASSWORD, at: int = OURS
    ) -> dict[str, str | int | float | bool]:
        """What librdkafka needs to sign in at a broker."""
        return {
            "bootstrap.servers": self.members[at].address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "socket.timeout.ms": 10_000,
        }

    def admin(self, user: str = "admin", at: int = OURS) -> AdminClient:
        return AdminClient(self.client(user, at=at))

    def connection(self, user: str) -> WireConnection:
        """A connection to our broker over which a test sends what it likes."""
        return WireConnection(
            "127.0.0.1",
            self.ours.port,
            security=ClientSecurity(
                protocol=ClientProtocol.SASL_SSL,
                trust=CertificateStore(option="ca", location=str(self.ca)),
                mechanism=_MECHANISM,
                user=user,
                password=Secret(PASSWORD),
            ),
        )

    def command_config(self, directory: Path, user: str = "admin") -> Path:
        """A file for Kafka's tools."""
        path = directory / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={_MECHANISM}\n"
            f'sasl.jaas.config={_SCRAM} required username="{user}" password="{PASSWORD}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.ca}\n"
        )
        return path

    def create(self, name: str, *replicas: int) -> None:
        """A topic with one partition; the first replica leads. Wait until all are in sync."""
        topic = NewTopic(name, num_partitions=1, replica_assignment=[list(replicas)])
        creator = self.admin()
        creator.create_topics([topic])[name].result(30)
        for node_id in self.members:
            admin = self.admin(at=node_id)

            def is_in_sync(admin: AdminClient = admin) -> bool:
                found = admin.list_topics(name, timeout=10).topics[name].partitions.get(0)
                return found is not None and len(found.isrs) == len(replicas)

            await_true(is_in_sync)


@contextmanager
def secured_cluster(
    kafka: KafkaTools,
    root: Path,
    users: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Iterator[SecuredCluster]:
    """`users` exist from the start, besides the broker and the administrator.

    `properties` are further ones of our broker.
    """
    authority = CertificateAuthority.create("tests")
    ca, server = root / "ca.pem", root / "server.pem"
    ca.write_bytes(authority.certificate_pem)
    server.write_bytes(authority.issue("node", ["localhost", "127.0.0.1"]).store_pem)
    common = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{_PLAIN} required username="broker" password="{PASSWORD}" user_broker="{PASSWORD}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:admin",
    }
    member = {
        **common,
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": _MECHANISM,
        "sasl.mechanism.inter.broker.protocol": _MECHANISM,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            f'{_SCRAM} required username="broker" password="{PASSWORD}";'
        ),
        "replica.selector.class": _SELECTOR,
        # Brokers authenticate again and again, in both directions.
        "listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms": "3000",
        "offsets.topic.replication.factor": "1",
    }
    scram = [
        f"--add-scram={_MECHANISM}=[name={user},password={PASSWORD}]"
        for user in ("broker", "admin", *users)
    ]
    with ExitStack() as running:
        controllers = running.enter_context(
            KraftControllers(
                kafka,
                root / "controllers",
                properties={**common, "sasl.enabled.mechanisms": "PLAIN"},
                protocol="SASL_SSL",
                format_arguments=scram,
            )
        )
        ours = running.enter_context(
            CordwoodMember(
                controllers,
                root / "ours",
                node_id=OURS,
                properties={
                    **member,
                    "broker.rack": RACKS[OURS],
                    "audit.file": str(root / "audit.jsonl"),
                    **(properties or {}),
                },
                protocol="SASL_SSL",
            )
        )
        theirs = running.enter_context(
            KafkaMember(
                kafka,
                controllers,
                root / "theirs",
                node_id=THEIRS,
                properties={**member, "broker.rack": RACKS[THEIRS]},
                protocol="SASL_SSL",
            )
        )
        yield SecuredCluster(tools=kafka, controllers=controllers, ours=ours, theirs=theirs, ca=ca)
