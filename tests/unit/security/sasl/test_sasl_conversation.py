"""What a client may send in which state."""

import pytest

from cordwood.protocol.error_code import ErrorCode
from cordwood.security.sasl.plain_exchange import ListedPasswords, PlainExchange
from cordwood.security.sasl.sasl_conversation import Proved, SaslConversation, SaslState
from cordwood.security.sasl.sasl_exchange import (
    Accepted,
    Challenge,
    Check,
    Exchange,
    Outcome,
    Refused,
    session_lifetime_ms,
)
from fakes.sasl_clients import plain

PASSWORDS = ListedPasswords({"alice": "a", "bob": "b"})


class Endless:
    """A mechanism that never ends."""

    def receive(self, token: bytes, now_ms: int) -> Outcome:
        return Challenge(token=b"more")


def begin(mechanism: str) -> Exchange:
    return Endless() if mechanism == "ENDLESS" else PlainExchange(PASSWORDS.is_password)


def conversation(earlier: Proved | None = None) -> SaslConversation:
    return SaslConversation(("PLAIN", "ENDLESS"), begin, earlier=earlier)


def login(talk: SaslConversation, message: bytes) -> Outcome:
    found = talk.receive(message, 0)
    return talk.settle(found.run()) if isinstance(found, Check) else found


@pytest.mark.parametrize("asks_versions", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_a_client_asks_for_versions_or_not_then_shakes_hands_then_authenticates(
    asks_versions: bool, version: int
) -> None:
    talk = conversation()

    assert not asks_versions or talk.versions()
    assert talk.handshake(version, "PLAIN") is ErrorCode.none
    assert talk.has_headers is (version == 1)
    assert login(talk, plain("alice", "a")) == Accepted(user="alice")
    assert talk.state is SaslState.COMPLETE


def test_a_wrong_password_ends_it() -> None:
    talk = conversation()
    talk.handshake(1, "PLAIN")

    assert isinstance(login(talk, plain("alice", "b")), Refused)
    assert talk.state is SaslState.FAILED
    assert isinstance(login(talk, plain("alice", "a")), Refused)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "plain", "SCRAM-SHA-256"])
def test_a_mechanism_that_is_not_enabled_ends_it(mechanism: str) -> None:
    talk = conversation()

    assert talk.handshake(1, mechanism) is ErrorCode.unsupported_sasl_mechanism
    assert talk.handshake(1, "PLAIN") is ErrorCode.illegal_sasl_state


def test_a_second_handshake_ends_it() -> None:
    talk = conversation()
    talk.handshake(1, "PLAIN")

    assert talk.handshake(1, "PLAIN") is ErrorCode.illegal_sasl_state
    assert isinstance(login(talk, plain("alice", "a")), Refused)


def test_versions_are_asked_once_and_before_the_handshake() -> None:
    twice, late = conversation(), conversation()
    late.handshake(1, "PLAIN")

    assert [twice.versions(), twice.versions()] == [True, False]
    assert not late.versions()
    assert twice.state is late.state is SaslState.FAILED


def test_a_token_before_the_handshake_ends_it() -> None:
    talk = conversation()

    assert isinstance(login(talk, plain("alice", "a")), Refused)
    assert talk.handshake(1, "PLAIN") is ErrorCode.illegal_sasl_state


def test_no_conversation_goes_on_for_ever() -> None:
    talk = conversation()
    talk.handshake(1, "ENDLESS")

    outcomes = [login(talk, b"x") for _ in range(10)]

    assert [type(outcome) for outcome in outcomes[:4]] == [Challenge] * 4
    assert all(isinstance(outcome, Refused) for outcome in outcomes[4:])


@pytest.mark.parametrize(
    ("earlier", "is_accepted"),
    [
        (Proved("alice", "PLAIN"), True),
        (Proved("bob", "PLAIN"), False),
        (Proved("alice", "ENDLESS"), False),
    ],
)
def test_a_client_that_authenticates_again_stays_who_it_was(
    earlier: Proved, is_accepted: bool
) -> None:
    talk = conversation(earlier)
    talk.handshake(1, "PLAIN")

    outcome = login(talk, plain("alice", "a"))

    assert isinstance(outcome, Accepted) is is_accepted
    assert (talk.state is SaslState.COMPLETE) is is_accepted


def test_versions_are_not_asked_again() -> None:
    assert not conversation(Proved("alice", "PLAIN")).versions()


@pytest.mark.parametrize(
    ("expires_ms", "reauth_ms", "lifetime_ms"),
    [
        (None, 0, None),
        (None, 500, 500),
        (1700, 0, 700),
        (1700, 500, 500),
        (1200, 500, 200),
        (900, 500, 1),
        (1000, 0, 1),
    ],
)
def test_a_session_ends_with_its_proof_or_when_the_operator_says(
    expires_ms: int | None, reauth_ms: int, lifetime_ms: int | None
) -> None:
    assert session_lifetime_ms(1000, expires_ms, reauth_ms) == lifetime_ms
