"""Requests larger than one receive, behind one that is not answered yet."""

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from fakes.client_batches import client_batch
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch_body, produce_body, receive_produced

_LARGE = bytes(client_batch(b"x" * 300_000))


@pytest.mark.parametrize("count", [1, 3])
def test_large_produces_behind_a_waiting_fetch_are_taken_once_it_is_answered(
    broker: cordwood.Broker, topic: str, count: int
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.socket.settimeout(20.0)
        client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=300))
        for _ in range(count):
            client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, _LARGE)]))

        client.receive(ApiKey.FETCH, 12)
        produced = [receive_produced(client, 9) for _ in range(count)]

    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in produced]
    assert offsets == list(range(count))
