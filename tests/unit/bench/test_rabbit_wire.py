"""RabbitMQ's stream protocol: what is sent, and how answers are counted in any portions."""

from __future__ import annotations

import struct

import pytest

from bench.rabbit_wire import (
    ConfirmCounter,
    Frames,
    RabbitError,
    check_response,
    credit,
    declare_publisher,
    delivered_records,
    is_tune,
    publish,
    subscribe,
    tune,
)


def framed(command: int, content: bytes) -> bytes:
    return struct.pack(">IHH", 4 + len(content), command, 1) + content


def confirm(*ids: int) -> bytes:
    return framed(0x0003, b"\0" + struct.pack(f">I{len(ids)}Q", len(ids), *ids))


def response(command: int, code: int) -> bytes:
    return framed(0x8000 | command, struct.pack(">IH", 9, code))


def delivery(records: int) -> bytes:
    chunk = struct.pack(">BBHIqQQIII4x", 0x50, 0, records, records, 0, 1, 0, 0, 3, 0) + b"abc"
    return framed(0x0008, b"\0" + chunk)


def test_a_publish_carries_each_value_with_its_id() -> None:
    data = publish(7, [b"one", b"three"])

    size, command, version = struct.unpack_from(">IHH", data)
    assert (size, command, version) == (len(data) - 4, 2, 1)
    assert data[8:] == (
        b"\0"
        + struct.pack(">I", 2)
        + struct.pack(">QI", 7, 3)
        + b"one"
        + struct.pack(">QI", 8, 5)
        + b"three"
    )


def test_requests_have_the_bytes_of_the_protocol() -> None:
    assert declare_publisher()[4:] == b"\0\1\0\1\0\0\0\7\0\0\0\0\5bench"
    assert subscribe(10)[4:] == b"\0\7\0\1\0\0\0\x08\0\0\5bench\0\1\0\x0a"
    assert credit(1) == b"\0\0\0\7\0\x09\0\1\0\0\1"


@pytest.mark.parametrize("portion", [1, 5, 7, 1000])
def test_confirms_are_counted_in_any_portions(portion: int) -> None:
    data = confirm(1, 2, 3) + framed(0x0017, b"") + response(1, 1) + confirm(4)
    counter = ConfirmCounter()

    counts = [counter.feed(data[at : at + portion]) for at in range(0, len(data), portion)]

    assert sum(counts) == 4


def test_a_message_that_was_not_stored_is_an_error() -> None:
    with pytest.raises(RabbitError):
        ConfirmCounter().feed(framed(0x0004, b"\0" + struct.pack(">IQH", 1, 5, 2)))


def test_a_refusal_is_an_error_and_names_its_code() -> None:
    (refused,) = Frames().feed(response(0x0D, 5))

    with pytest.raises(RabbitError, match="code 5"):
        check_response(refused)


def test_the_records_of_a_delivery_are_those_of_its_chunk() -> None:
    frames = list(Frames().feed(delivery(640) + response(7, 1) + tune()))

    assert [delivered_records(frame) for frame in frames] == [640, 0, 0]
    assert [check_response(frame) for frame in frames] == [False, True, False]
    assert [is_tune(frame) for frame in frames] == [False, False, True]
