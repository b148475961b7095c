"""Everything that the operator decided about security, as one immutable value.

A change makes a new state out of the old one; see `security_file`.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.value_class import dataclass, field

K = TypeVar("K")
V = TypeVar("V")


class ScramMechanism(IntEnum):
    """How a password is proved, with the protocol's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism(self) -> str:
        """The name in SASL: ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")


class ScramCredential(NamedTuple):
    """What the broker keeps of a password. The password cannot be computed from it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class UserCredential(NamedTuple):
    """The owner and the mechanism of a credential."""

    user: str
    mechanism: ScramMechanism


class AclRule(NamedTuple):
    """One rule: who may, or may not, do what with which resources, and from where.

    `principal` is ``User:alice`` or ``User:*``; `host` is an IP address or ``*``.
    """

    resource: AclResource
    pattern: AclPattern  # LITERAL or PREFIXED
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class QuotaEntity(NamedTuple):
    """Whose rate is limited. None: not part of it; empty text: the default for all others."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


def _none() -> "Mapping[K, V]":
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityState:
    """Credentials of users, access rules, and quotas: limits by their key, per entity."""

    credentials: Mapping[UserCredential, ScramCredential] = field(default_factory=_none)
    rules: frozenset[AclRule] = frozenset()
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_none)
