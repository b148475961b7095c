"""PLAIN: three tokens, and one answer for everything that is wrong."""

import pytest

from cordwood.errors import FormatError
from cordwood.security.sasl.plain_exchange import ListedPasswords, PlainExchange, parse_plain
from cordwood.security.sasl.sasl_exchange import Accepted, Check, Outcome, Refused
from fakes.sasl_clients import plain

PASSWORDS = ListedPasswords({"alice": "secret", "ü": "ü"})


def login(message: bytes) -> Outcome:
    found = PlainExchange(PASSWORDS.is_password).receive(message, 0)
    return found.run() if isinstance(found, Check) else found


@pytest.mark.parametrize(
    ("user", "password", "authorization_id"),
    [("alice", "secret", ""), ("alice", "secret", "alice"), ("ü", "ü", "")],
)
def test_the_right_password_is_accepted(user: str, password: str, authorization_id: str) -> None:
    assert login(plain(user, password, authorization_id)) == Accepted(user=user)


@pytest.mark.parametrize(("user", "password"), [("alice", "Secret"), ("bob", "secret")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(user: str, password: str) -> None:
    assert login(plain(user, password)) == Refused(
        reason="wrong password, or no such user", user=user
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\0\0secret",
        b"\0alice\0",
        b"bob\0alice\0secret",
        b"\0alice\0\xff",
        b"\0alice\0" + b"x" * 8192,
        b"\0" + b"x" * 1025 + b"\0secret",
    ],
)
def test_a_message_out_of_form_is_refused_and_not_repeated(message: bytes) -> None:
    with pytest.raises(FormatError) as refused:
        parse_plain(message)

    assert "secret" not in str(refused.value)
    assert isinstance(login(message), Refused)


def test_the_password_is_checked_by_somebody_who_has_the_time() -> None:
    asked: list[tuple[str, str]] = []

    def is_password(user: str, password: str) -> bool:
        asked.append((user, password))
        return True

    exchange = PlainExchange(is_password)

    found = exchange.receive(plain("alice", "x"), 0)

    assert isinstance(found, Check)
    assert not asked
    assert found.run() == Accepted(user="alice")


def test_nothing_is_accepted_after_the_end() -> None:
    exchange = PlainExchange(PASSWORDS.is_password)
    exchange.receive(plain("alice", "wrong"), 0)

    assert isinstance(exchange.receive(plain("alice", "secret"), 0), Refused)


def test_listed_passwords_are_not_kept_in_clear() -> None:
    assert "secret" not in repr(vars(PASSWORDS))
