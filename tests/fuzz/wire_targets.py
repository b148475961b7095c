"""Everything that parses bytes from clients, as functions of bytes. See `targets`.

A byte or two at the front of the input choose the API and the version, so that a change of them
finds another parser and not an unknown one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.fetch_request import decode_fetch_request
from cordwood.protocol.messages import Fields, decode_request, encode_request
from cordwood.protocol.produce_request import decode_produce_request
from cordwood.protocol.request_header import decode_request_header, skip_header_tags
from cordwood.protocol.schemas import MESSAGE_SCHEMAS
from cordwood.protocol.sole_fetch import find_sole_fetch
from cordwood.protocol.sole_produce import find_sole_produce
from fakes.client_batches import client_batch
from fuzz.target import target

APIS: Final = [api for api in KNOWN_APIS.values() if api.key in MESSAGE_SCHEMAS]
BATCH: Final = bytes(client_batch(b"one", b"two", keys=[b"k", None]))
NAME: Final = b"orders"
_FIRST_FLEXIBLE_PRODUCE: Final = 9
_FIRST_FLEXIBLE_FETCH: Final = 12


def chosen(number: int, key: ApiKey) -> int:
    """A version of the API, from any byte."""
    api = KNOWN_APIS[key]
    return api.min_version + number % (api.max_version - api.min_version + 1)


# --- headers ------------------------------------------------------------------------------------


@target(
    bytes.fromhex("00030009000000070003726177" + "00"),
    bytes.fromhex("00120003ffffffffffff" + "00"),
    bytes.fromhex("00000009000000010000" + "0163036162" + "63"),
)
def request_header(data: bytes) -> None:
    frame = memoryview(data)
    header, end = decode_request_header(frame)
    assert 10 <= end <= len(data)
    assert end - 10 == len((header.client_id or "").encode())
    assert end <= skip_header_tags(frame, end) <= len(data)


# --- produce and fetch --------------------------------------------------------------------------


def _produce(version: int, records: bytes = BATCH) -> bytes:
    """A request for one partition, written a second time so that it does not judge itself."""
    acks_and_timeout = bytes.fromhex("ffff00007530")
    if version < _FIRST_FLEXIBLE_PRODUCE:
        size = len(records).to_bytes(4, "big")
        topic = len(NAME).to_bytes(2, "big") + NAME + bytes.fromhex("0000000100000000") + size
        return b"\xff\xff" + acks_and_timeout + bytes.fromhex("00000001") + topic + records
    name = bytes(16) if version >= 13 else bytes([len(NAME) + 1]) + NAME
    size = bytes([len(records) + 1 & 0x7F | 0x80, len(records) + 1 >> 7])
    parts = b"\x02" + bytes(4) + size + records + b"\0"
    return b"\0" + acks_and_timeout + b"\x02" + name + parts + b"\0\0"


@target(*(bytes([version - 3]) + _produce(version) for version in (3, 8, 9, 12, 13)))
def produce_request(data: bytes) -> None:
    """The first byte chooses the version."""
    version = chosen(data[0] if data else 0, ApiKey.PRODUCE)
    body = memoryview(data)[1:]
    request = decode_produce_request(version, body)
    assert sum(len(part.records) for part in request.parts) <= len(body)


def _frame(version: int) -> bytes:
    header = version.to_bytes(4, "big") + bytes.fromhex("00000007") + b"\x00\x03raw"
    return header + (b"\0" if version >= _FIRST_FLEXIBLE_PRODUCE else b"") + _produce(version)


@target(*(_frame(version) for version in (3, 7, 9, 12)))
def sole_produce(data: bytes) -> None:
    """Whatever is found in one pass is what the slow way reads."""
    found = find_sole_produce(data, 0, len(data))
    if found is None:
        return
    version, correlation_id, acks, timeout_ms, name_at, name_end, partition, at, end = found[:9]
    id_at, id_end = found[9:]
    frame = memoryview(data)
    header, position = decode_request_header(frame)
    if version >= _FIRST_FLEXIBLE_PRODUCE:
        position = skip_header_tags(frame, position)
    with contextlib.suppress(FormatError):  # a name that is not text is found later
        request = decode_produce_request(version, frame[position:])
        assert header[:3] == (0, version, correlation_id)
        id_ = None if id_at < 0 else data[id_at:id_end].decode()
        assert request[:3] == (id_, acks, timeout_ms)
        ((topic, number, records),) = request.parts
        assert topic == data[name_at:name_end].decode()
        assert (number, bytes(records)) == (partition, data[at:end])


def _fetch(version: int) -> bytes:
    """One partition of one topic, and one forgotten."""
    is_flexible = version >= _FIRST_FLEXIBLE_FETCH
    one, no_tags = (b"\x02", b"\0") if is_flexible else (bytes.fromhex("00000001"), b"")
    length = bytes([len(NAME) + 1]) if is_flexible else len(NAME).to_bytes(2, "big")
    name = bytes(16) if version >= 13 else length + NAME
    body = b"" if version >= 15 else b"\xff" * 4
    body += bytes.fromhex("000001f4000000010320000000")
    body += bytes.fromhex("0000000000000001") if version >= 7 else b""
    body += one + name + one + bytes(4)
    body += bytes(4) if version >= 9 else b""
    body += bytes(8)
    body += b"\xff" * 4 if version >= 12 else b""
    body += b"\xff" * 8 if version >= 5 else b""
    body += bytes.fromhex("00100000") + no_tags * 2
    body += one + name + one + bytes(4) + no_tags if version >= 7 else b""
    if version >= 11:
        body += b"\x01" if is_flexible else b"\0\0"
    return body + no_tags


@target(*(bytes([version - 4]) + _fetch(version) for version in (4, 7, 11, 12, 13, 17)))
def fetch_request(data: bytes) -> None:
    """The first byte chooses the version."""
    version = chosen(data[0] if data else 0, ApiKey.FETCH)
    request = decode_fetch_request(version, memoryview(data)[1:])
    assert len(request.parts) + len(request.forgotten) <= len(data)


def _sole_fetch(version: int) -> bytes:
    """One partition of one topic, without a session."""
    is_flexible = version >= _FIRST_FLEXIBLE_FETCH
    one, none = (b"\x02", b"\x01") if is_flexible else (bytes.fromhex("00000001"), bytes(4))
    no_tags = b"\0" if is_flexible else b""
    length = bytes([len(NAME) + 1]) if is_flexible else len(NAME).to_bytes(2, "big")
    name = bytes(16) if version >= 13 else length + NAME
    data = b"\0\1" + version.to_bytes(2, "big") + bytes.fromhex("00000007") + b"\x00\x03raw"
    data += no_tags + (b"" if version >= 15 else b"\xff" * 4)
    data += bytes.fromhex("000001f4000000010320000000")
    data += bytes.fromhex("00000000ffffffff") if version >= 7 else b""
    data += one + name + one + bytes(4)
    data += bytes(4) if version >= 9 else b""
    data += bytes(8)
    data += b"\xff" * 4 if version >= 12 else b""
    data += b"\xff" * 8 if version >= 5 else b""
    data += bytes.fromhex("00100000") + no_tags * 2
    data += none if version >= 7 else b""
    if version >= 11:
        data += b"\x01" if is_flexible else b"\0\0"
    return data + no_tags


@target(*(_sole_fetch(version) for version in (4, 7, 11, 12, 13, 17)))
def sole_fetch(data: bytes) -> None:
    """Whatever is found in one pass is what the slow way reads."""
    found = find_sole_fetch(data, 0, len(data))
    if found is None:
        return
    version, correlation_id, *limits = found[:6]
    _, _, partition, leader_epoch, offset, last_epoch, bytes_max = found[6:]
    frame = memoryview(data)
    header, position = decode_request_header(frame)
    if version >= _FIRST_FLEXIBLE_FETCH:
        position = skip_header_tags(frame, position)
    with contextlib.suppress(FormatError):  # a name that is not text is found later
        request = decode_fetch_request(version, frame[position:])
        assert header[:3] == (1, version, correlation_id)
        assert request[:5] == (-1, *limits)
        (part,) = request.parts
        assert (part.partition, part.offset, part.max_bytes) == (partition, offset, bytes_max)
        assert (part.leader_epoch, part.last_fetched_epoch) == (leader_epoch, last_epoch)


# --- all others ---------------------------------------------------------------------------------

_RICH: Final[Mapping[ApiKey, dict[str, Any]]] = {
    ApiKey.METADATA: {"topics": [{"name": "a"}, {"name": "b"}]},
    ApiKey.CREATE_TOPICS: {
        "topics": [
            {
                "name": "a",
                "num_partitions": 2,
                "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ]
    },
    ApiKey.JOIN_GROUP: {"group_id": "g", "protocols": [{"name": "range", "metadata": b"\0\1"}]},
    ApiKey.SYNC_GROUP: {"assignments": [{"member_id": "m", "assignment": b"bytes"}]},
    ApiKey.OFFSET_COMMIT: {
        "group_id": "g",
        "topics": [{"name": "a", "partitions": [{"committed_metadata": "note"}]}],
    },
    ApiKey.CREATE_ACLS: {
        "creations": [{"resource_type": 2, "resource_name": "a", "principal": "User:a"}]
    },
    ApiKey.DELETE_ACLS: {"filters": [{"resource_name_filter": "a", "operation": 3}]},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": [{"entity_type": "user", "match": "a"}]},
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "a"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.5}],
            }
        ]
    },
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": [{"name": "a"}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "a", "mechanism": 1}],
        "upsertions": [{"name": "b", "salt": b"salt", "salted_password": b"x"}],
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": "t",
        "topics": [{"name": "a", "partitions": [{"committed_metadata": "note"}]}],
    },
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": [{"topics": [{"name": "a", "partition_indexes": [0, 1]}]}]
    },
    ApiKey.LIST_TRANSACTIONS: {"state_filters": ["Ongoing"]},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "subscribed_topic_names": ["a"],
        "topic_partitions": [{"partitions": [0, 1]}],
    },
}


def _seeds() -> list[bytes]:
    seeds = []
    for number, api in enumerate(APIS):
        for version in {api.min_version, api.max_version}:
            for request in ({}, _RICH.get(api.key)):
                if request is not None:
                    body = encode_request(api.key, version, request)
                    seeds.append(bytes([number, version - api.min_version]) + body)
    return seeds


@target(*_seeds())
def requests(data: bytes) -> None:
    """The first byte chooses the API, the second the version. What is read can be written."""
    api = APIS[(data[0] if data else 0) % len(APIS)]
    version = chosen(data[1] if len(data) > 1 else 0, api.key)
    read = decode_request(api.key, version, memoryview(data)[2:])
    written = encode_request(api.key, version, as_mapping(read))
    # Compared as bytes, because a number may be NaN.
    again = decode_request(api.key, version, written)
    assert encode_request(api.key, version, as_mapping(again)) == written


def as_mapping(value: Any) -> Any:
    """What was read, in the form in which it is written."""
    if isinstance(value, Fields):
        return {name: as_mapping(item) for name, item in zip(value.names, value, strict=True)}
    if isinstance(value, tuple):
        return [as_mapping(item) for item in value]
    return value
