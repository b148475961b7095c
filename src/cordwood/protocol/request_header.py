"""The header of every request.

position  size  field
0         2     api_key
2         2     api_version
4         4     correlation_id
8         2     length of client_id, -1 for none; two bytes in flexible versions too
10        n     client_id
10 + n    ...   tagged fields, in flexible versions only
"""

import struct
from typing import Final, NamedTuple

from cordwood.errors import FormatError, TruncatedInputError
from cordwood.protocol.wire_values import skip_tagged_fields

_FIXED: Final = struct.Struct(">hhih")
_CLIENT_ID_AT: Final = _FIXED.size


class RequestHeader(NamedTuple):
    """The API, version, number and sender of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header at the start of `frame`, and the position behind the client id.

    In flexible versions tagged fields follow there (see `skip_header_tags`), otherwise the body.
    """
    if len(frame) < _CLIENT_ID_AT:
        raise TruncatedInputError("request header", needed=_CLIENT_ID_AT, got=len(frame))
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    if length <= 0:
        if length < -1:
            raise FormatError(f"client id of {length} bytes", position=_CLIENT_ID_AT - 2)
        client_id = None if length < 0 else ""
        end = _CLIENT_ID_AT
    else:
        end = _CLIENT_ID_AT + length
        if len(frame) < end:
            raise TruncatedInputError("client id", needed=length, got=len(frame) - _CLIENT_ID_AT)
        try:
            client_id = str(frame[_CLIENT_ID_AT:end], "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("client id is not UTF-8", position=_CLIENT_ID_AT) from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), end


def skip_header_tags(frame: memoryview, position: int) -> int:
    """Where the body begins, behind the tagged fields of a flexible header."""
    if position < len(frame) and frame[position] == 0:  # none, as clients send it
        return position + 1
    return skip_tagged_fields(frame, position)
