"""Brokers, ours and Kafka's, authenticate to each other and to the controllers with tokens."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fakes.sasl_clients import Issuer
from interop.cluster_members import CordwoodMember, KafkaMember
from interop.cluster_records import await_same_batches, produce
from interop.kafka_peer import KafkaTools, kept_ports
from interop.kraft_controllers import KraftControllers
from wire.waiting import await_true

OURS, OTHER, THEIRS = 1, 2, 101
VALUES = [b"value %d" % number for number in range(1_000)]
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_LIFE_S = 20
_START_S = 300  # all nodes must have started before the first token expires


class Tokens:
    """A file with a token that is replaced before it expires, as an agent of an issuer does."""

    def __init__(self, directory: Path) -> None:
        self._issuer = Issuer()
        self.keys, self.token = directory / "jwks.json", directory / "token"
        self.keys.write_bytes(self._issuer.key_set())
        self.renew(life_s=_START_S)

    def renew(self, life_s: int = _LIFE_S) -> None:
        now_s = time.time()
        fresh = self.token.with_suffix(".new")
        fresh.write_text(
            self._issuer.token(now_s=now_s, sub="broker", exp=int(now_s) + life_s) + "\n"
        )
        os.replace(fresh, self.token)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("tokens"))


def sasl_of(listener: str, tokens: Tokens) -> dict[str, str]:
    """What a listener of ours and of Kafka's needs for tokens, in both directions."""
    own = f"listener.name.{listener}"
    return {
        f"{own}.oauthbearer.sasl.jaas.config": f"{_PACKAGE}.OAuthBearerLoginModule required;",
        f"{own}.sasl.oauthbearer.token.endpoint.url": tokens.token.as_uri(),
        f"{own}.sasl.oauthbearer.jwks.endpoint.url": tokens.keys.as_uri(),
        f"{own}.sasl.oauthbearer.expected.audience": "cordwood",
        f"{own}.sasl.oauthbearer.expected.issuer": "https://issuer.example",
    }


def kafkas_own(listener: str) -> dict[str, str]:
    """The classes that Kafka has to be told, and Cordwood needs not."""
    own = f"listener.name.{listener}.oauthbearer"
    return {
        f"{own}.sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{own}.sasl.server.callback.handler.class": (
            f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
    }


@pytest.fixture(scope="module")
def cluster(
    kafka: KafkaTools, tokens: Tokens, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CordwoodMember, CordwoodMember, KafkaMember]]:
    place = tmp_path_factory.mktemp("token-cluster")
    common = {
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "super.users": "User:broker",
        **sasl_of("controller", tokens),
    }
    member = {
        **common,
        **sasl_of("inner", tokens),
        "listener.security.protocol.map": (
            "CONTROLLER:SASL_PLAINTEXT,INNER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
        ),
        "listener.name.inner.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "inter.broker.listener.name": "INNER",
        # Everybody authenticates again and again, with the newest token.
        "listener.name.inner.oauthbearer.connections.max.reauth.ms": "3000",
        "offsets.topic.replication.factor": "1",
    }
    allowed = f"{tokens.keys.as_uri()},{tokens.token.as_uri()}"
    files = f"{tokens.keys},{tokens.token}"
    with pytest.MonkeyPatch.context() as environment, ExitStack() as running:
        environment.setenv(
            "JAVA_TOOL_OPTIONS",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed} "
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={files}",
        )
        controllers = running.enter_context(
            KraftControllers(
                kafka,
                place / "controllers",
                properties={
                    **common,
                    **kafkas_own("controller"),
                    "sasl.enabled.mechanisms": "OAUTHBEARER",
                    "listener.name.controller.oauthbearer.connections.max.reauth.ms": "3000",
                },
                protocol="SASL_PLAINTEXT",
            )
        )

        def listeners(of: CordwoodMember | KafkaMember) -> None:
            [inner] = kept_ports(1)
            of._settings["listeners"] += f",INNER://127.0.0.1:{inner}"

        ours = []
        for node in (OURS, OTHER):
            mine = CordwoodMember(controllers, place / str(node), node_id=node, properties=member)
            listeners(mine)
            ours.append(running.enter_context(mine))
        theirs = KafkaMember(
            kafka,
            controllers,
            place / "theirs",
            node_id=THEIRS,
            properties={**member, **kafkas_own("controller"), **kafkas_own("inner")},
        )
        listeners(theirs)
        running.enter_context(theirs)
        yield ours[0], ours[1], theirs


def create(address: str, topic: str, *replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)])
    admin.create_topics([new])[topic].result(30)

    def is_in_sync() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
        return found is not None and len(found.isrs) == len(replicas)

    await_true(is_in_sync)


def test_everybody_follows_everybody_with_tokens_that_are_replaced(
    cluster: tuple[CordwoodMember, CordwoodMember, KafkaMember], tokens: Tokens
) -> None:
    first, second, theirs = cluster
    nodes: dict[int, CordwoodMember | KafkaMember] = {OURS: first, OTHER: second, THEIRS: theirs}
    for topic, leader in (("by-ours", OURS), ("by-theirs", THEIRS)):
        others = [node for node in nodes if node != leader]
        create(first.address, topic, leader, *others)

    deadline_s = time.monotonic() + 2 * _LIFE_S
    sent = 0
    while time.monotonic() < deadline_s:  # tokens of the first rounds expire meanwhile
        tokens.renew()
        for topic in ("by-ours", "by-theirs"):
            assert len(produce(first.address, topic, VALUES)) == len(VALUES)
        sent += len(VALUES)

    for topic in ("by-ours", "by-theirs"):
        await_same_batches(list(nodes.values()), topic)
    assert sent > len(VALUES)


def test_a_token_that_expired_is_refused_and_a_new_one_lets_the_broker_in_again(
    cluster: tuple[CordwoodMember, CordwoodMember, KafkaMember], tokens: Tokens
) -> None:
    first, second, _ = cluster
    create(first.address, "away", OURS, OTHER)
    second.stop()
    tokens.renew(life_s=-300)

    second.launch()
    second.wait_until("does not accept")
    tokens.renew(life_s=_START_S)
    second.wait_until("is running")

    admin = AdminClient({"bootstrap.servers": first.address})
    await_true(
        lambda: len(admin.list_topics("away", timeout=10).topics["away"].partitions[0].isrs) == 2
    )
