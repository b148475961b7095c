"""Requests of tests straight to the active controller, over the relay of our control channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cordwood.broker.cluster.control.control_requests import ControlRequest
from cordwood.cluster.image.metadata_image import TopicImage
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.messages import encode_request
from interop.control_member import ControlMember


def ask(member: ControlMember, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
    """The answer of the active controller."""

    def begin(done: Callable[[Any], None]) -> None:
        member.control.relay.send(
            ControlRequest(
                api=api,
                version_min=version,
                version_max=version,
                encode=lambda sent: encode_request(api, sent, request),
                when_done=lambda answer, _: done(answer),
                timeout_s=25,
                attempt_s=5,
            )
        )

    answer: Any = member.in_loop(begin)
    assert isinstance(answer, Fields), answer
    return answer


def create_topic(member: ControlMember, name: str, *replicas: list[int]) -> TopicImage:
    """Create a topic with these replicas, one list for each partition."""
    assignments = [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(replicas)]
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1}
    request = {"topics": [{**topic, "assignments": assignments}], "timeout": 20_000}
    answer = ask(member, ApiKey.CREATE_TOPICS, 7, request)
    assert [(each.error_code, each.error_message) for each in answer.topics] == [(0, None)]
    image = member.wait_for_image(lambda image: image.topic(name))
    created = image.topic(name)
    assert created is not None
    return created
