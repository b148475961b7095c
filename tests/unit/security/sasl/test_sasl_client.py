"""Each mechanism as a machine: what the client sends, and what it believes."""

import pickle

import pytest

from cordwood.security.sasl.sasl_client import BearerClient, PlainClient, sasl_client
from cordwood.security.sasl.scram_client import SaslError
from cordwood.security.secret import Secret


def test_plain_sends_the_user_and_the_password() -> None:
    client = sasl_client("PLAIN", user="alice", password=Secret("pencil"))

    sent = client.first()
    end = client.answer(b"")

    assert sent == b"\0alice\0pencil"
    assert end is None
    assert client.is_complete


def test_plain_refuses_a_nul() -> None:
    with pytest.raises(SaslError, match="NUL"):
        PlainClient("alice\0root", Secret("pencil"))


def test_a_token_is_sent_and_an_empty_answer_accepts_it() -> None:
    client = sasl_client("OAUTHBEARER", token=Secret("eyJ.abc.def"))

    sent = client.first()
    client.answer(b"")

    assert sent == b"n,,\x01auth=Bearer eyJ.abc.def\x01\x01"
    assert client.is_complete


def test_a_refused_token_is_acknowledged_and_not_complete() -> None:
    client = BearerClient(Secret("eyJ.abc.def"))
    client.first()

    acknowledged = client.answer(b'{"status":"invalid_token"}')

    assert acknowledged == b"\x01"
    assert client.refusal == "invalid_token"
    assert not client.is_complete
    with pytest.raises(SaslError, match="invalid_token"):
        client.answer(b"")


@pytest.mark.parametrize("challenge", [b"[]", b"{", b"nothing", b"[" * 60_000])
def test_a_refusal_without_a_reason_is_a_refusal(challenge: bytes) -> None:
    client = BearerClient(Secret("t"))
    client.first()

    assert client.answer(challenge) == b"\x01"
    assert not client.is_complete


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b", "tök"])
def test_a_token_cannot_add_fields_to_the_message(token: str) -> None:
    with pytest.raises(SaslError, match="token"):
        BearerClient(Secret(token))


def test_a_mechanism_says_what_it_lacks() -> None:
    with pytest.raises(SaslError, match="SCRAM-SHA-256 needs a user and a password"):
        sasl_client("SCRAM-SHA-256", user="alice")
    with pytest.raises(SaslError, match="OAUTHBEARER needs a token"):
        sasl_client("OAUTHBEARER")
    with pytest.raises(SaslError, match="GSSAPI is not known; use one of PLAIN"):
        sasl_client("GSSAPI", user="alice", password=Secret("x"))


def test_a_secret_shows_itself_nowhere_and_survives_pickling() -> None:
    secret = Secret("pencil")

    shown = f"{secret} {secret!r} {secret:>10} {[secret]} {secret!s}"

    assert "pencil" not in shown
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert secret.reveal() == "pencil"
    assert secret != Secret("pen")
    assert secret != "pencil"
