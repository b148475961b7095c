"""Quotas: what may be set, and which one of several counts for a client."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.security.quotas.quota_filters import (
    Match,
    QuotaFilter,
    UnknownEntityTypeError,
    select,
)
from cordwood.security.quotas.quota_rules import (
    Limit,
    Measured,
    QuotaKey,
    Quotas,
    altered,
    check_limit,
    described,
    entity_of,
    find_ip_limit,
    find_limit,
    has_client_limits,
    names_of,
)
from cordwood.security.security_state import QuotaEntity

RATE = QuotaKey.PRODUCER_BYTE_RATE
names = st.sampled_from(["alice", "bob", ""])
entities = st.one_of(
    st.builds(QuotaEntity, names, names, st.none()),
    st.builds(QuotaEntity, names, st.none(), st.none()),
    st.builds(QuotaEntity, st.none(), names, st.none()),
)
quotas_of = st.dictionaries(
    entities, st.dictionaries(st.sampled_from([*QuotaKey][:3]), st.floats(1, 9), max_size=2)
)


@given(quotas=quotas_of, user=names, client_id=names)
def test_the_most_specific_quota_counts(
    quotas: dict[QuotaEntity, dict[str, float]], user: str, client_id: str
) -> None:
    """A naive model: rank all quotas that apply; an exact name beats a default beats none."""

    def rank(entity: QuotaEntity) -> tuple[int, int]:
        return (
            0 if entity.user is None else 2 if entity.user == user and user else 1,
            0 if entity.client_id is None else 2 if entity.client_id == client_id != "" else 1,
        )

    applying = [
        entity
        for entity, limits in quotas.items()
        if RATE in limits
        and entity.user in {None, "", user}
        and entity.client_id in {None, "", client_id}
    ]

    found = find_limit(quotas, RATE, user, client_id)

    if not applying:
        assert found is None
        return
    best = max(applying, key=rank)
    assert found is not None
    assert found.value == quotas[best][RATE]
    assert (found.measured.user is None) == (best.user is None)
    assert (found.measured.client_id is None) == (best.client_id is None)


def test_a_default_applies_to_each_name_by_itself() -> None:
    quotas: Quotas = {QuotaEntity(user=""): {RATE: 5.0}}

    assert find_limit(quotas, RATE, "alice", "app") == Limit(Measured("alice", None), 5.0)
    assert find_limit(quotas, RATE, "bob", "app") == Limit(Measured("bob", None), 5.0)


def test_each_key_is_looked_up_by_itself() -> None:
    quotas: Quotas = {
        QuotaEntity("alice"): {QuotaKey.CONSUMER_BYTE_RATE: 1.0},
        QuotaEntity(""): {RATE: 2.0},
    }

    found = find_limit(quotas, RATE, "alice", "app")

    assert found is not None
    assert found.value == 2.0


def test_an_address_has_its_own_limit_or_the_default_one() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    quotas: Quotas = {QuotaEntity(ip="10.0.0.1"): {key: 1.0}, QuotaEntity(ip=""): {key: 7.0}}

    assert find_ip_limit(quotas, "10.0.0.1") == 1.0
    assert find_ip_limit(quotas, "10.0.0.2") == 7.0
    assert not has_client_limits(quotas)


@pytest.mark.parametrize(
    ("given_names", "message"),
    [
        ({}, "for nobody"),
        ({"user": ""}, "empty name"),
        ({"group": "g"}, "unknown entity type"),
        ({"user": "a", "ip": "10.0.0.1"}, "cannot be combined"),
        ({"ip": "broker.example"}, "not an IP address"),
        ({"client-id": "x" * 1001}, "1001 characters"),
    ],
)
def test_an_entity_that_cannot_be_is_refused(
    given_names: dict[str, str | None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        entity_of(given_names)


@pytest.mark.parametrize(
    ("given_names", "entity"),
    [
        ({"user": None}, QuotaEntity(user="")),
        ({"user": "a", "client-id": None}, QuotaEntity("a", "")),
        ({"ip": "::ffff:10.0.0.1"}, QuotaEntity(ip="10.0.0.1")),
        ({"ip": "2001:DB8:0:0::1"}, QuotaEntity(ip="2001:db8::1")),
        ({"ip": None}, QuotaEntity(ip="")),
    ],
)
def test_no_name_means_the_default(given_names: dict[str, str | None], entity: QuotaEntity) -> None:
    assert entity_of(given_names) == entity
    assert entity_of(names_of(entity)) == entity


def test_an_entity_is_described_in_words() -> None:
    assert described(QuotaEntity("alice", "")) == "user alice, default client-id"


@pytest.mark.parametrize(
    ("entity", "key", "limit", "message"),
    [
        (QuotaEntity("a"), "speed", 1.0, "unknown key"),
        (QuotaEntity("a"), QuotaKey.CONNECTION_CREATION_RATE, 1.0, "unknown key"),
        (QuotaEntity(ip="1.2.3.4"), RATE, 1.0, "unknown key"),
        (QuotaEntity("a"), RATE, 0.0, "greater than 0"),
        (QuotaEntity("a"), RATE, -1.0, "greater than 0"),
        (QuotaEntity("a"), RATE, math.nan, "greater than 0"),
        (QuotaEntity("a"), QuotaKey.REQUEST_PERCENTAGE, math.inf, "greater than 0"),
        (QuotaEntity("a"), RATE, 1.5, "whole number"),
        (QuotaEntity("a"), RATE, 1e19, "at most"),
        (QuotaEntity(ip="1.2.3.4"), QuotaKey.CONNECTION_CREATION_RATE, 3e9, "at most"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(
    entity: QuotaEntity, key: str, limit: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_limit(entity, key, limit)


def test_changes_set_and_remove_limits_and_forget_an_entity_without_any() -> None:
    alice = QuotaEntity("alice")
    quotas = altered({}, alice, {RATE: 5, QuotaKey.REQUEST_PERCENTAGE: 12.5})

    fewer = altered(quotas, alice, {RATE: None, "unknown": None})
    none = altered(fewer, alice, {QuotaKey.REQUEST_PERCENTAGE: None})

    assert quotas == {alice: {RATE: 5.0, QuotaKey.REQUEST_PERCENTAGE: 12.5}}
    assert fewer == {alice: {QuotaKey.REQUEST_PERCENTAGE: 12.5}}
    assert none == {}


QUOTAS: Quotas = {
    QuotaEntity("a"): {RATE: 1.0},
    QuotaEntity(""): {RATE: 1.0},
    QuotaEntity("a", "x"): {RATE: 1.0},
    QuotaEntity(None, "x"): {RATE: 1.0},
    QuotaEntity(ip="1.1.1.1"): {QuotaKey.CONNECTION_CREATION_RATE: 1.0},
}


@pytest.mark.parametrize(
    ("components", "is_strict", "count"),
    [
        ([], False, 5),
        ([], True, 0),
        ([QuotaFilter("user", Match.ANY, None)], False, 3),
        ([QuotaFilter("user", Match.ANY, None)], True, 2),
        ([QuotaFilter("user", Match.EXACT, "a")], False, 2),
        ([QuotaFilter("user", Match.EXACT, "a")], True, 1),
        ([QuotaFilter("user", Match.DEFAULT, None)], False, 1),
        (
            [QuotaFilter("user", Match.EXACT, "a"), QuotaFilter("client-id", Match.ANY, None)],
            True,
            1,
        ),
        ([QuotaFilter("ip", Match.ANY, None)], True, 1),
    ],
)
def test_a_filter_selects_entities(
    components: list[QuotaFilter], is_strict: bool, count: int
) -> None:
    assert len(select(QUOTAS, components, is_strict=is_strict)) == count


@pytest.mark.parametrize(
    "components",
    [
        [QuotaFilter("", Match.ANY, None)],
        [QuotaFilter("user", Match.ANY, None)] * 2,
        [QuotaFilter("user", 3, None)],
        [QuotaFilter("user", Match.EXACT, None)],
        [QuotaFilter("user", Match.DEFAULT, "a")],
        [QuotaFilter("user", Match.ANY, None), QuotaFilter("ip", Match.ANY, None)],
    ],
)
def test_a_filter_that_cannot_be_is_refused(components: list[QuotaFilter]) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        select(QUOTAS, components, is_strict=False)

    assert not isinstance(refused.value, UnknownEntityTypeError)


def test_an_unknown_type_in_a_filter_has_an_error_of_its_own() -> None:
    with pytest.raises(UnknownEntityTypeError):
        select(QUOTAS, [QuotaFilter("group", Match.ANY, None)], is_strict=False)
