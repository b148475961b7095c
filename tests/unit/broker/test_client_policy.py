"""What clients may not configure."""

from __future__ import annotations

import pytest

from cordwood.broker.client_policy import check_client_config, is_below
from cordwood.broker.error_codes import ErrorCode, RefusedError

PREFIX = "s3://bucket/archives?region=eu"


def check(topic: str, key: str, value: str | None, now: str = "") -> None:
    check_client_config(topic, {key: value}, now={key: now}, archive_prefixes=[PREFIX])


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/archives?region=eu",
        "s3://bucket/archives/?region=eu",
        "s3://bucket/archives/team/a?region=eu",
        "s3://bucket/archives/..a?region=eu",
    ],
)
def test_a_client_may_archive_below_a_prefix(url: str) -> None:
    check("orders", "archive.url", url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc",
        "s3://bucket/archives",
        "s3://bucket/archives?region=eu&endpoint_override=evil.example",
        "s3://bucket/archives?endpoint_override=evil.example",
        "s3://bucket/archives-of-others?region=eu",
        "s3://bucket/?region=eu",
        "s3://bucket/archives/../others?region=eu",
        "s3://bucket/archives/%2e%2e/others?region=eu",
        "s3://bucket/archives/%2E%2E%2Fothers?region=eu",
        "s3://user:secret@bucket/archives?region=eu",
        "s3://other/archives?region=eu",
        "gs://bucket/archives?region=eu",
        "s3://bucket/archives?region=eu#part",
        "s3://[bucket/archives?region=eu",
        "archives",
    ],
)
def test_a_client_may_not_archive_anywhere_else(url: str) -> None:
    with pytest.raises(RefusedError, match=r"archive\.url\.prefixes") as refused:
        check("orders", "archive.url", url)

    assert refused.value.code is ErrorCode.policy_violation
    assert url not in str(refused.value)


def test_a_directory_is_a_whole_name() -> None:
    assert is_below("file:///srv/archive/a", "file:///srv/archive")
    assert not is_below("file:///srv/archive2", "file:///srv/archive")
    assert not is_below("file:///srv/archive/../../etc", "file:///srv/archive")


def test_a_client_may_set_what_is_set_already_and_stop_archiving() -> None:
    check("orders", "archive.url", "file:///operator", now="file:///operator")
    check("orders", "archive.url", "")
    check("orders", "archive.url", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "0"),
        ("retention.bytes", "1"),
        ("cleanup.policy", "delete"),
        ("delete.retention.ms", "0"),
        ("max.message.bytes", "1"),
        ("durability", "os"),
        ("message.timestamp.type", "LogAppendTime"),
    ],
)
def test_a_client_may_not_take_away_the_groups(key: str, value: str) -> None:
    with pytest.raises(RefusedError, match="internal") as refused:
        check("__consumer_offsets", key, value)

    assert refused.value.code is ErrorCode.policy_violation
    check("orders", key, value)


@pytest.mark.parametrize(
    ("key", "value"), [("segment.bytes", "1048576"), ("min.cleanable.dirty.ratio", "0.1")]
)
def test_a_client_may_tune_internal_topics(key: str, value: str) -> None:
    check("__consumer_offsets", key, value)


@pytest.mark.parametrize("key", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_a_client_may_not_take_the_groups_back_to_a_default_that_deletes_them(key: str) -> None:
    with pytest.raises(RefusedError, match="internal") as refused:
        check_client_config(
            "__consumer_offsets", {key: None}, now={key: "compact"}, archive_prefixes=()
        )

    assert refused.value.code == ErrorCode.policy_violation


def test_a_client_may_not_change_how_long_a_closed_topic_is_kept() -> None:
    with pytest.raises(RefusedError, match="internal"):
        check_client_config(
            "audit",
            {"retention.ms": "1"},
            now={},
            archive_prefixes=(),
            closed_topics=frozenset({"audit"}),
        )
    check_client_config("audit", {"retention.ms": "1"}, now={}, archive_prefixes=())
