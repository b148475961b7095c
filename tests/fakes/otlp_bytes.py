"""OTLP metrics as bytes, written by hand: a second opinion on the decoder."""

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def sized(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    return sized(number, value.encode())


def attribute(key: str, value: str | int) -> bytes:
    if isinstance(value, str):
        body = text(1, value)
    else:
        body = varint(3 << 3) + varint(value & (1 << 64) - 1)
    return sized(7, text(1, key) + sized(2, body))


def double_point(value: float, *attributes: bytes) -> bytes:
    return sized(1, varint(4 << 3 | 1) + struct.pack("<d", value) + b"".join(attributes))


def int_point(value: int) -> bytes:
    return sized(1, varint(6 << 3 | 1) + struct.pack("<q", value))


def metric(name: str, kind: int, body: bytes) -> bytes:
    return sized(2, text(1, name) + text(2, "a description") + sized(kind, body))


def metrics_data(*metrics: bytes) -> bytes:
    return sized(1, sized(1, b"") + sized(2, b"".join(metrics)))
