"""A connection that has to authenticate: every state, by hand, byte for byte."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.broker.security.authentication_events import Attempt, AttemptResult
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from cordwood.security.principal import Principal
from fakes.client_batches import client_batch
from fakes.sasl_clients import ScramClient, bearer, plain
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import Wanted, fetch, produce, produce_body
from wire.sasl_brokers import (
    ALICE,
    AUTHENTICATE,
    FAILED,
    HANDSHAKE,
    ILLEGAL,
    ISSUER,
    NONE,
    PASSWORD,
    UNSUPPORTED,
    add_users,
    authenticate,
    end_sessions,
    handshake,
    log_in,
    log_in_by_scram,
    sasl_broker,
    send_raw,
    token,
)
from wire.waiting import await_true

BATCH = bytes(client_batch(b"one"))
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cordwood.Broker]:
    with sasl_broker(tmp_path_factory.mktemp("sasl"), topics=["t"]) as broker:
        add_users(broker, (ALICE, PASSWORD))
        yield broker


@pytest.fixture
def client(guarded: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(guarded.bootstrap_servers) as raw:
        yield raw


def may_produce(client: RawClient) -> bool:
    return bool(produce(client, "t", BATCH).error_code == NONE)


# --- who gets in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_password_opens_the_door(client: RawClient, version: int) -> None:
    shaken = handshake(client, "PLAIN")
    answer = authenticate(client, plain(ALICE, PASSWORD), version)

    assert (shaken.error_code, tuple(shaken.mechanisms)) == (NONE, MECHANISMS)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (NONE, None, b"")
    assert answer.session_lifetime == 0
    assert may_produce(client)
    assert fetch(client, [Wanted(topic="t")]).error_code == NONE
    assert client.is_answered()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_proof_opens_the_door(client: RawClient, mechanism: str) -> None:
    assert client.is_answered()  # versions first, as clients do

    assert log_in_by_scram(client, mechanism).error_code == NONE
    assert may_produce(client)


def test_a_token_opens_the_door_until_it_expires(client: RawClient) -> None:
    handshake(client, "OAUTHBEARER")

    answer = authenticate(client, bearer(token()))

    assert answer.error_code == NONE
    assert 290_000 < answer.session_lifetime <= 300_000
    assert may_produce(client)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_tokens_without_headers_follow_a_handshake_of_version_0(
    client: RawClient, mechanism: str
) -> None:
    assert handshake(client, mechanism, version=0).error_code == NONE

    if mechanism == "PLAIN":
        assert send_raw(client, plain(ALICE, PASSWORD)) == b""
    else:
        scram = ScramClient("sha256", ALICE, PASSWORD)
        assert scram.is_ours(send_raw(client, scram.final(send_raw(client, scram.first()))))
    assert may_produce(client)


def test_a_client_that_sends_everything_at_once_is_answered_in_order(client: RawClient) -> None:
    """The produce waits for the login, which waits for a password to be checked."""
    client.send(HANDSHAKE, 1, encode_request(HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    body = encode_request(AUTHENTICATE, 2, {"auth_bytes": plain(ALICE, PASSWORD)})
    client.send(AUTHENTICATE, 2, body)
    for _ in range(3):
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))

    assert client.receive(HANDSHAKE, 1)[0] == 1
    assert client.receive(AUTHENTICATE, 2)[0] == 2
    assert [client.receive(ApiKey.PRODUCE, 9)[0] for _ in range(3)] == [3, 4, 5]


def test_a_login_may_come_byte_by_byte(client: RawClient) -> None:
    shaking = request_header(HANDSHAKE, 1, 1) + encode_request(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    proving = request_header(AUTHENTICATE, 2, 2) + encode_request(
        AUTHENTICATE, 2, {"auth_bytes": plain(ALICE, PASSWORD)}
    )

    for byte in framed(shaking) + framed(proving):
        client.send_bytes(bytes([byte]))

    assert client.receive(HANDSHAKE, 1)[0] == 1
    assert client.receive(AUTHENTICATE, 2) == (2, bytes.fromhex("00000001") + bytes(9))
    assert may_produce(client)


# --- who does not --------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [ALICE, "nobody"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    client: RawClient, mechanism: str, user: str
) -> None:
    if mechanism == "PLAIN":
        answer = log_in(client, user, "wrong")
    else:
        answer = log_in_by_scram(client, mechanism, user, "wrong")

    assert answer.error_code == FAILED
    assert answer.error_message == f"authentication by {mechanism} failed: invalid credentials"
    assert client.is_closed_by_broker()


def test_a_bad_token_is_refused_in_two_steps(client: RawClient) -> None:
    handshake(client, "OAUTHBEARER")

    told = authenticate(client, bearer(token(aud="somebody else")))
    ended = authenticate(client, b"\x01")

    assert (told.error_code, bytes(told.auth_bytes)) == (NONE, b'{"status":"invalid_token"}')
    assert ended.error_code == FAILED
    assert client.is_closed_by_broker()


def test_an_unknown_mechanism_is_answered_with_the_known_ones(client: RawClient) -> None:
    answer = handshake(client, "GSSAPI")

    assert (answer.error_code, tuple(answer.mechanisms)) == (UNSUPPORTED, MECHANISMS)
    assert client.is_closed_by_broker()


def test_tokens_without_headers_that_fail_are_not_answered(client: RawClient) -> None:
    handshake(client, "PLAIN", version=0)
    client.send_bytes(framed(plain(ALICE, "wrong")))

    assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (ApiKey.METADATA, encode_request(ApiKey.METADATA, 0, {"topics": []})),
        (ApiKey.PRODUCE, b""),
        (ApiKey.FETCH, b""),
        (999, b""),
    ],
)
@pytest.mark.parametrize("after_handshake", [False, True])
def test_no_other_request_is_answered(
    client: RawClient, api: int, body: bytes, after_handshake: bool
) -> None:
    if after_handshake:
        handshake(client, "PLAIN")
    client.send(api, 0, body)

    assert client.is_closed_by_broker()


def test_requests_in_the_wrong_state_are_refused(guarded: cordwood.Broker) -> None:
    address = guarded.bootstrap_servers
    with RawClient(address) as early, RawClient(address) as twice, RawClient(address) as asking:
        handshake(twice, "PLAIN")
        handshake(asking, "PLAIN")

        assert authenticate(early, plain(ALICE, PASSWORD)).error_code == ILLEGAL
        assert handshake(twice, "PLAIN").error_code == ILLEGAL
        assert asking.call(ApiKey.API_VERSIONS, 3, {}).error_code == ILLEGAL
        assert early.is_closed_by_broker()
        assert twice.is_closed_by_broker()
        assert asking.is_closed_by_broker()


def test_versions_that_are_not_served_are_answered_before_the_handshake(client: RawClient) -> None:
    client.send(ApiKey.API_VERSIONS, 99)
    (_, body) = client.receive(ApiKey.API_VERSIONS, 0)

    assert struct.unpack_from(">h", body) == (35,)
    assert client.is_answered()
    assert log_in(client).error_code == NONE


def test_a_request_larger_than_a_login_closes_the_connection(client: RawClient) -> None:
    client.send_bytes(struct.pack(">i", 65_537))

    assert client.is_closed_by_broker()


def test_after_the_login_requests_may_be_large(client: RawClient) -> None:
    log_in(client)

    large = bytes(client_batch(b"x" * 700_000))

    assert produce(client, "t", large).error_code == NONE


@pytest.mark.parametrize("api", [HANDSHAKE, AUTHENTICATE])
def test_a_session_without_an_end_is_not_authenticated_again(
    client: RawClient, api: ApiKey
) -> None:
    log_in(client)

    answer = client.call(api, 1, {})

    assert answer.error_code == ILLEGAL
    assert may_produce(client)


def test_a_listener_without_sasl_authenticates_nobody(broker: cordwood.Broker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        assert handshake(client, "PLAIN").error_code == ILLEGAL
        assert client.is_answered()


# --- what is known of it -------------------------------------------------------------------------


def test_the_session_has_the_principal_and_others_hear_of_it(tmp_path: Path) -> None:
    class Heard:
        def __init__(self) -> None:
            self.events: list[tuple[Attempt, object]] = []

        def succeeded(self, attempt: Attempt, principal: Principal) -> None:
            self.events.append((attempt, principal))

        def failed(self, attempt: Attempt, reason: str) -> None:
            self.events.append((attempt, reason))

    heard = Heard()
    with sasl_broker(tmp_path) as broker:
        add_users(broker, (ALICE, PASSWORD))
        server = broker._running()
        server.authentications.events.add(heard)
        with (
            RawClient(broker.bootstrap_servers) as good,
            RawClient(broker.bootstrap_servers) as bad,
        ):
            log_in_by_scram(good, "SCRAM-SHA-256")
            log_in(bad, password="wrong")
            sessions = [
                connection.session for connection in server._connections.in_loop(server._control)
            ]
        counts = server.authentications.counts.view()

    assert Principal("User", ALICE) in {session.principal for session in sessions}
    name = "SASL_PLAINTEXT"
    assert heard.events == [
        (
            Attempt(
                listener=name,
                client_host="127.0.0.1",
                mechanism="SCRAM-SHA-256",
                user=ALICE,
                client_id="raw",
            ),
            Principal("User", ALICE),
        ),
        (
            Attempt(
                listener=name,
                client_host="127.0.0.1",
                mechanism="PLAIN",
                user=ALICE,
                client_id="raw",
            ),
            "wrong password, or no such user",
        ),
    ]
    assert counts == {
        (name, "SCRAM-SHA-256", AttemptResult.SUCCEEDED): 1,
        (name, "PLAIN", AttemptResult.FAILED): 1,
    }


def test_a_user_may_log_in_as_soon_as_it_is_added_and_stays_when_it_is_removed(
    guarded: cordwood.Broker,
) -> None:
    address = guarded.bootstrap_servers
    from cordwood.security.sasl.scram_credentials import salt_password
    from cordwood.security.security_state import ScramMechanism

    sha_256 = ScramMechanism.SCRAM_SHA_256
    entry = {
        "name": "bob",
        "mechanism": sha_256,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": salt_password(sha_256, "b", b"salt", 4096),
    }
    alter = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    with RawClient(address) as admin, RawClient(address) as bob, RawClient(address) as late:
        log_in(admin)
        admin.call(alter, 0, {"upsertions": [entry]})
        assert log_in_by_scram(bob, "SCRAM-SHA-256", "bob", "b").error_code == NONE
        admin.call(alter, 0, {"deletions": [{"name": "bob", "mechanism": sha_256}]})

        assert may_produce(bob)
        assert log_in_by_scram(late, "SCRAM-SHA-256", "bob", "b").error_code == FAILED


@pytest.mark.parametrize(
    ("config", "is_locked"),
    [
        ({}, True),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.insecure": "true"}, True),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.plain.insecure": "true",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
                ' required user_a="b";',
            },
            False,
        ),
    ],
)
def test_a_broker_that_nobody_can_sign_in_to_says_what_to_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, config: dict[str, str], is_locked: bool
) -> None:
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **config}
    with cordwood.Broker(data_dir=tmp_path, config=config) as broker:
        add_users(broker, (ALICE, PASSWORD))

    said = [line for line in caplog.messages if "nobody can sign in" in line]
    assert len(said) == is_locked
    assert all(f"`cordwood users add NAME --at {tmp_path}`" in line for line in said)

    caplog.clear()
    with cordwood.Broker(data_dir=tmp_path, config=config):
        assert not any("nobody can sign in" in line for line in caplog.messages)


def test_users_in_the_configuration_are_the_users_of_plain(tmp_path: Path) -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="x" user_admin="x" user_carol="c";'
    )
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    with sasl_broker(tmp_path, {key: jaas}) as broker:
        add_users(broker, (ALICE, PASSWORD))
        address = broker.bootstrap_servers
        with RawClient(address) as carol, RawClient(address) as alice, RawClient(address) as proof:
            assert log_in(carol, "carol", "c").error_code == NONE
            assert log_in(alice).error_code == FAILED
            assert log_in_by_scram(proof, "SCRAM-SHA-512").error_code == NONE


# --- again ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cordwood.Broker]:
    """Clients have to authenticate again after 3 seconds; by PLAIN after half of one."""
    config = {
        "connections.max.reauth.ms": 3000,
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 500,
    }
    with sasl_broker(tmp_path_factory.mktemp("again"), config, topics=["t"]) as broker:
        add_users(broker, (ALICE, PASSWORD), ("bob", "b"))
        yield broker


def test_the_shorter_of_two_lifetimes_is_reported(strict: cordwood.Broker) -> None:
    address = strict.bootstrap_servers
    with RawClient(address) as short, RawClient(address) as scram, RawClient(address) as jwt:
        handshake(jwt, "OAUTHBEARER")

        assert log_in(short).session_lifetime == 500
        assert log_in_by_scram(scram, "SCRAM-SHA-256").session_lifetime == 3000
        soon = authenticate(jwt, bearer(token(exp=int(time.time()) + 2)))
        assert 0 < soon.session_lifetime <= 2000


def test_a_session_that_is_over_ends_with_the_next_request(strict: cordwood.Broker) -> None:
    with RawClient(strict.bootstrap_servers) as client:
        log_in(client)
        assert may_produce(client)
        end_sessions(strict)
        client.send(ApiKey.API_VERSIONS, 0)

        assert client.is_closed_by_broker()
    counts = strict._running().authentications.counts
    assert counts.view()["SASL_PLAINTEXT", "PLAIN", AttemptResult.EXPIRED] >= 1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_client_authenticates_again_in_either_loop(
    strict: cordwood.Broker, is_late: bool
) -> None:
    """Before its time is over, and after it: a handshake is always heard."""
    address = strict.bootstrap_servers
    with RawClient(address) as control, RawClient(address) as data:
        for client in (control, data):
            log_in(client)
        assert may_produce(data)  # it moves to the data loop
        if is_late:
            end_sessions(strict)

        for client in (control, data):
            assert log_in(client).session_lifetime == 500
        assert control.is_answered()
        assert may_produce(data)


def test_answers_stay_in_order_when_a_client_authenticates_between_produces(
    strict: cordwood.Broker,
) -> None:
    with RawClient(strict.bootstrap_servers) as client:
        log_in_by_scram(client, "SCRAM-SHA-512")
        assert may_produce(client)
        sent: list[tuple[ApiKey, int, int]] = []

        def send(api: ApiKey, version: int, body: bytes) -> None:
            sent.append((api, version, client.send(api, version, body)))

        batch = produce_body(9, [("t", 0, BATCH)])
        for _ in range(20):
            send(ApiKey.PRODUCE, 9, batch)
        send(HANDSHAKE, 1, encode_request(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"}))
        scram = ScramClient("sha512", ALICE, PASSWORD)
        send(AUTHENTICATE, 2, encode_request(AUTHENTICATE, 2, {"auth_bytes": scram.first()}))
        bodies = []
        for api, version, expected in sent:
            number, body = client.receive(api, version)
            assert number == expected
            bodies.append(body)
        sent.clear()
        from cordwood.protocol.messages import decode_response

        first = decode_response(AUTHENTICATE, 2, bodies[-1]).auth_bytes
        final = scram.final(bytes(first))
        send(AUTHENTICATE, 2, encode_request(AUTHENTICATE, 2, {"auth_bytes": final}))
        for _ in range(20):
            send(ApiKey.PRODUCE, 9, batch)

        assert [client.receive(api, version)[0] for api, version, _ in sent] == [
            number for *_, number in sent
        ]


def test_a_produce_between_the_handshake_and_the_proof_closes_the_connection(
    strict: cordwood.Broker,
) -> None:
    with RawClient(strict.bootstrap_servers) as client:
        log_in_by_scram(client, "SCRAM-SHA-256")
        handshake(client, "SCRAM-SHA-256")
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))

        assert client.is_closed_by_broker()


@pytest.mark.parametrize("change", ["user", "mechanism", "password"])
def test_a_client_that_comes_back_as_somebody_else_is_disconnected(
    strict: cordwood.Broker, change: str
) -> None:
    with RawClient(strict.bootstrap_servers) as client:
        log_in_by_scram(client, "SCRAM-SHA-256")

        if change == "mechanism":
            answer = log_in(client)
        elif change == "user":
            answer = log_in_by_scram(client, "SCRAM-SHA-256", "bob", "b")
        else:
            answer = log_in_by_scram(client, "SCRAM-SHA-256", ALICE, "wrong")

        assert answer.error_code == FAILED
        assert client.is_closed_by_broker()


def test_a_client_authenticates_again_once_a_second_at_most(strict: cordwood.Broker) -> None:
    with RawClient(strict.bootstrap_servers) as client:
        log_in_by_scram(client, "SCRAM-SHA-256")
        log_in_by_scram(client, "SCRAM-SHA-256")

        assert handshake(client, "SCRAM-SHA-256").error_code == ILLEGAL
        assert may_produce(client)


def test_a_new_key_of_the_issuer_is_found(tmp_path: Path) -> None:
    from fakes.sasl_clients import Issuer

    newer = Issuer(key_id="second")
    with sasl_broker(tmp_path) as broker:
        address = broker.bootstrap_servers
        mechanisms = broker._running().authentications._mechanisms
        assert mechanisms is not None
        [source] = mechanisms._sources.values()
        await_true(lambda: source.fetch_count > 0)
        (tmp_path / "jwks.json").write_bytes(newer.key_set())
        source._fetched_s = float("-inf")  # the last fetch is long ago
        with RawClient(address) as early:
            handshake(early, "OAUTHBEARER")
            told = authenticate(early, bearer(newer.token(now_s=time.time())))
            assert bytes(told.auth_bytes) == b'{"status":"invalid_token"}'
        await_true(lambda: source.keys.find("second", "ES256") is not None)

        with RawClient(address) as client:
            handshake(client, "OAUTHBEARER")
            assert authenticate(client, bearer(newer.token(now_s=time.time()))).error_code == NONE
        assert ISSUER.key_id == "first"


# --- with access rules ---------------------------------------------------------------------------


def test_the_principal_decides_who_manages_users(tmp_path: Path) -> None:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ALICE}",
    }
    describe, alter = (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    )
    deletion = {"deletions": [{"name": ALICE, "mechanism": 1}, {"name": "x", "mechanism": 1}]}
    with sasl_broker(tmp_path, config) as broker:
        add_users(broker, (ALICE, PASSWORD), ("bob", "b"))
        address = broker.bootstrap_servers
        with RawClient(address) as alice, RawClient(address) as bob:
            log_in(alice)
            log_in_by_scram(bob, "SCRAM-SHA-256", "bob", "b")

            seen = bob.call(describe, 0, {"users": None})
            tried = bob.call(alter, 0, deletion)
            allowed = alice.call(alter, 0, deletion)

    assert (seen.error_code, len(seen.results)) == (31, 0)
    assert [(result.user, result.error_code) for result in tried.results] == [
        (ALICE, 31),
        ("x", 31),
    ]
    assert {result.user: result.error_code for result in allowed.results} == {ALICE: 0, "x": 91}
