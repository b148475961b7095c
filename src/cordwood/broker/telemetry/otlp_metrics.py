"""Metrics of a client, decoded from OTLP (opentelemetry.proto.metrics.v1.MetricsData). Pure.

Only what is shown is decoded: gauges and sums. The fields, by their numbers in the .proto files:

    MetricsData      1 resource_metrics[]
    ResourceMetrics  2 scope_metrics[]
    ScopeMetrics     2 metrics[]
    Metric           1 name, 5 gauge, 7 sum
    Gauge            1 data_points[]
    Sum              1 data_points[], 2 aggregation_temporality (1 delta, 2 cumulative),
                     3 is_monotonic
    NumberDataPoint  7 attributes[], 4 as_double, 6 as_int
    KeyValue         1 key, 2 value
    AnyValue         1 string, 2 bool, 3 int, 4 double

Input is not trusted. Messages are nested as deep as the table says and no deeper; a size is
compared with the bytes that are left; points beyond a limit are counted and left out.
"""

import struct
from collections.abc import Iterator
from typing import Final

from cordwood.errors import FormatError
from cordwood.value_class import dataclass

POINTS_MAX: Final = 2000
_NAME_BYTES_MAX: Final = 256
_TEXT_BYTES_MAX: Final = 128
_ATTRIBUTES_MAX: Final = 8
_VARINT_BYTES_MAX: Final = 10

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
_DOUBLE: Final = struct.Struct("<d")
_INT: Final = struct.Struct("<q")

_Field = tuple[int, int, int | memoryview]  # number, wire type, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a metric. `is_delta`: it counts since the last push, not since the start."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool = False
    is_delta: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMetrics:
    """The points of a push. `left_out` counts points and metrics that are not shown."""

    points: list[Point]
    left_out: int


def decode_metrics(data: bytes) -> DecodedMetrics:
    """Raises `FormatError` if `data` is not OTLP."""
    points: list[Point] = []
    left_out = 0
    for resource in _messages(memoryview(data), 1):
        for scope in _messages(resource, 2):
            for metric in _messages(scope, 2):
                for point in _points(metric):
                    if point is None or len(points) >= POINTS_MAX:
                        left_out += 1
                    else:
                        points.append(point)
    return DecodedMetrics(points=points, left_out=left_out)


def _points(metric: memoryview) -> Iterator[Point | None]:
    """The points of a metric; None for one that is not shown."""
    name = ""
    data: tuple[int, memoryview] | None = None
    for number, wire, value in _fields(metric):
        if wire == _SIZED and isinstance(value, memoryview):
            if number == 1:
                name = _text(value, _NAME_BYTES_MAX)
            elif number > 3 and number != 12:  # 12: metadata
                data = number, value
    if data is None:
        return
    kind, body = data
    if not name or kind not in (5, 7):
        yield None
        return
    is_delta, is_counter = False, False
    if kind == 7:
        for number, wire, value in _fields(body):
            if wire == _VARINT and number == 2:
                is_delta = value == _DELTA
            elif wire == _VARINT and number == 3:
                is_counter = bool(value)
    for each in _messages(body, 1):
        yield _point(each, name, is_counter=is_counter, is_delta=is_delta)


def _point(data: memoryview, name: str, *, is_counter: bool, is_delta: bool) -> Point | None:
    number_value: float | None = None
    attributes: list[tuple[str, str]] = []
    for number, wire, value in _fields(data):
        if isinstance(value, memoryview):
            if wire == _FIXED64 and number == 4:
                number_value = _DOUBLE.unpack(value)[0]
            elif wire == _FIXED64 and number == 6:
                number_value = float(_INT.unpack(value)[0])
            elif wire == _SIZED and number == 7 and len(attributes) < _ATTRIBUTES_MAX:
                attributes.append(_attribute(value))
    if number_value is None:
        return None
    return Point(
        name=name,
        attributes=tuple(sorted(attributes)),
        value=number_value,
        is_counter=is_counter,
        is_delta=is_delta,
    )


def _attribute(data: memoryview) -> tuple[str, str]:
    key, text = "", ""
    for number, wire, value in _fields(data):
        if wire == _SIZED and isinstance(value, memoryview):
            if number == 1:
                key = _text(value, _TEXT_BYTES_MAX)
            elif number == 2:
                text = _any_value(value)
    return key, text


def _any_value(data: memoryview) -> str:
    for number, wire, value in _fields(data):
        if isinstance(value, memoryview):
            if wire == _SIZED and number == 1:
                return _text(value, _TEXT_BYTES_MAX)
            if wire == _FIXED64 and number == 4:
                return repr(_DOUBLE.unpack(value)[0])
        elif wire == _VARINT and number == 2:
            return "true" if value else "false"
        elif wire == _VARINT and number == 3:
            return str(value - (1 << 64) if value >> 63 else value)
    return ""


def _text(data: memoryview, bytes_max: int) -> str:
    return bytes(data[:bytes_max]).decode(errors="replace")


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, wire, value in _fields(data):
        if number == wanted and wire == _SIZED and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[_Field]:
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == _SIZED:
            size, position = _varint(data, position)
        elif wire == _FIXED64:
            size = 8
        elif wire == _FIXED32:
            size = 4
        else:
            raise FormatError(f"OTLP: unknown wire type {wire} at byte {position}")
        if size > end - position:
            raise FormatError(f"OTLP: field of {size} bytes, {end - position} are left")
        yield number, wire, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise FormatError(f"OTLP: a number does not end at byte {position}")
