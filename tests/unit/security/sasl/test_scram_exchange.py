"""SCRAM on the server's side: RFC 7677's example, and everything that is refused."""

import base64
import re

import pytest

from cordwood.errors import FormatError
from cordwood.security.sasl.sasl_exchange import Accepted, Challenge, Refused
from cordwood.security.sasl.scram_credentials import UserDirectory, credential_of
from cordwood.security.sasl.scram_exchange import ScramExchange
from cordwood.security.sasl.scram_messages import (
    parse_client_final,
    parse_client_first,
    parse_name,
    render_name,
)
from cordwood.security.security_state import (
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from fakes.sasl_clients import ScramClient, credential, state_of

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
SECRET = b"of this store"
NONCE = "ours"


def exchange(
    state: SecurityState, mechanism: ScramMechanism = SHA_256, nonce: str = NONCE
) -> ScramExchange:
    return ScramExchange(mechanism, UserDirectory(state, SECRET).find, nonce)


def first_of(found: object) -> bytes:
    assert isinstance(found, Challenge)
    return found.token


def test_the_example_of_rfc_7677_is_accepted() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = {UserCredential("user", SHA_256): credential(SHA_256, "pencil", salt=salt)}
    login = exchange(SecurityState(credentials=known), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"

    challenge = login.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0)
    outcome = login.receive(
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode(), 0
    )

    assert challenge == Challenge(token=f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert outcome == Accepted(user="user", token=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_client_that_repeats_its_nonce_as_old_librdkafka_does_is_accepted(
    mechanism: ScramMechanism,
) -> None:
    login = exchange(state_of(("alice", "password")), mechanism)
    client = ScramClient(HASHES[mechanism], "alice", "password", nonce="theirs")

    server_first = first_of(login.receive(client.first(), 0))
    outcome = login.receive(
        client.final(server_first, lambda text: text.replace("r=theirs", "r=theirstheirs")), 0
    )

    assert isinstance(outcome, Accepted)
    assert client.is_ours(outcome.token)


@pytest.mark.parametrize(
    "nonce", ["ours", "theirs", "theirstheirs", "xours", "theirsxours", "theirstheirstheirsours"]
)
def test_every_other_nonce_is_refused(nonce: str) -> None:
    login = exchange(state_of(("alice", "password")))
    client = ScramClient("sha256", "alice", "password", nonce="theirs")

    server_first = first_of(login.receive(client.first(), 0))
    outcome = login.receive(client.final(server_first, lambda _: f"c=biws,r={nonce}"), 0)

    assert isinstance(outcome, Refused)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "Jürgen", "=2C"])
def test_the_right_password_is_accepted_and_the_broker_proves_itself(
    mechanism: ScramMechanism, user: str
) -> None:
    login = exchange(state_of((user, "pass,word=")), mechanism)
    client = ScramClient(HASHES[mechanism], user, "pass,word=")

    server_first = first_of(login.receive(client.first(), 0))
    outcome = login.receive(client.final(server_first), 0)

    assert isinstance(outcome, Accepted)
    assert outcome.user == user
    assert client.is_ours(outcome.token)


def test_the_nonce_of_librdkafka_before_2_6_1_is_accepted() -> None:
    """It has the client's part twice. A login of another time cannot be repeated with it."""
    login = exchange(state_of(("alice", "right")))
    client = ScramClient("sha256", "alice", "right")

    server_first = first_of(login.receive(client.first(), 0))
    final = client.final(server_first, lambda text: text.replace("r=abcdef", "r=abcdefabcdef"))
    outcome = login.receive(final, 0)

    assert isinstance(outcome, Accepted)
    assert client.is_ours(outcome.token)


def test_a_wrong_password_is_refused_at_the_proof() -> None:
    login = exchange(state_of(("alice", "right")))
    client = ScramClient("sha256", "alice", "wrong")

    server_first = first_of(login.receive(client.first(), 0))

    assert login.receive(client.final(server_first), 0) == Refused(
        reason="wrong password", user="alice"
    )


@pytest.mark.parametrize(
    "state",
    [
        SecurityState(),
        state_of(("alice", "x")),
        state_of(("bob", "x"), mechanisms=(SHA_512,)),
    ],
    ids=["no users", "another user", "another mechanism"],
)
def test_an_unknown_user_is_asked_for_a_proof_too_and_none_is_good(state: SecurityState) -> None:
    login = exchange(state)
    client = ScramClient("sha256", "bob", "x")

    server_first = first_of(login.receive(client.first(), 0))
    outcome = login.receive(client.final(server_first), 0)

    assert re.fullmatch(rb"r=abcdefours,s=[A-Za-z0-9+/]+=*,i=4096", server_first)
    assert isinstance(outcome, Refused)


def test_an_invented_credential_whose_password_is_guessed_is_refused_all_the_same() -> None:
    """Whoever knows the secret of the store still cannot log in as nobody."""
    directory = UserDirectory(SecurityState(), SECRET)
    invented = directory.find("bob", SHA_256)
    salted = bytes(32)
    matching = credential_of(SHA_256, salted, invented.credential.salt, 4096)

    assert invented.is_invented
    assert matching.stored_key != invented.credential.stored_key


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"y,,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,b=user,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=x,m=ext",
        b"n,,n=us=er,r=x",
        b"n,,n=us=2cer,r=x",
        b"n,,n=user,r=x y",
        b"n,,n=user,r=x\x7f",
        b"n,,n=us\0er,r=x",
        b"n,,r=x,n=user",
        b"n,,n=user,r=x,",
        b"n,,n=user,r=x,a",
        b"n,,n=user,r=x,a=1,a=2",
        b"n,,n=\xff\xfe,r=x",
        b"n,,n=" + b"u" * 1025 + b",r=x",
        b"n,,n=user,r=" + b"x" * 1025,
        b"n,,n=user,r=x,a=" + b"x" * 8192,
    ],
)
def test_a_first_message_out_of_form_is_refused(message: bytes) -> None:
    with pytest.raises(FormatError):
        parse_client_first(message)

    assert isinstance(exchange(state_of(("user", "x"))).receive(message, 0), Refused)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws",
        b"c=biws,r=x",
        b"c=biws,p=AAAA",
        b"c=biws,r=x,p=A",
        b"c=b!ws,r=x,p=AAAA",
        b"c=biws,r=x,p=AA AA",
        b"c=biws,r=x,v=AAAA",
        b"r=x,c=biws,p=AAAA",
        b"c=biws,r=x,p=AAAA,q=1",
        b"c=biws,r=x,m=1,p=AAAA",
    ],
)
def test_a_final_message_out_of_form_is_refused(message: bytes) -> None:
    with pytest.raises(FormatError):
        parse_client_final(message)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace("ours", "yours"),
        lambda text: text.replace("r=abcdefours", "r=abcdef"),
        lambda text: text.replace("r=abcdefours", "r=xabcdefours"),
    ],
    ids=["binding", "nonce", "short nonce", "long nonce"],
)
def test_a_proof_for_another_login_is_refused(change: "object") -> None:
    login = exchange(state_of(("alice", "right")))
    client = ScramClient("sha256", "alice", "right")
    server_first = first_of(login.receive(client.first(), 0))

    outcome = login.receive(client.final(server_first, change), 0)  # type: ignore[arg-type]

    assert isinstance(outcome, Refused)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_proof_of_another_size_is_refused(size: int) -> None:
    login = exchange(state_of(("alice", "right")))
    first_of(login.receive(b"n,,n=alice,r=x", 0))
    proof = base64.b64encode(bytes(size)).decode()

    outcome = login.receive(f"c=biws,r=xours,p={proof}".encode(), 0)

    assert isinstance(outcome, Refused)


def test_an_authorization_id_must_be_the_user() -> None:
    state = state_of(("alice", "right"))
    client = ScramClient("sha256", "alice", "right", header="n,a=alice,")
    login = exchange(state)

    server_first = first_of(login.receive(client.first(), 0))

    assert isinstance(login.receive(client.final(server_first), 0), Accepted)
    assert isinstance(exchange(state).receive(b"n,a=bob,n=alice,r=x", 0), Refused)


def test_delegation_tokens_are_refused_and_other_extensions_ignored() -> None:
    state = state_of(("alice", "right"))

    with_token = exchange(state).receive(b"n,,n=alice,r=x,tokenauth=true", 0)
    without = exchange(state).receive(b"n,,n=alice,r=x,tokenauth=false,other=1", 0)

    assert isinstance(with_token, Refused)
    assert isinstance(without, Challenge)


def test_nothing_is_accepted_after_the_end() -> None:
    login = exchange(state_of(("alice", "right")))
    client = ScramClient("sha256", "alice", "right")
    final = client.final(first_of(login.receive(client.first(), 0)))
    login.receive(final, 0)

    assert isinstance(login.receive(final, 0), Refused)
    assert isinstance(login.receive(client.first(), 0), Refused)


@pytest.mark.parametrize("name", ["a", "=", ",", "=2C", "=3D", "a=b,c", "ü"])
def test_a_name_survives_its_escapes(name: str) -> None:
    assert parse_name(render_name(name)) == name
