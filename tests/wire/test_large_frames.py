"""Requests larger than one receive: in a row, and behind one that is not answered yet."""

import socket
from threading import Thread

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from fakes.client_batches import client_batch
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch_body, produce_body, receive_produced

_LARGE = bytes(client_batch(b"x" * 300_000))
_SMALL = bytes(client_batch(b"x"))


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


@pytest.mark.parametrize("first", [_LARGE, _SMALL])
def test_large_and_small_produces_in_a_row_are_appended_in_their_order(
    broker: cordwood.Broker, topic: str, first: bytes
) -> None:
    """More than a turn of the loop receives, and small ones between and behind large ones."""
    row = [first, *[_LARGE] * 6, _SMALL, _LARGE, _SMALL, _SMALL, *[_LARGE] * 5]
    with RawClient(broker.bootstrap_servers) as client:
        client.socket.settimeout(20.0)
        sender = Thread(target=_send_all, args=(client, topic, row))
        sender.start()
        produced = [receive_produced(client, 9) for _ in row]
        sender.join()

    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in produced]
    assert offsets == list(range(len(row)))


def test_a_client_that_leaves_behind_a_row_of_large_produces_gets_all_answers(
    broker: cordwood.Broker, topic: str
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.socket.settimeout(20.0)
        _send_all(client, topic, [_LARGE] * 9)
        socket.socket.shutdown(client.socket, socket.SHUT_WR)  # that of TLS would end TLS itself

        produced = [receive_produced(client, 9) for _ in range(9)]
        assert client.socket.recv(1) == b""

    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in produced]
    assert offsets == list(range(9))


def _send_all(client: RawClient, topic: str, row: list[bytes]) -> None:
    for batch in row:
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, batch)]))
