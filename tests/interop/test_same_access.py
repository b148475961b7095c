"""Every API, under the same access rules, at Kafka and at ours: the same is refused and hidden.

For each API the rules are made from our own access table: none at all, each need alone, all of
them, all but one that is denied, prefixes, wildcards. Kafka says what the answers must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from uuid import UUID

import pytest

import cordwood
from cordwood.broker.security.access_table import ACCESS_TABLE, OPEN_APIS, Need
from cordwood.protocol.acl_codes import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import Fields
from cordwood.security.security_state import AclRule, SecurityState
from fakes.client_batches import client_batch
from interop.access_cases import AUTO, CASES, TOPICS, UNKNOWN_ID, Case, Ids
from interop.authorizing_kafka import SuperUser, authorizing_kafka
from interop.kafka_peer import KafkaTools
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch, produce

ANONYMOUS: Final = "User:ANONYMOUS"
NAMES: Final[Mapping[AclResource, tuple[str, ...]]] = {
    AclResource.TOPIC: ("orders", "missing", "doomed", "__consumer_offsets"),
    AclResource.GROUP: ("billing", "members"),
    AclResource.CLUSTER: (CLUSTER_NAME,),
    AclResource.TRANSACTIONAL_ID: ("tx",),
}
PREFIXES: Final[Mapping[AclResource, tuple[str, ...]]] = {
    **NAMES,
    AclResource.TOPIC: ("ord", "miss", "doo"),
    AclResource.GROUP: ("b", "m"),
}
EVERYTHING: Final = frozenset(
    AclRule(
        resource=resource,
        pattern=AclPattern.LITERAL,
        name=CLUSTER_NAME if resource is AclResource.CLUSTER else "*",
        principal=ANONYMOUS,
        host="*",
        operation=AclOperation.ALL,
        permission=AclPermission.ALLOW,
    )
    for resource in NAMES
)
# What is compared: who is refused what, and which names are told.
_TOLD: Final = frozenset(
    {
        "authorized_operations",
        "cluster_authorized_operations",
        "committed_offset",
        "error_code",
        "group_id",
        "is_internal",
        "key",
        "name",
        "num_partitions",
        "partition",
        "partition_error_code",
        "partition_index",
        "replication_factor",
        "resource_name",
        "resource_type",
        "topic",
        "topic_authorized_operations",
        "topic_config_error_code",
        "topic_id",
        "topic_name",
        "transaction_state",
        "transactional_id",
    }
)
_ONLY_WHETHER: Final = frozenset({"brokers", "configs"})  # and how many there are differs
BATCH: Final = bytes(client_batch(b"one"))
NEW_PRODUCER: Final = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
TRANSACTIONAL: Final = {
    **NEW_PRODUCER,
    "transactional_id": "tx",
    "transaction_timeout": 900_000,  # longer than the tests take
}
COMMIT: Final = {
    "group_id": "billing",
    "generation_id_or_member_epoch": -1,
    "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
        for name in ("orders", "other")
    ],
}
JOIN: Final = {
    "group_id": "members",
    "member_id": "one",
    "rebalance_timeout": 10_000,
    "subscribed_topic_names": ["orders", "other"],
    "topic_partitions": [],
}
_AUTO_CODES: Final = frozenset({0, 3, 5})  # Kafka says later that it has created a topic


class Peer:
    """A broker with an anonymous client, and an administrator who may do everything.

    At ours, which has no SASL here, the client is its own administrator while all is allowed.
    """

    def __init__(
        self, client: RawClient, admin: RawClient, set_rules: Callable[[frozenset[AclRule]], None]
    ) -> None:
        self.client = client
        self.admin = admin
        self._set_rules = set_rules
        set_rules(EVERYTHING)
        for topic in ("orders", "other", "doomed"):
            self._create(topic)
        while produce(admin, "orders", BATCH).error_code:
            pass  # Kafka's leader is elected
        while admin.call(ApiKey.INIT_PRODUCER_ID, 4, NEW_PRODUCER).error_code:
            pass  # Kafka gets a block of ids
        admin.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["billing"]})
        while any(
            partition.error_code
            for topic in admin.call(ApiKey.OFFSET_COMMIT, 9, COMMIT).topics
            for partition in topic.partitions
        ):
            pass  # Kafka creates its topic of offsets
        self._begin_transaction()

    def told(self, rules: frozenset[AclRule], case: Case) -> Any:
        """What the client gets to know under these rules."""
        return self.under(
            rules,
            lambda client, ids: client.call(case.api, case.version, case.request(ids)),
            api=case.api,
        )

    def under(
        self, rules: frozenset[AclRule], ask: Callable[[RawClient, Ids], Any], api: ApiKey
    ) -> Any:
        self._set_rules(EVERYTHING)
        if "doomed" not in self._ids():
            self._create("doomed")
        if api is ApiKey.CONSUMER_GROUP_DESCRIBE:
            self._beat()
        ids = self._ids()
        self._set_rules(rules)
        answer = ask(self.client, ids)
        self._set_rules(EVERYTHING)
        while api is ApiKey.DELETE_TOPICS and self._is_half_deleted():
            pass
        return _told(answer, {topic_id: name for name, topic_id in ids.items()})

    def _create(self, topic: str) -> None:
        wanted = {
            "name": topic,
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": "-1"}],  # its records are old
        }
        self.admin.call(ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})
        while topic not in self._ids():
            pass

    def _begin_transaction(self) -> None:
        self.admin.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["tx"]})
        producer = self.admin.call(ApiKey.INIT_PRODUCER_ID, 4, TRANSACTIONAL)
        while producer.error_code:  # Kafka creates its topic of transactions
            producer = self.admin.call(ApiKey.INIT_PRODUCER_ID, 4, TRANSACTIONAL)
        begin = {
            "v3_and_below_transactional_id": "tx",
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": [0]} for name in ("orders", "other")
            ],
        }
        while any(
            partition.partition_error_code
            for topic in self.admin.call(
                ApiKey.ADD_PARTITIONS_TO_TXN, 3, begin
            ).results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ):
            pass  # not yet

    def _ids(self) -> dict[str, UUID]:
        return {
            topic.name: topic.topic_id
            for topic in self.admin.call(ApiKey.METADATA, 12, {"topics": None}).topics
            if topic.partitions and topic.partitions[0].leader_id >= 0
        }

    def _is_half_deleted(self) -> bool:
        """The controller of Kafka deletes a topic before its broker knows."""
        ids = self._ids()
        wanted = {"topics": [{"name": "doomed", "count": 3, "assignments": None}]}
        tried = self.admin.call(
            ApiKey.CREATE_PARTITIONS, 3, {**wanted, "timeout": 10_000, "validate_only": True}
        )
        return ("doomed" in ids) != bool(tried.results[0].error_code == 0)

    def _beat(self) -> None:
        """A member of the new protocol has both topics."""
        answer = self.admin.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, JOIN)
        assert answer.error_code == 0, answer


def _is_created(item: Any) -> bool:
    """A topic that an earlier case has created, in a list of everything."""
    return isinstance(item, Fields) and str(getattr(item, "resource_name", "")).startswith(AUTO)


def _told(value: Any, names: Mapping[UUID, str], field: str = "") -> Any:
    """The part of an answer that is compared; see `_TOLD`."""
    if isinstance(value, Fields):
        kept = {
            name: _told(item, names, name)
            for name, item in zip(value.names, value, strict=True)
            if name in _TOLD or isinstance(item, tuple | Fields)
        }
        if str(kept.get("name")).startswith(AUTO):
            return {"is_refused": kept["error_code"] not in _AUTO_CODES}
        if "topic_config_error_code" in kept:
            del kept["topic_id"]  # Kafka invents one even if it only validates
        return kept
    if isinstance(value, tuple | list):
        if field in _ONLY_WHETHER:
            return bool(value)
        items = [_told(item, names) for item in value if not _is_created(item)]
        if field == "topics":  # of Metadata: those that earlier cases created are of no interest
            items = [item for item in items if item != {"is_refused": False}] or items[:1]
        return sorted(items, key=repr)
    if isinstance(value, UUID):
        return names.get(value, "nil" if value.int == 0 else "unknown")
    return value


@pytest.fixture(scope="module")
def theirs(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with ExitStack() as stack:
        clients, admins = stack.enter_context(
            authorizing_kafka(kafka, tmp_path_factory.mktemp("authorizing"))
        )
        admin = stack.enter_context(SuperUser(admins))
        yield Peer(stack.enter_context(RawClient(clients)), admin, admin.set_rules)


@contextmanager
def our_peer(super_users: str = "") -> Iterator[Peer]:
    config = {
        "authorizer.class.name": "standard",
        "super.users": super_users,
        "node.id": 1,
        "offsets.topic.num.partitions": 1,
    }
    with (
        cordwood.Broker(config=config) as running,
        RawClient(running.bootstrap_servers) as client,
    ):
        assert running._server is not None
        file = running._server.security_file

        def set_rules(rules: frozenset[AclRule]) -> None:
            file.change(lambda state: SecurityState(rules=rules))

        yield Peer(client, client, set_rules)


@pytest.fixture(scope="module")
def ours() -> Iterator[Peer]:
    with our_peer() as peer:
        yield peer


def rules_of(needs: list[Need], **changes: Any) -> frozenset[AclRule]:
    names = PREFIXES if changes.get("pattern") is AclPattern.PREFIXED else NAMES
    return frozenset(
        AclRule(
            resource=need.resource,
            pattern=AclPattern.LITERAL,
            name=name,
            principal=ANONYMOUS,
            host="*",
            operation=need.operation,
            permission=AclPermission.ALLOW,
        )._replace(**changes)
        for need in needs
        for name in ([changes["name"]] if "name" in changes else names[need.resource])
    )


def scenarios(api: ApiKey) -> Iterator[tuple[str, frozenset[AclRule]]]:
    needs = list(ACCESS_TABLE[API_CATALOG[api].name])
    everything = rules_of(needs)
    yield "none", frozenset()
    yield "all", everything
    yield "prefixed", rules_of(needs, pattern=AclPattern.PREFIXED)
    yield "everybody", rules_of(needs, principal="User:*")
    yield "another", rules_of(needs, principal="User:another")
    yield "elsewhere", rules_of(needs, host="10.1.2.3")
    yield "here", rules_of(needs, host="127.0.0.1")
    yield "everything", EVERYTHING
    for need in needs:
        what = f"{need.operation.name.lower()}-{need.resource.name.lower()}"
        yield f"only-{what}", rules_of([need])
        yield f"without-{what}", everything - rules_of([need])
        denied = rules_of([need], permission=AclPermission.DENY)
        yield f"denied-{what}", everything | denied
        if need.resource is not AclResource.CLUSTER:
            wild = rules_of([need], permission=AclPermission.DENY, name="*")
            yield f"all-denied-{what}", EVERYTHING | wild


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_is_refused_and_hidden(theirs: Peer, ours: Peer, case: Case) -> None:
    different = [
        f"{name}\n  Kafka {expected}\n  ours  {found}"
        for name, rules in scenarios(case.api)
        if (expected := theirs.told(rules, case)) != (found := ours.told(rules, case))
    ]

    assert not different, "\n".join(different)


def produced(client: RawClient, ids: Ids) -> list[tuple[str, int]]:
    by_name = [(name, produce(client, name, BATCH).error_code) for name in TOPICS]
    wanted = {**{name: ids[name] for name in ("orders", "other")}, "unknown": UNKNOWN_ID}
    return by_name + [
        (name, produce(client, topic_id, BATCH, version=13).error_code)
        for name, topic_id in wanted.items()
    ]


def fetched(client: RawClient, ids: Ids) -> list[tuple[str, int, bool]]:
    by_id = {ids["orders"]: "id-orders", ids["other"]: "id-other", UNKNOWN_ID: "id-unknown"}
    by_name = fetch(client, [Wanted(topic=topic) for topic in TOPICS], version=12).responses
    parts = [(topic.topic, part) for topic in by_name for part in topic.partitions]
    for topic in fetch(client, [Wanted(topic=topic) for topic in by_id], version=13).responses:
        parts += [(by_id[topic.topic_id], part) for part in topic.partitions]
    return [(name, part.error_code, bool(part.records)) for name, part in parts]


@pytest.mark.parametrize(
    ("api", "ask"), [(ApiKey.PRODUCE, produced), (ApiKey.FETCH, fetched)], ids=["produce", "fetch"]
)
def test_the_same_records_are_refused(
    theirs: Peer, ours: Peer, api: ApiKey, ask: Callable[[RawClient, Ids], Any]
) -> None:
    different = [
        f"{name}\n  Kafka {expected}\n  ours  {found}"
        for name, rules in scenarios(api)
        if (expected := theirs.under(rules, ask, api)) != (found := ours.under(rules, ask, api))
    ]

    assert not different, "\n".join(different)


def test_a_super_user_is_refused_nothing_that_kafkas_is_not(theirs: Peer) -> None:
    deny = frozenset(
        rule._replace(permission=AclPermission.DENY, principal="User:*") for rule in EVERYTHING
    )
    with our_peer("User:ANONYMOUS") as ours:
        for case in CASES:
            expected = theirs.under(
                deny,
                lambda client, ids, case=case: theirs.admin.call(  # type: ignore[misc]
                    case.api, case.version, case.request(ids)
                ),
                case.api,
            )
            assert ours.told(deny, case) == expected, case.name


def test_every_api_that_needs_a_right_is_compared() -> None:
    compared = {API_CATALOG[case.api].name for case in CASES} | {"Produce", "Fetch"}

    needing = {api.name for api in API_CATALOG.values()} - OPEN_APIS
    assert needing <= compared
