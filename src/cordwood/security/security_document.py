"""The security state as JSON: the body of `cordwood-security`.

    {"users": [{"name": "alice", "mechanism": "SCRAM-SHA-256", "salt": ..., "iterations": 4096,
                "stored_key": ..., "server_key": ...}],
     "rules": [{"resource": "TOPIC", "pattern": "LITERAL", "name": "orders", ...}],
     "quotas": [{"user": "alice", "limits": {"producer_byte_rate": 1048576.0}}],
     "secret": ...}

`secret` belongs to this store: what must look random to clients and stay the same over restarts
is derived from it. Bytes are base64.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

from cordwood.errors import FormatError
from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.security_state import (
    AclRule,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)

SECURITY_FILE: Final = "cordwood-security"


class SecurityDocument(NamedTuple):
    """What the file holds."""

    state: SecurityState
    secret: bytes


def encode_security(document: SecurityDocument) -> bytes:
    state, secret = document
    return json.dumps(
        {
            "users": [
                {
                    "name": owner.user,
                    "mechanism": owner.mechanism.mechanism,
                    "salt": _text(credential.salt),
                    "iterations": credential.iterations,
                    "stored_key": _text(credential.stored_key),
                    "server_key": _text(credential.server_key),
                }
                for owner, credential in sorted(state.credentials.items())
            ],
            "rules": [
                {
                    "resource": rule.resource.name,
                    "pattern": rule.pattern.name,
                    "name": rule.name,
                    "principal": rule.principal,
                    "host": rule.host,
                    "operation": rule.operation.name,
                    "permission": rule.permission.name,
                }
                for rule in sorted(state.rules)
            ],
            "quotas": [
                {**_entity(entity), "limits": dict(limits)}
                for entity, limits in sorted(state.quotas.items(), key=lambda item: str(item[0]))
            ],
            "secret": _text(secret),
        }
    ).encode()


def decode_security(body: bytes) -> SecurityDocument:
    """Raises `FormatError` if the body is not such a document."""
    try:
        found = json.loads(body)
        state = SecurityState(
            credentials={
                UserCredential(
                    str(user["name"]), ScramMechanism[user["mechanism"].replace("-", "_")]
                ): ScramCredential(
                    salt=_bytes(user["salt"]),
                    iterations=int(user["iterations"]),
                    stored_key=_bytes(user["stored_key"]),
                    server_key=_bytes(user["server_key"]),
                )
                for user in found["users"]
            },
            rules=frozenset(_rule(rule) for rule in found["rules"]),
            quotas={
                QuotaEntity(quota.get("user"), quota.get("client_id"), quota.get("ip")): {
                    str(key): float(limit) for key, limit in quota["limits"].items()
                }
                for quota in found["quotas"]
            },
        )
        return SecurityDocument(state, _bytes(found["secret"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"the body of the {SECURITY_FILE} file cannot be read") from error


def _rule(rule: Mapping[str, str]) -> AclRule:
    return AclRule(
        resource=AclResource[rule["resource"]],
        pattern=AclPattern[rule["pattern"]],
        name=str(rule["name"]),
        principal=str(rule["principal"]),
        host=str(rule["host"]),
        operation=AclOperation[rule["operation"]],
        permission=AclPermission[rule["permission"]],
    )


def _entity(entity: QuotaEntity) -> dict[str, str]:
    return {name: text for name, text in entity._asdict().items() if text is not None}


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)
