"""Requests of clients that this broker relays to Kafka's own controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from cordwood.broker.cluster.control.control_relay import ControllerRelay
from cordwood.broker.net.requests.request import Deferred, RequestContext
from cordwood.broker.security.access_table import Need
from cordwood.cluster.control.broker_lifecycle import Phase
from cordwood.protocol.acl_codes import CLUSTER_NAME
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from cordwood.protocol.request_header import RequestHeader
from fakes.sessions import LOCAL_SESSION
from interop.control_member import ControlMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers


class SomeMay(RequestContext):
    """A client that may everything, except with what is called ``no-...``, or ``the cluster``."""

    __slots__ = ()

    def may(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        if self.client_id == "nobody":
            return False
        return not name.startswith("no-") and not (
            need.api in {"CreateTopics", "DeleteTopics"} and name == CLUSTER_NAME
        )


class Client:
    """Calls the handlers of a relay as the router does, through the bytes of a version."""

    def __init__(self, member: ControlMember) -> None:
        self.member = member
        relay = ControllerRelay(member.loop, member.control)
        self._routes = {route.api: route for route in relay.routes()}
        self.apis = set(self._routes)

    def __call__(
        self,
        api: ApiKey,
        request: Mapping[str, Any],
        *,
        version: int | None = None,
        client: str = "somebody",
    ) -> Any:
        version = KNOWN_APIS[api].max_version if version is None else version
        fields = decode_request(api, version, encode_request(api, version, request))
        header = RequestHeader(api, version, 5, client)
        context = SomeMay(header=header, session=LOCAL_SESSION)

        def begin(done: Callable[[Any], None]) -> None:
            answer = self._routes[api].handler(context, fields)
            if isinstance(answer, Deferred):
                answer.when_done(lambda response, error: done(response or error))
            else:
                done(answer)

        response = self.member.in_loop(begin)
        frame = encode_response(api, version, 5, response)
        return decode_response(
            api, version, frame[9 if KNOWN_APIS[api].is_flexible(version) else 8 :]
        )


@pytest.fixture(scope="module")
def client(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with (
        KraftControllers(kafka, tmp_path_factory.mktemp("relay"), properties=authorizer) as running,
        ControlMember(running.bootstrap, running.cluster_id, node_id=1) as member,
    ):
        member.wait_until(Phase.RUNNING)
        yield Client(member)


def new_topic(name: str, partitions: int = 2) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def created(client: Client, name: str) -> UUID:
    answer = client(ApiKey.CREATE_TOPICS, {"topics": [new_topic(name)], "timeout": 9000})
    assert [topic.error_code for topic in answer.topics] == [0]
    client.member.wait_for_image(lambda image: image.topic(name))
    found: UUID = answer.topics[0].topic_id
    return found


def test_topics_that_the_client_may_create_are_created_and_the_others_refused(
    client: Client,
) -> None:
    topics = [new_topic("yes-1"), new_topic("no-1"), new_topic("yes-1a")]

    answer = client(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 9000})

    codes = {topic.name: topic.error_code for topic in answer.topics}
    refused = ErrorCode.topic_authorization_failed
    assert codes == {"yes-1": 0, "yes-1a": 0, "no-1": refused}
    client.member.wait_for_image(lambda image: image.topic("yes-1a"))
    assert client.member.control.image.topic("no-1") is None


@pytest.mark.parametrize("version", [1, 4, 5])
def test_old_versions_delete_topics_by_name(client: Client, version: int) -> None:
    name = f"old-{version}"
    created(client, name)

    answer = client(
        ApiKey.DELETE_TOPICS, {"topic_names": [name, "no-such"], "timeout": 9000}, version=version
    )

    codes = {topic.name: topic.error_code for topic in answer.responses}
    assert codes == {name: 0, "no-such": ErrorCode.topic_authorization_failed}
    client.member.wait_for_image(lambda image: image.topic(name) is None)


def test_a_topic_is_deleted_by_its_id(client: Client) -> None:
    topic_id = created(client, "by-id")

    topics = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": UUID(int=12345)}]
    answer = client(ApiKey.DELETE_TOPICS, {"topics": topics, "timeout": 9000})

    codes = {topic.topic_id: topic.error_code for topic in answer.responses}
    assert codes == {topic_id: 0, UUID(int=12345): ErrorCode.unknown_topic_id}


def test_partitions_and_configs_are_changed(client: Client) -> None:
    created(client, "grown")
    growth = {"topics": [{"name": "grown", "count": 4, "assignments": None}], "timeout": 9000}
    ops = [{"name": "retention.ms", "config_operation": 0, "value": "5000"}]
    resources = [
        {"resource_type": 2, "resource_name": name, "configs": ops} for name in ("grown", "no-x")
    ]

    grown = client(ApiKey.CREATE_PARTITIONS, growth)
    altered = client(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": resources})

    assert [result.error_code for result in grown.results] == [0]
    codes = {each.resource_name: each.error_code for each in altered.responses}
    assert codes == {"grown": 0, "no-x": ErrorCode.topic_authorization_failed}
    image = client.member.wait_for_image(lambda image: image.config_of(2, "grown"))
    topic = image.topic("grown")
    assert topic is not None
    assert len(topic.partitions) == 4
    assert image.config_of(2, "grown") == {"retention.ms": "5000"}


def test_what_concerns_the_cluster_is_passed_on_whole(client: Client) -> None:
    created(client, "moved")
    quorum = {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    }
    elections = {"election_type": 0, "topic_partitions": None, "timeout": 9000}
    move = [{"partition_index": 0, "replicas": [1]}]

    described = client(ApiKey.DESCRIBE_QUORUM, quorum)
    elected = client(ApiKey.ELECT_LEADERS, elections)
    moved = client(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": [{"name": "moved", "partitions": move}]}
    )
    listed = client(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None})
    unregistered = client(ApiKey.UNREGISTER_BROKER, {"broker_id": 777})
    updates = [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}]
    updated = client(ApiKey.UPDATE_FEATURES, {"feature_updates": updates, "validate_only": True})

    part = described.topics[0].partitions[0]
    assert part.leader_id == 3000
    assert 1 in [observer.replica_id for observer in part.observers]
    assert elected.error_code == moved.error_code == listed.error_code == 0
    assert unregistered.error_code == ErrorCode.broker_id_not_registered
    assert updated.error_code == ErrorCode.none


def test_rules_quotas_and_users_are_passed_on(client: Client) -> None:
    rule = {
        "resource_type": 2,
        "resource_name": "a",
        "resource_pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    entity = [{"entity_type": "user", "entity_name": "x"}]
    ops = [{"key": "consumer_byte_rate", "value": 100.0, "remove": False}]
    user = {"name": "x", "mechanism": 1, "iterations": 4096}
    secret = {"salt": b"s" * 16, "salted_password": b"p" * 32}

    rules = client(ApiKey.CREATE_ACLS, {"creations": [rule]})
    quotas = client(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": entity, "ops": ops}]})
    users = client(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"upsertions": [{**user, **secret}]})

    assert [each.error_code for each in rules.results] == [0]
    assert [each.error_code for each in quotas.entries] == [0]
    assert [each.error_code for each in users.results] == [0]
    image = client.member.wait_for_image(lambda image: image.scram_users)
    assert [each.principal for each in image.access_rules.values()] == ["User:x"]


REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CREATE_TOPICS: {"topics": [new_topic("x")]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "x", "topic_id": UUID(int=0)}]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "x", "count": 4, "assignments": None}]},
    ApiKey.ALTER_CONFIGS: {"resources": [{"resource_type": 4, "resource_name": ""}]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [{"resource_type": 4, "resource_name": ""}]},
    ApiKey.CREATE_ACLS: {"creations": [{"resource_type": 2}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_type_filter": 2}]},
    ApiKey.ALTER_CLIENT_QUOTAS: {"entries": [{"entity": [], "ops": []}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "x", "mechanism": 1}]},
}


def test_a_client_without_rights_is_refused_here_by_every_api(client: Client) -> None:
    for api in sorted(client.apis):
        answer = client(api, REQUESTS.get(api, {}), client="nobody")

        assert _codes(answer) & {
            ErrorCode.cluster_authorization_failed,
            ErrorCode.topic_authorization_failed,
        }, api


def _codes(answer: Any) -> set[int]:
    found: set[int] = set()
    for name, value in zip(answer.names, answer, strict=True):
        if name == "error_code":
            found.add(value)
        elif isinstance(value, tuple):
            for each in value:
                found |= _codes(each) if hasattr(each, "names") else set()
    return found
