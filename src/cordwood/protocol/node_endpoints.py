"""The brokers that an answer names as new leaders (KIP-951), as tag 0 of the whole answer.

    node_endpoints   array of
        node_id        int32
        host           string
        port           int32
        rack           nullable string

So a client that asked the wrong broker need not ask for metadata first.
"""

from collections.abc import Sequence
from typing import Final

from cordwood.protocol.wire_values import INT32, encode_count, encode_string, encode_varint

_NO_TAGS: Final = b"\0"


def encode_node_endpoints(nodes: Sequence[tuple[int, str, int, str | None]]) -> bytes:
    """The tagged fields of an answer: none, or the endpoints."""
    if not nodes:
        return _NO_TAGS
    field = bytearray(encode_count(len(nodes), is_flexible=True))
    for node_id, host, port, rack in nodes:
        field += INT32.pack(node_id) + encode_string(host, is_flexible=True) + INT32.pack(port)
        field += encode_string(rack, is_flexible=True) + _NO_TAGS
    return b"\x01\x00" + encode_varint(len(field)) + bytes(field)
