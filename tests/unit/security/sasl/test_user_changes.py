"""Changes of users: Kafka's rules, and one result for each user."""

import pytest

from cordwood.protocol.error_code import ErrorCode
from cordwood.security.sasl.user_changes import Deletion, Upsertion, plan_user_change
from cordwood.security.security_state import ScramMechanism, SecurityState, UserCredential
from fakes.sasl_clients import credential, state_of

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = state_of(("alice", "old"))


def upsertion(
    user: str = "bob",
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salt: bytes = b"salt",
    salted_password: bytes = bytes(32),
) -> Upsertion:
    return Upsertion(user, mechanism, iterations, salt, salted_password)


def codes(
    deletions: list[Deletion], upsertions: list[Upsertion], state: SecurityState = ALICE
) -> dict[str, ErrorCode]:
    found = plan_user_change(state, deletions, upsertions)
    return {result.user: result.code for result in found.results}


def test_credentials_are_added_replaced_and_deleted() -> None:
    planned = plan_user_change(
        state_of(("alice", "old"), ("carol", "x")),
        [Deletion("carol", SHA_256)],
        [upsertion("alice"), upsertion("bob", SHA_512, salted_password=bytes(64))],
    )

    after = planned.apply(state_of(("alice", "old"), ("carol", "x")))

    assert {result.code for result in planned.results} == {ErrorCode.none}
    assert set(after.credentials) == {
        UserCredential("alice", SHA_256),
        UserCredential("alice", SHA_512),
        UserCredential("bob", SHA_512),
        UserCredential("carol", SHA_512),
    }
    assert after.credentials[UserCredential("alice", SHA_256)].salt == b"salt"
    assert after.credentials[UserCredential("alice", SHA_512)] == credential(SHA_512, "old")


def test_a_salted_password_logs_in() -> None:
    from cordwood.security.sasl.scram_credentials import matches_password, salt_password

    salted = salt_password(SHA_256, "new", b"salt", 5000)
    planned = plan_user_change(ALICE, [], [upsertion(iterations=5000, salted_password=salted)])

    found = planned.apply(ALICE).credentials[UserCredential("bob", SHA_256)]

    assert matches_password(SHA_256, found, "new")


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (upsertion(user=""), ErrorCode.unacceptable_credential),
        (upsertion(user="a\nb"), ErrorCode.unacceptable_credential),
        (upsertion(mechanism=0), ErrorCode.unsupported_sasl_mechanism),
        (upsertion(mechanism=3), ErrorCode.unsupported_sasl_mechanism),
        (upsertion(iterations=4095), ErrorCode.unacceptable_credential),
        (upsertion(iterations=16385), ErrorCode.unacceptable_credential),
        (upsertion(iterations=16384), ErrorCode.none),
        (upsertion(salt=b""), ErrorCode.unacceptable_credential),
        (upsertion(salt=bytes(1025)), ErrorCode.unacceptable_credential),
        (upsertion(salted_password=bytes(31)), ErrorCode.unacceptable_credential),
    ],
)
def test_a_wrong_entry_fails_only_its_user(entry: Upsertion, code: ErrorCode) -> None:
    found = plan_user_change(ALICE, [Deletion("alice", SHA_256)], [entry])

    assert {result.user: result.code for result in found.results} == {
        "alice": ErrorCode.none,
        entry.user: code,
    }
    assert UserCredential("alice", SHA_256) not in found.apply(ALICE).credentials


@pytest.mark.parametrize(
    ("deletion", "code"),
    [
        (Deletion("", SHA_256), ErrorCode.unacceptable_credential),
        (Deletion("alice", 7), ErrorCode.unsupported_sasl_mechanism),
        (Deletion("bob", SHA_256), ErrorCode.resource_not_found),
        (Deletion("alice", SHA_512), ErrorCode.none),
    ],
)
def test_deletions(deletion: Deletion, code: ErrorCode) -> None:
    assert codes([deletion], []) == {deletion.user: code}


def test_a_user_that_is_named_twice_is_not_changed() -> None:
    """Also with two mechanisms, as in Kafka."""
    twice = plan_user_change(ALICE, [Deletion("alice", SHA_256)], [upsertion("alice", SHA_512)])

    assert [result.code for result in twice.results] == [ErrorCode.duplicate_resource]
    assert twice.apply(ALICE) is ALICE
    assert codes([Deletion("alice", SHA_256), Deletion("alice", SHA_512)], []) == {
        "alice": ErrorCode.duplicate_resource
    }
    assert codes([], [upsertion(), upsertion()]) == {"bob": ErrorCode.duplicate_resource}


def test_the_first_error_of_a_user_counts() -> None:
    assert codes([Deletion("bob", SHA_256)], [upsertion("bob")]) == {
        "bob": ErrorCode.resource_not_found
    }
    assert codes([], [upsertion(iterations=1), upsertion()]) == {
        "bob": ErrorCode.unacceptable_credential
    }
