"""Requests are passed on without the items that their sender may not have."""

from __future__ import annotations

from typing import Any

from cordwood.cluster.control.relayed_items import ITEM_RULES, as_mapping, merged, split_items
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import decode_request, encode_request

RULE = ITEM_RULES[ApiKey.CREATE_TOPICS]


def request(*names: str) -> Any:
    topics = [{"name": name, "num_partitions": 3, "replication_factor": 1} for name in names]
    body = encode_request(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 5})
    return decode_request(ApiKey.CREATE_TOPICS, 7, body)


def test_what_was_read_can_be_written_again() -> None:
    asked = request("a", "b")

    body = encode_request(ApiKey.CREATE_TOPICS, 7, as_mapping(asked))

    assert decode_request(ApiKey.CREATE_TOPICS, 7, body) == asked


def test_refused_items_are_answered_here_and_the_others_there() -> None:
    split = split_items(RULE, request("a", "b"), lambda item: 29 if item["name"] == "b" else 0)

    assert split.request is not None
    assert [topic["name"] for topic in split.request["topics"]] == ["a"]
    assert split.request["timeout"] == 5
    answer = merged(RULE, {"topics": [{"name": "a", "error_code": 0}]}, split.refused)
    assert [(topic["name"], topic["error_code"]) for topic in answer["topics"]] == [
        ("a", 0),
        ("b", 29),
    ]


def test_nothing_is_passed_on_if_everything_is_refused() -> None:
    assert split_items(RULE, request("a"), lambda _: 29).request is None


def test_an_empty_request_is_passed_on() -> None:
    assert split_items(RULE, request(), lambda _: 29).request is not None
