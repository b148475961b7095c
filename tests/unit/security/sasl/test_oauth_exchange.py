"""OAUTHBEARER: the form of the message, and Kafka's way to refuse a token."""

import pytest

from cordwood.errors import FormatError
from cordwood.security.sasl.oauth_exchange import OAuthExchange, parse_bearer
from cordwood.security.sasl.sasl_exchange import Accepted, Challenge, Check, Outcome, Refused
from cordwood.security.sasl.tokens import RefusedTokenError, ValidToken
from fakes.sasl_clients import bearer


def check_token(token: str, now_ms: int) -> ValidToken:
    if token != "good":
        raise RefusedTokenError("it expired", subject="alice")
    return ValidToken(subject="alice", expires_ms=now_ms + 1000)


def received(exchange: OAuthExchange, message: bytes) -> Outcome:
    found = exchange.receive(message, 5)
    return found.run() if isinstance(found, Check) else found


@pytest.mark.parametrize("header", ["n,,", "n,a=alice,"])
def test_a_good_token_is_accepted_until_it_expires(header: str) -> None:
    found = received(OAuthExchange(check_token), bearer("good", header))

    assert found == Accepted(user="alice", expires_ms=1005)


def test_a_bad_token_is_answered_with_json_and_refused_after_the_acknowledgement() -> None:
    exchange = OAuthExchange(check_token)

    told = received(exchange, bearer("bad"))
    ended = received(exchange, b"\x01")

    assert told == Challenge(token=b'{"status":"invalid_token"}')
    assert ended == Refused(reason="it expired", user="alice")


def test_a_client_that_does_not_acknowledge_has_no_second_try() -> None:
    exchange = OAuthExchange(check_token)
    received(exchange, bearer("bad"))

    assert isinstance(received(exchange, bearer("good")), Refused)
    assert isinstance(received(exchange, bearer("good")), Refused)


def test_an_authorization_id_must_be_the_subject() -> None:
    found = received(OAuthExchange(check_token), bearer("good", "n,a=bob,"))

    assert isinstance(found, Refused)


def test_extensions_are_read() -> None:
    message = b"n,,\x01auth=Bearer a.b-c_d\x01traceId=12\x01logicalCluster=x y\x01\x01"

    assert parse_bearer(message) == (None, "a.b-c_d", {"traceId": "12", "logicalCluster": "x y"})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,\x01auth=Bearer x\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,b=x,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a1=2\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xbc\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * (64 * 1024 + 1) + b"\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * (128 * 1024) + b"\x01\x01",
    ],
)
def test_a_message_out_of_form_is_refused(message: bytes) -> None:
    with pytest.raises(FormatError):
        parse_bearer(message)

    assert isinstance(received(OAuthExchange(check_token), message), Refused)
