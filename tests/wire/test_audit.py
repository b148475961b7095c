"""The audit log of a running broker: refusals, sign-ins and changes, and who cannot touch it."""

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

import cordwood
from cordwood.broker.security.authentication_events import AttemptResult
from cordwood.broker.security.security_events import Authentication, Origin
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch
from fakes.command_line import CommandLine
from fakes.tls_files import TlsFiles
from wire.quota_requests import set_quota
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch, produce
from wire.tls_client import TlsClient
from wire.waiting import await_true

PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
BATCH = bytes(client_batch(b"forged"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def changes(path: Path) -> list[tuple[str, str, str]]:
    return [
        (line["operation"], line["resource"], line["name"])
        for line in lines(path)
        if line["event"] == "change"
    ]


def test_a_topic_that_metadata_created_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with (
        cordwood.Broker(config={"audit.file": str(path), "num.partitions": 3}) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        wanted = {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True}
        assert client.call(ApiKey.METADATA, 12, wanted).topics[0].error_code == 0
        await_true(lambda: changes(path) == [("CREATE", "TOPIC", "auto")])

    (created,) = lines(path)
    assert (created["api"], created["new"]) == ("Metadata", {"partitions": 3})


def test_changes_are_in_the_file_with_their_values(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with cordwood.Broker(config={"audit.file": str(path)}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "client.id": "tool"})
        admin.create_topics([NewTopic("t", 2, config={"retention.ms": "1000"})])["t"].result(30)
        admin.create_partitions([NewPartitions("t", 5)])["t"].result(30)
        longer = ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[longer])
        admin.incremental_alter_configs([resource])[resource].result(30)
        set_quota(broker.bootstrap_servers, {"user": "alice"}, producer_byte_rate=100)
        admin.delete_topics(["t"])["t"].result(30)
        await_true(lambda: len(changes(path)) == 5)

    created, grown, altered, limited, deleted = lines(path)
    assert created["new"] == {"partitions": 2, "configs": {"retention.ms": "1000"}}
    assert (created["principal"], created["client_id"]) == ("User:ANONYMOUS", "tool")
    assert (grown["old"], grown["new"]) == ({"partitions": 2}, {"partitions": 5})
    assert altered["old"]["retention.ms"] == "1000"
    assert altered["new"]["retention.ms"] == "2000"
    assert limited["old"] == {"producer_byte_rate": None}
    assert limited["new"] == {"producer_byte_rate": 100.0}
    assert limited["name"] == "user alice"
    assert deleted["old"]["partitions"] == 5
    assert path.stat().st_mode & 0o777 == 0o600


def test_refusals_are_in_the_log_with_their_rule(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    config = {
        "audit.file": str(path),
        "audit.events.per.second": 3,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with (
        cordwood.Broker(topics=["t"], config=config) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        for _ in range(20):
            assert produce(client, "t", BATCH).error_code == ErrorCode.topic_authorization_failed
        await_true(lambda: len(lines(path)) >= 3)

    refused = lines(path)
    assert {line["decision"] for line in refused} == {"denied"}
    assert refused[0]["name"] == "t"
    assert refused[0]["operation"] == "WRITE"
    assert refused[0]["rule"]
    assert len(refused) < 20


def test_a_refusal_says_by_which_listener_and_client_it_was_caused(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    config = {
        "audit.file": str(path),
        "authorizer.class.name": "standard",
        "listeners": "INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT",
    }
    with (
        cordwood.Broker(topics=["t"], config=config) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        produce(client, "t", BATCH)
        fetch(client, [Wanted(topic="t")])
        client.call(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 10_000})
        client.call(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        await_true(lambda: len({line["api"] for line in lines(path)}) == 4)

    found = lines(path)
    assert {line["api"] for line in found} == {
        "Produce", "Fetch", "DeleteTopics", "InitProducerId"
    }  # fmt: skip
    assert {(line["listener"], line["client_id"]) for line in found} == {("INTERNAL", "raw")}


def test_who_signs_in_by_a_certificate_is_in_the_log_and_who_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    files = TlsFiles(tmp_path)
    config = files.listener_config(
        ssl_client_auth="required",
        ssl_principal_mapping_rules=r"RULE:^CN=([a-z]+),.*$/$1/",
        audit_file=str(path),
    )
    refused = {
        "no certificate": None,
        "unable to get local issuer": files.client("mallory", authority=files.other),
        "expired": files.client("old", not_before=LONG_AGO, not_after=PAST),
        "no rule": files.client("X"),
    }
    with cordwood.Broker(config=config) as broker:
        alice = files.client_context(files.client("alice"))
        with TlsClient(broker.bootstrap_servers, alice) as client:
            assert client.is_answered()
        for certificate in refused.values():
            with (
                contextlib.suppress(OSError),
                TlsClient(broker.bootstrap_servers, files.client_context(certificate)) as client,
            ):
                assert not client.is_answered()
        with RawClient(broker.bootstrap_servers) as client:  # no sign-in, only noise
            client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            assert client.is_closed_by_broker()
        await_true(lambda: len(lines(path)) == 5)
        counts = broker._running().authentications.counts.view()

    accepted, *others = lines(path)
    assert {line["event"] for line in lines(path)} == {"authentication"}
    assert (accepted["decision"], accepted["principal"]) == ("accepted", "User:alice")
    assert {(line["mechanism"], line["listener"]) for line in lines(path)} == {("SSL", "SSL")}
    assert [(line["decision"], line["principal"]) for line in others] == [("refused", "")] * 4
    for reason, line in zip(refused, others, strict=True):
        assert reason in line["reason"], (reason, line)
    assert sorted(counts.items()) == [
        (("SSL", "SSL", AttemptResult.FAILED), 4),
        (("SSL", "SSL", AttemptResult.SUCCEEDED), 1),
    ]


def test_a_command_in_the_directory_of_a_broker_is_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "audit.log", tmp_path / "data"
    run = CommandLine(capsys, monkeypatch, at=str(data))
    with cordwood.Broker(data_dir=data, config={"audit.file": str(path)}):
        run.ok("topics", "create", "t")
        refused = run("users", "add", "alice", "--password-stdin", stdin=b"a-good-password")
        await_true(lambda: changes(path) == [("CREATE", "TOPIC", "t")])

    (created,) = lines(path)
    assert (created["principal"], created["listener"]) == ("data directory", "inbox")
    assert refused.code != 0
    assert "through the broker" in refused.err


def test_the_topic_has_the_events_and_no_client_can_write_or_delete_it() -> None:
    with (
        cordwood.Broker(topics=["t"], config={"audit.topic": "audit"}) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        set_quota(broker.bootstrap_servers, {"user": "alice"}, producer_byte_rate=100)

        def values() -> list[dict[str, Any]]:
            if "audit" not in broker.store.topics():
                return []
            partition = broker.store.topic("audit").partition(0)
            return [json.loads(record.value or b"") for record in partition.read()]

        await_true(lambda: len(values()) == 1)
        forged = produce(client, "audit", BATCH)
        deleted = client.call(
            ApiKey.DELETE_TOPICS, 5, {"topic_names": ["audit"], "timeout": 10_000}
        )
        cut = client.call(
            ApiKey.DELETE_RECORDS,
            2,
            {
                "topics": [{"name": "audit", "partitions": [{"partition_index": 0, "offset": -1}]}],
                "timeout": 10_000,
            },
        )

        assert forged.error_code == ErrorCode.invalid_topic_exception
        assert deleted.responses[0].error_code == ErrorCode.policy_violation
        assert cut.topics[0].partitions[0].error_code == ErrorCode.invalid_topic_exception
        assert [value["resource"] for value in values()] == ["QUOTA"]


def test_a_name_that_utf8_cannot_write_loses_no_event() -> None:
    with cordwood.Broker(config={"audit.topic": "audit"}) as broker:
        for principal in ("User:alice", "User:\ud800"):  # as a token may write it
            origin = Origin(principal=principal, address="10.0.0.1")
            broker._running().audit.report(
                Authentication(origin=origin, mechanism="OAUTHBEARER", is_accepted=False)
            )
        await_true(lambda: broker._running().audit.counts().written == 2)
        records = list(broker.store.topic("audit").partition(0).read())

    assert {record.key for record in records} == {b"User:alice", b"User:\\ud800"}


def test_no_client_can_shorten_the_retention_of_the_topic() -> None:
    shorter = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": "audit", "configs": [shorter]}
    new = {
        "name": "audit",
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "1"}],
    }
    with (
        cordwood.Broker(config={"audit.topic": "audit"}) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        created = client.call(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout": 10_000})
        broker.create_topic("audit")
        altered = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})

    assert created.topics[0].error_code == ErrorCode.policy_violation
    assert altered.responses[0].error_code == ErrorCode.policy_violation


def test_a_file_that_cannot_be_written_delays_no_client(tmp_path: Path) -> None:
    path = tmp_path / "full"
    path.symlink_to("/dev/full")
    with cordwood.Broker(config={"audit.file": str(path)}) as broker:
        for number in range(5):
            set_quota(broker.bootstrap_servers, {"user": f"u{number}"}, producer_byte_rate=100)
        audit = broker._running().audit
        await_true(lambda: audit.counts().dropped == 5)
