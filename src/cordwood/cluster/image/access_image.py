"""What the controllers keep of access: rules, quotas, SCRAM credentials, delegation tokens.

Numbers are Kafka's. Whoever uses these values turns them into those of `security`.
"""

from typing import NamedTuple

from cordwood.value_class import dataclass

QuotaEntity = tuple[tuple[str, str | None], ...]  # sorted pairs of type and name; None: default
ScramUser = tuple[str, int]  # the name, and Kafka's number of the mechanism


class AccessRule(NamedTuple):
    """One access control entry."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server keeps of a password. Its repr shows nothing of it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class DelegationToken(NamedTuple):
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int
