"""Answers of other brokers, as a connection of ours gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.messages import encode_response

_SIZE_AND_CORRELATION = 8


def answer_body(api_key: int, version: int, response: Mapping[str, Any]) -> memoryview:
    """The body of an answer, without its size and its header."""
    frame = memoryview(encode_response(api_key, version, 0, response))
    return frame[_SIZE_AND_CORRELATION + KNOWN_APIS[ApiKey(api_key)].is_flexible(version) :]
