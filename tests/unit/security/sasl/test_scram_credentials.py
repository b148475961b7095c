"""Credentials, and that nobody can tell an invented one from a real one."""

import time
from collections import Counter
from dataclasses import replace
from statistics import median

import pytest

from cordwood.errors import ConfigError
from cordwood.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    UserDirectory,
    check_iterations,
    check_new_password,
    check_user_name,
    matches_any,
    matches_password,
)
from cordwood.security.security_state import ScramMechanism, SecurityState, UserCredential
from fakes.sasl_clients import credential, state_of

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SECRET = b"of this store"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_only_the_password_itself_matches(mechanism: ScramMechanism) -> None:
    known = credential(mechanism, "Pässword")

    assert matches_password(mechanism, known, "Pässword")
    assert not matches_password(mechanism, known, "pässword")
    assert not matches_password(mechanism, known, "")


def test_a_password_is_not_normalised() -> None:
    """As Java's clients: one ü is not the other."""
    known = credential(SHA_256, "\u00fc")

    assert not matches_password(SHA_256, known, "u\u0308")


def test_an_invented_credential_is_the_same_each_time_and_another_for_each_name() -> None:
    once, again = (UserDirectory(SecurityState(), SECRET) for _ in range(2))
    other_store = UserDirectory(SecurityState(), b"of another store")

    assert once.find("bob", SHA_256) == again.find("bob", SHA_256)
    assert once.find("bob", SHA_256) != once.find("rob", SHA_256)
    assert once.find("bob", SHA_256) != other_store.find("bob", SHA_256)
    assert once.find("bob", SHA_256).credential.salt != once.find("bob", SHA_512).credential.salt


def test_an_invented_credential_has_the_iterations_and_the_salt_of_real_ones() -> None:
    java = credential(SHA_256, "x", salt=b"abc0123456789xyz", iterations=8192)
    ours = credential(SHA_256, "x", salt=bytes(32), iterations=4096)
    known = {UserCredential("a", SHA_256): java, UserCredential("b", SHA_256): ours}
    directory = UserDirectory(SecurityState(credentials=known), SECRET)

    found = [directory.find(f"user {n}", SHA_256).credential for n in range(200)]

    assert {(item.iterations, len(item.salt)) for item in found} == {(8192, 16), (4096, 32)}
    assert all(item.salt.isalnum() for item in found if item.iterations == 8192)


def test_every_kind_of_credential_is_invented_about_as_often() -> None:
    kinds = 8
    known = {
        UserCredential(f"{number}", SHA_256): credential(SHA_256, "x", iterations=4096 + number)
        for number in range(kinds)
    }
    directory = UserDirectory(SecurityState(credentials=known), SECRET)

    found = Counter(directory.find(f"user {n}", SHA_256).credential.iterations for n in range(4000))

    assert len(found) == kinds
    assert min(found.values()) > 4000 / kinds / 2
    assert max(found.values()) < 4000 / kinds * 2


def test_very_many_kinds_of_credentials_do_not_make_a_login_slow() -> None:
    """The most frequent ones are invented."""
    made = credential(SHA_256, "x")
    known = {
        UserCredential(f"{number} {copy}", SHA_256): made._replace(iterations=4096 + number)
        for number in range(600)
        for copy in range(1 + (number >= 400))
    }
    directory = UserDirectory(SecurityState(credentials=known), SECRET)

    found = {directory.find(f"user {n}", SHA_256).credential.iterations for n in range(2000)}

    assert len(found) <= 256
    assert sum(iterations >= 4096 + 400 for iterations in found) > 150


def test_a_new_kind_of_credential_changes_only_the_names_that_get_it() -> None:
    before = UserDirectory(state_of(("a", "x")), SECRET)
    more = credential(SHA_256, "x", iterations=16384)
    state = state_of(("a", "x"))
    after = UserDirectory(
        replace(state, credentials={**state.credentials, UserCredential("b", SHA_256): more}),
        SECRET,
    )

    names = [f"user {n}" for n in range(100)]
    changed = [n for n in names if before.find(n, SHA_256) != after.find(n, SHA_256)]

    assert 0 < len(changed) < 100
    assert all(after.find(n, SHA_256).credential.iterations == 16384 for n in changed)


def test_a_password_of_any_mechanism_of_the_user_matches() -> None:
    state = SecurityState(
        credentials={
            UserCredential("alice", SHA_256): credential(SHA_256, "one"),
            UserCredential("alice", SHA_512): credential(SHA_512, "two"),
        }
    )
    directory = UserDirectory(state, SECRET)

    assert matches_any(directory, "alice", "one")
    assert matches_any(directory, "alice", "two")
    assert not matches_any(directory, "alice", "three")
    assert not matches_any(directory, "bob", "one")


def test_a_check_takes_the_same_time_for_every_name() -> None:
    """Right, wrong, unknown, and a user of the other mechanism only."""
    state = state_of(("alice", "right"))
    only = UserCredential("carol", SHA_512)
    state = replace(state, credentials={**state.credentials, only: credential(SHA_512, "right")})
    directory = UserDirectory(state, SECRET)
    cases = [("alice", "right"), ("alice", "wrong"), ("bob", "right"), ("carol", "right")]

    times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for _ in range(15):
        for case in cases:
            began = time.thread_time()
            matches_any(directory, *case)
            times[case].append(time.thread_time() - began)

    found = [median(measured) for measured in times.values()]
    assert max(found) < 1.5 * min(found)


@pytest.mark.parametrize("name", ["", "a\nb", "a\0", "\x7f", "\u202e", "x" * 1025])
def test_names_that_spoil_logs_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="user name"):
        check_user_name(name)


@pytest.mark.parametrize("password", ["", "a\n", "a\0b", "x" * 1025])
def test_a_refused_password_is_not_repeated(password: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_new_password(password)

    assert not password or password not in str(refused.value)


@pytest.mark.parametrize("iterations", [4095, 16385, 0, -1])
def test_iterations_are_those_that_kafka_accepts(iterations: int) -> None:
    check_iterations(ITERATIONS_MIN)

    with pytest.raises(ConfigError, match="4096 to 16384"):
        check_iterations(iterations)
