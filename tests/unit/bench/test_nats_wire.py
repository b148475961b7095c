from __future__ import annotations

import json

import pytest

from bench.nats_wire import (
    SUBJECT,
    MessageCounter,
    NatsError,
    create_consumer,
    create_stream,
    is_acknowledged,
    next_messages,
    publish,
    subscribe,
)

_ACK = b'MSG _INBOX.1 1 27\r\n{"stream":"bench","seq":17}\r\n'
_REFUSAL = b'MSG _INBOX.1 1 38\r\n{"error":{"code":503,"description":""}}\r\n'


def _payload(request: bytes) -> dict[str, object]:
    line, payload, rest = request.split(b"\r\n")
    assert int(line.split()[-1]) == len(payload)
    assert rest == b""
    found: dict[str, object] = json.loads(payload)
    return found


def test_a_message_names_its_subject_its_inbox_and_its_size() -> None:
    assert publish("a.b", b"\x00\r!", inbox="_INBOX.3") == b"PUB a.b _INBOX.3 3\r\n\x00\r!\r\n"
    assert subscribe("_INBOX.3") == b"SUB _INBOX.3 1\r\n"


def test_a_stream_is_kept_in_files_by_one_server() -> None:
    config = _payload(create_stream("_INBOX.1"))

    assert config["storage"] == "file"
    assert config["num_replicas"] == 1
    assert config["subjects"] == [SUBJECT]


def test_a_reader_asks_for_messages_and_acknowledges_none() -> None:
    consumer = _payload(create_consumer("reader", "_INBOX.1"))
    request = _payload(next_messages("reader", 500, "_INBOX.1"))

    assert isinstance(consumer["config"], dict)
    assert consumer["config"]["ack_policy"] == "none"
    assert request["batch"] == 500


@pytest.mark.parametrize("size", range(len(_ACK)))
def test_an_acknowledgement_counts_once_it_is_whole(size: int) -> None:
    counter = MessageCounter()

    assert counter.feed(_ACK[:size]) + counter.feed(_ACK[size:]) == 1
    assert is_acknowledged(_ACK)
    assert not is_acknowledged(_ACK[:size])


@pytest.mark.parametrize("size", range(1, 40))
def test_a_ping_between_messages_is_noticed_and_counts_for_none(size: int) -> None:
    counter = MessageCounter()
    said = _ACK + b"PING\r\n" + _ACK * 2
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    found = sum(counter.feed(piece) for piece in pieces)

    assert (found, counter.pings) == (3, 1)


def test_a_refusal_is_an_error_with_the_words_of_the_server() -> None:
    with pytest.raises(NatsError, match="503"):
        MessageCounter().feed(_REFUSAL)
    with pytest.raises(NatsError, match="503"):
        is_acknowledged(_REFUSAL)


def test_values_that_are_read_back_may_look_like_a_refusal() -> None:
    counter = MessageCounter(is_checked=False)

    assert counter.feed(b'MSG bench.records 1 $JS.ACK.1 7\r\n"error"\r\n') == 1
