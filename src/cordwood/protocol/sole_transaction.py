"""The usual requests of a transactional producer, read and answered in a few steps.

As most are: AddPartitionsToTxn for a few partitions of one topic (versions 0 to 2, which librdkafka
and aiokafka send), and EndTxn in all versions. Anything else comes back as None; `messages` then
reads it again, slowly, and says what is wrong.

    AddPartitionsToTxn   transactional id, producer id, epoch, [topic, [partition]]
    its answer           throttle time, [topic, [partition, error code]]
    EndTxn               transactional id, producer id, epoch, whether it is committed
    its answer           throttle time, error code; from version 5 on, the next identity
"""

import struct
from typing import Final, NamedTuple

from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_ADD: Final = int(ApiKey.ADD_PARTITIONS_TO_TXN)
_END: Final = int(ApiKey.END_TXN)
_LAST_ADD: Final = 2  # later ones are flexible, or of brokers
_FIRST_FLEXIBLE_END: Final = 3
_FIRST_END_WITH_EPOCH: Final = 5
_LAST_END: Final = 5
_PARTITIONS_MAX: Final = 64
_COMPACT_MAX: Final = 0x80  # a varint of one byte is below it

_HEADER: Final = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id
_SIZE: Final = struct.Struct(">h")
_IDENTITY: Final = struct.Struct(">qh")
_COUNT: Final = struct.Struct(">i")
_COUNT_AND_SIZE: Final = struct.Struct(">ih")
_ADDED: Final = struct.Struct(">iiiih")  # size, correlation id, throttle time, topics, size of name
_ADDED_PARTITION: Final = struct.Struct(">ih")
_ENDED: Final = struct.Struct(">iiih")  # size, correlation id, throttle time, error code
_ENDED_FLEXIBLE: Final = struct.Struct(">iibihb")
_ENDED_WITH_EPOCH: Final = struct.Struct(">iibihqhb")


class SoleAdd(NamedTuple):
    """An AddPartitionsToTxn request for one topic. `name` is the topic, as it came."""

    version: int
    correlation_id: int
    transactional_id: str
    producer_id: int
    epoch: int
    name: bytes
    partitions: tuple[int, ...]


class SoleEnd(NamedTuple):
    """An EndTxn request."""

    version: int
    correlation_id: int
    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool


def _client_id_end(data: memoryview, start: int, size: int) -> int:
    """Where a client id of `size` bytes ends. Raises for one that the long way refuses."""
    if size <= 0:
        if size < -1:
            raise struct.error("no size of a client id")
        return start
    str(data[start : start + size], "utf-8")
    return start + size


def find_sole_add(data: memoryview, start: int, end: int) -> SoleAdd | None:
    """The request in the frame ``data[start:end]``, if it is a usual AddPartitionsToTxn."""
    try:
        key, version, correlation_id, size = _HEADER.unpack_from(data, start)
        if key != _ADD or not 0 <= version <= _LAST_ADD:
            return None
        # Positions only grow, so none was behind the end if the last one is the end.
        at = _client_id_end(data, start + _HEADER.size, size)
        (size,) = _SIZE.unpack_from(data, at)
        at += 2
        id_end = at + size
        producer_id, epoch = _IDENTITY.unpack_from(data, id_end)
        topics, name_size = _COUNT_AND_SIZE.unpack_from(data, id_end + 10)
        name_at = id_end + 16
        (count,) = _COUNT.unpack_from(data, name_at + name_size)
        numbers_at = name_at + name_size + 4
        if (
            size <= 0
            or topics != 1
            or name_size <= 0
            or not 0 < count <= _PARTITIONS_MAX
            or numbers_at + 4 * count != end
        ):
            return None
        partitions = struct.unpack_from(f">{count}i", data, numbers_at)
        transactional_id = str(data[at:id_end], "utf-8")
        name = bytes(data[name_at : name_at + name_size])
        name.decode("utf-8")  # the long way refuses other bytes
    except (struct.error, UnicodeDecodeError):
        return None
    return SoleAdd(version, correlation_id, transactional_id, producer_id, epoch, name, partitions)


def find_sole_end(data: memoryview, start: int, end: int) -> SoleEnd | None:
    """The request in the frame ``data[start:end]``, if it is a usual EndTxn."""
    try:
        key, version, correlation_id, size = _HEADER.unpack_from(data, start)
        if key != _END or not 0 <= version <= _LAST_END:
            return None
        at = _client_id_end(data, start + _HEADER.size, size)
        rest = 11  # after the transactional id
        if version < _FIRST_FLEXIBLE_END:
            (size,) = _SIZE.unpack_from(data, at)
            at += 2
        else:
            if at + 2 > end or data[at] or data[at + 1] >= _COMPACT_MAX:
                return None  # tagged fields, or a long id
            size = data[at + 1] - 1
            at += 2
            rest += 1
        id_end = at + size
        if size <= 0 or id_end + rest != end:
            return None
        producer_id, epoch = _IDENTITY.unpack_from(data, id_end)
        if version >= _FIRST_FLEXIBLE_END and data[end - 1]:
            return None  # tagged fields
        transactional_id = str(data[at:id_end], "utf-8")
    except (struct.error, UnicodeDecodeError):
        return None
    is_commit = bool(data[id_end + 10])
    return SoleEnd(version, correlation_id, transactional_id, producer_id, epoch, is_commit)


def encode_added(request: SoleAdd, error_code: int) -> bytes:
    """The frame of an answer that says the same of all partitions."""
    name, partitions = request.name, request.partitions
    size = 18 + len(name) - 4 + 4 + 6 * len(partitions)
    pack = _ADDED_PARTITION.pack
    return b"".join(
        (
            _ADDED.pack(size, request.correlation_id, 0, 1, len(name)),
            name,
            _COUNT.pack(len(partitions)),
            *[pack(number, error_code) for number in partitions],
        )
    )


def encode_ended(
    request: SoleEnd,
    error_code: int,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = NO_PRODUCER_EPOCH,
) -> bytes:
    """The frame of an answer."""
    version, correlation_id = request[:2]
    if version < _FIRST_FLEXIBLE_END:
        return _ENDED.pack(_ENDED.size - 4, correlation_id, 0, error_code)
    if version < _FIRST_END_WITH_EPOCH:
        size = _ENDED_FLEXIBLE.size - 4
        return _ENDED_FLEXIBLE.pack(size, correlation_id, 0, 0, error_code, 0)
    size = _ENDED_WITH_EPOCH.size - 4
    return _ENDED_WITH_EPOCH.pack(size, correlation_id, 0, 0, error_code, producer_id, epoch, 0)
