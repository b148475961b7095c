"""Clients that mean harm: each attack as the bytes it sends, and a crowd of clients that send them.

An attacker sends its request again as soon as it is answered, or connects anew if it was thrown
out. A slow attacker sends the beginning of a request, then a byte now and then.
"""

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.kafka_wire import produce_frame
from bench.wire_load import connect, receive_frame
from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.format.compression import Codec
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from cordwood.quantities import GIB, MIB, TimestampMs

_SLOW_BYTE_S: Final = 0.2
_ANSWER_TIMEOUT_S: Final = 10.0
_NOW_MS: Final = TimestampMs(1_700_000_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What the attackers send to a topic, and how many of them there are."""

    title: str
    clients: int
    request: Callable[[str], bytes]
    is_slow: bool = False  # the request never ends: a byte follows now and then


def framed(api_key: int, version: int, body: bytes) -> bytes:
    """A whole request without a client id; `body` begins with the tags of a flexible header."""
    header = struct.pack(">hhih", api_key, version, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def many_items(_topic: str) -> bytes:
    """Metadata of 999,000 topics, which do not exist."""
    names = [{"name": f"{number:x}"} for number in range(999_000)]
    request = {"topics": names, "allow_auto_topic_creation": False}
    return framed(ApiKey.METADATA, 4, encode_request(ApiKey.METADATA, 4, request))


def many_tags(_topic: str) -> bytes:
    """A header with a million tagged fields, without content."""
    count = b"\xc0\x84\x3d"  # 1,000,000
    return framed(ApiKey.METADATA, 9, count + b"\x01\x00" * 1_000_000)


def bomb(codec: Codec, size: int, topic: str) -> bytes:
    """A batch of one record, which inflates to `size` zeros."""
    style = BatchStyle(bytes_max=GIB, codec=codec)
    (batch,) = build_batches([(None, bytes(size))], _NOW_MS, style, target_bytes=GIB)
    return produce_frame(topic, bytes(batch.data))


def tiny_records(codec: Codec, count: int, topic: str) -> bytes:
    """A batch of `count` records without key and value."""
    style = BatchStyle(bytes_max=GIB, codec=codec)
    (batch,) = build_batches([(None, None)] * count, _NOW_MS, style, target_bytes=GIB)
    return produce_frame(topic, bytes(batch.data))


def giant_frame(_topic: str) -> bytes:
    """The beginning of a request of 100 MiB."""
    return struct.pack(">i", 100 * MIB) + bytes(8)


ATTACKS: Final = (
    Attack(title="nobody", clients=0, request=giant_frame),
    Attack(title="Metadata with 999,000 items", clients=2, request=many_items),
    Attack(title="headers with a million tags", clients=4, request=many_tags),
    Attack(title="zstd bombs of 200 MiB", clients=4, request=partial(bomb, Codec.ZSTD, 200 * MIB)),
    Attack(title="zstd bombs of 1 MiB", clients=4, request=partial(bomb, Codec.ZSTD, MIB)),
    Attack(title="lz4 bombs of 200 MiB", clients=4, request=partial(bomb, Codec.LZ4, 200 * MIB)),
    Attack(title="gzip bombs of 64 MiB", clients=4, request=partial(bomb, Codec.GZIP, 64 * MIB)),
    Attack(
        title="a million empty records in a batch",
        clients=4,
        request=partial(tiny_records, Codec.ZSTD, 1_000_000),
    ),
    Attack(
        title="100,000 empty records in a batch",
        clients=4,
        request=partial(tiny_records, Codec.NONE, 100_000),
    ),
    Attack(title="slow senders of 100 MiB", clients=40, request=giant_frame, is_slow=True),
)


@contextmanager
def attacked(port: int, topic: str, attack: Attack) -> Iterator[None]:
    """The attack goes on inside the `with`."""
    request = attack.request(topic)
    is_over = threading.Event()
    behave = _send_slowly if attack.is_slow else _send_repeatedly
    threads = [
        threading.Thread(target=behave, args=(port, request, is_over), daemon=True)
        for _ in range(attack.clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def _send_repeatedly(port: int, request: bytes, is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            with connect(port) as connection:
                connection.settimeout(_ANSWER_TIMEOUT_S)
                while not is_over.is_set():
                    connection.sendall(request)
                    receive_frame(connection)
        except OSError:
            is_over.wait(0.01)  # thrown out, or the broker takes its time: connect again


def _send_slowly(port: int, request: bytes, is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            with connect(port) as connection:
                connection.sendall(request)
                while not is_over.wait(_SLOW_BYTE_S):
                    connection.sendall(b"\0")
        except OSError:
            is_over.wait(0.01)
