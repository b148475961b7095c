"""Kafka with an authorizer: clients are User:ANONYMOUS on one listener, the super user on another.

So a test needs SASL only for what the super user prepares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.security_state import AclRule
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools, free_port
from wire.raw_client import RawClient, framed, request_header

_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret";'
)
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
ANY_RULE = {
    "resource_type_filter": AclResource.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": AclPattern.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}


class SuperUser(RawClient):
    """A connection that has authenticated as User:admin, with PLAIN."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._say(_SASL_HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN")
        token = b"\0admin\0secret"
        self._say(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)

    def _say(self, api: int, version: int, body: bytes) -> None:
        self.send_bytes(framed(request_header(api, version, 0) + body))
        answer = self.receive_frame()
        assert struct.unpack_from(">h", answer, 4) == (0,), answer

    def set_rules(self, rules: Iterable[AclRule]) -> None:
        """These rules and no others, in force on return."""
        wanted = set(rules)
        self.call(ApiKey.DELETE_ACLS, 3, {"filters": [ANY_RULE]})
        creations = [
            {
                "resource_type": rule.resource,
                "resource_name": rule.name,
                "resource_pattern_type": rule.pattern,
                "principal": rule.principal,
                "host": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            for rule in wanted
        ]
        created = self.call(ApiKey.CREATE_ACLS, 3, {"creations": creations})
        assert not any(result.error_code for result in created.results), created
        while self.rules() != wanted:
            pass  # the broker follows the log of the controller

    def rules(self) -> set[AclRule]:
        described = self.call(ApiKey.DESCRIBE_ACLS, 3, ANY_RULE)
        assert described.error_code == 0, described
        return {
            AclRule(
                resource=AclResource(found.resource_type),
                pattern=AclPattern(found.pattern_type),
                name=found.resource_name,
                principal=rule.principal,
                host=rule.host,
                operation=AclOperation(rule.operation),
                permission=AclPermission(rule.permission_type),
            )
            for found in described.resources
            for rule in found.acls
        }


@contextmanager
def authorizing_kafka(kafka: KafkaTools, directory: Path) -> Iterator[tuple[str, str]]:
    """The addresses for anonymous clients and for the super user."""
    admin_port, controller_port = free_port(), free_port()
    broker = KafkaBroker(
        kafka,
        log_dirs=[directory / "data"],
        work_dir=directory / "broker",
        jvm_options=QUICK_START,
    )
    listeners = f"PLAINTEXT://127.0.0.1:{broker.port},ADMIN://127.0.0.1:{admin_port}"
    broker.set_properties(
        {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "inter.broker.listener.name": "ADMIN",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.admin.plain.sasl.jaas.config": _JAAS,
            "listener.name.controller.plain.sasl.jaas.config": _JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        }
    )
    with broker:
        yield broker.bootstrap_servers, f"127.0.0.1:{admin_port}"
