"""Quotas as Kafka has them: whom they are for, their keys and values, and which one counts.

    entity                     keys
    user, client id, or both   producer_byte_rate, consumer_byte_rate, request_percentage,
                               controller_mutation_rate
    ip                         connection_creation_rate

A name that is empty in a `QuotaEntity` means the default: all names without a quota of their own.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple

from cordwood.quantities import INT32_MAX, INT64_MAX
from cordwood.security.security_state import QuotaEntity

DEFAULT: Final = ""
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class QuotaKey(StrEnum):
    """What is limited."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes of produce requests per second
    CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes of fetch answers per second
    REQUEST_PERCENTAGE = "request_percentage"  # of the time of one thread; 200: of two
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions per second
    CONNECTION_CREATION_RATE = "connection_creation_rate"  # connections per second


# The largest value, and whether it must be a whole number.
_VALUES: Final[Mapping[str, tuple[float, bool]]] = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: (float(INT64_MAX), True),
        QuotaKey.CONSUMER_BYTE_RATE: (float(INT64_MAX), True),
        QuotaKey.REQUEST_PERCENTAGE: (math.inf, False),
        QuotaKey.CONTROLLER_MUTATION_RATE: (math.inf, False),
        QuotaKey.CONNECTION_CREATION_RATE: (float(INT32_MAX), True),
    }
)
CLIENT_KEYS: Final = tuple(key for key in QuotaKey if key != QuotaKey.CONNECTION_CREATION_RATE)
IP_KEYS: Final = (QuotaKey.CONNECTION_CREATION_RATE,)
_WHOLE_TOLERANCE: Final = 1e-6
NAME_CHARACTERS_MAX: Final = 1000


# --- what may be set -------------------------------------------------------------------------


def entity_of(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these names by type; None: the default. Raises ValueError."""
    if not names:
        raise ValueError("the quota is for nobody: name a user, a client id or an IP address")
    for kind, name in names.items():
        if kind not in {USER, CLIENT_ID, IP}:
            raise ValueError(f"unknown entity type {kind!r}; there are user, client-id and ip")
        if name == "":
            raise ValueError(f"the {kind} has an empty name; leave the name out for the default")
        if name is not None and len(name) > NAME_CHARACTERS_MAX:
            raise ValueError(
                f"the {kind} has a name of {len(name)} characters; "
                f"at most {NAME_CHARACTERS_MAX} are allowed"
            )
    if IP in names:
        if len(names) > 1:
            raise ValueError("an ip cannot be combined with a user or a client id")
        return QuotaEntity(ip=_address(names[IP]))
    return QuotaEntity(
        user=(names[USER] or DEFAULT) if USER in names else None,
        client_id=(names[CLIENT_ID] or DEFAULT) if CLIENT_ID in names else None,
    )


def names_of(entity: QuotaEntity) -> dict[str, str | None]:
    """The names by type, as the protocol has them: None for the default."""
    by_kind = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    return {kind: name or None for kind, name in by_kind.items() if name is not None}


def described(entity: QuotaEntity) -> str:
    """The entity in words: ``user alice, default client-id``."""
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name}"
        for kind, name in names_of(entity).items()
    )


def check_limit(entity: QuotaEntity, key: str, limit: float) -> None:
    """Raises ValueError if the entity cannot have that limit."""
    known = CLIENT_KEYS if entity.ip is None else IP_KEYS
    if key not in known:
        whose = "users and client ids" if entity.ip is None else "IP addresses"
        raise ValueError(f"unknown key {key!r}; {whose} can have {', '.join(known)}")
    largest, is_whole = _VALUES[key]
    if not (math.isfinite(limit) and limit > 0):
        raise ValueError(f"{key} is {limit:g}, but must be greater than 0; remove it for no limit")
    if limit > largest:
        raise ValueError(f"{key} is {limit:g}, but must be at most {largest:.0f}")
    if is_whole and abs(limit % 1.0) > _WHOLE_TOLERANCE:
        raise ValueError(f"{key} is {limit:g}, but must be a whole number")


def altered(quotas: Quotas, entity: QuotaEntity, changes: Mapping[str, float | None]) -> Quotas:
    """The quotas after the changes of one entity's limits; None removes a limit.

    Raises ValueError if a limit cannot be. Removing what does not exist changes nothing.
    """
    limits = dict(quotas.get(entity, {}))
    for key, limit in changes.items():
        if limit is None:
            limits.pop(key, None)
        else:
            check_limit(entity, key, limit)
            limits[key] = float(limit)
    others = {other: have for other, have in quotas.items() if other != entity}
    return {**others, entity: limits} if limits else others


def _address(name: str | None) -> str:
    if name is None:
        return DEFAULT
    try:
        return canonical_address(name)
    except ValueError:
        raise ValueError(f"{name!r} is not an IP address; names of hosts are not allowed") from None


def canonical_address(text: str) -> str:
    """One spelling for each address. IPv4 inside IPv6 is IPv4. Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address if mapped is None else mapped)


# --- which quota counts ----------------------------------------------------------------------


class Measured(NamedTuple):
    """Who is measured together, under the quota that counts. None: of all names."""

    user: str | None
    client_id: str | None

    @property
    def kind(self) -> str:
        """One of three words, for metrics."""
        if self.user is None:
            return "client-id"
        return "user" if self.client_id is None else "user-client-id"


class Limit(NamedTuple):
    """The quota of one client for one key."""

    measured: Measured
    value: float


def find_limit(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """The most specific quota that a client has for `key`; None: it is not limited.

    A default applies to each name by itself: two users under the default quota do not share it.
    """
    both, of_user, of_client = (
        Measured(user, client_id),
        Measured(user, None),
        Measured(None, client_id),
    )
    for entity, measured in (
        (QuotaEntity(user, client_id), both),
        (QuotaEntity(user, DEFAULT), both),
        (QuotaEntity(user), of_user),
        (QuotaEntity(DEFAULT, client_id), both),
        (QuotaEntity(DEFAULT, DEFAULT), both),
        (QuotaEntity(DEFAULT), of_user),
        (QuotaEntity(None, client_id), of_client),
        (QuotaEntity(None, DEFAULT), of_client),
    ):
        limits = quotas.get(entity)
        if limits is not None and key in limits:
            return Limit(measured, limits[key])
    return None


def find_ip_limit(quotas: Quotas, address: str) -> float | None:
    """The limit of an address on new connections per second; None: none."""
    for entity in (QuotaEntity(ip=address), QuotaEntity(ip=DEFAULT)):
        limits = quotas.get(entity)
        if limits is not None and QuotaKey.CONNECTION_CREATION_RATE in limits:
            return limits[QuotaKey.CONNECTION_CREATION_RATE]
    return None


def has_client_limits(quotas: Quotas) -> bool:
    """Whether there is a quota for users or client ids at all."""
    return any(entity.ip is None and limits for entity, limits in quotas.items())
