"""DescribeClientQuotas: which entities a filter selects."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from cordwood.security.quotas.quota_rules import CLIENT_ID, IP, USER, Quotas, names_of
from cordwood.security.security_state import QuotaEntity


class Match(IntEnum):
    """How a component of a filter compares a name."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2  # any name, also the default


class QuotaFilter(NamedTuple):
    """One component: entities that have this type, with such a name."""

    kind: str
    match: int
    name: str | None


class UnknownEntityTypeError(ValueError):
    """The type of an entity is not one of Kafka's."""


def select(
    quotas: Quotas, components: Iterable[QuotaFilter], *, is_strict: bool
) -> list[QuotaEntity]:
    """The entities that every component selects, sorted; strict: that have no other type.

    Raises `UnknownEntityTypeError`, or another ValueError, for a filter that cannot be.
    """
    wanted = _checked(components)
    found = [
        entity
        for entity in quotas
        if _matches(names_of(entity), wanted.values(), is_strict=is_strict)
    ]
    return sorted(found, key=lambda entity: [name or "" for name in entity])


def _checked(components: Iterable[QuotaFilter]) -> dict[str, QuotaFilter]:
    wanted: dict[str, QuotaFilter] = {}
    for component in components:
        kind, match, name = component
        if not kind:
            raise ValueError("a component of the filter has no entity type")
        if kind in wanted:
            raise ValueError(f"entity type {kind} is in the filter twice")
        if kind not in {USER, CLIENT_ID, IP}:
            raise UnknownEntityTypeError(
                f"unknown entity type {kind!r}; there are user, client-id and ip"
            )
        if match not in {*Match}:
            raise ValueError(f"unknown match type {match}; there are 0, 1 and 2")
        if (match == Match.EXACT) != (name is not None):
            raise ValueError("a component has a name if its match type is 0, and only then")
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise ValueError("ip cannot be combined with user or client-id in a filter")
    return wanted


def _matches(
    names: dict[str, str | None], wanted: Iterable[QuotaFilter], *, is_strict: bool
) -> bool:
    components = list(wanted)
    if is_strict and len(names) != len(components):
        return False
    return all(
        kind in names and (match == Match.ANY or names[kind] == name)
        for kind, match, name in components
    )
