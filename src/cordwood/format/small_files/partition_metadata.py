r"""The `partition.metadata` file, and topic ids as text.

    version: 0
    topic_id: <22 characters>

No newline after the last line. A topic id is a 16-byte UUID in URL-safe base64 without its
padding. The all-zero id means "none", and the id one belongs to Kafka's metadata topic, so no
topic gets either. Neither does a topic get an id whose text starts with '-', which would look like
an option on a command line.
"""

import binascii
import re
import uuid
from collections.abc import Callable
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, UnsupportedFormatError

ZERO_TOPIC_ID: Final = UUID(int=0)
METADATA_TOPIC_ID: Final = UUID(int=1)
TOPIC_ID_CHARS: Final = 22

_VERSION: Final = 0
_TO_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE: Final = str.maketrans("-_", "+/")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_METADATA: Final = re.compile(r"version:[ \t]+([0-9]{1,10})\r?\n(.*)", re.DOTALL)
_TOPIC_ID_LINE: Final = re.compile(r"topic_id:[ \t]+(\S+)(?:\r?\n)?")

# The same rule holds for directories and topics; the first hundred ids are reserved.
_RESERVED_BELOW: Final = 100


def encode_topic_id(topic_id: UUID) -> str:
    """22 characters."""
    encoded = binascii.b2a_base64(topic_id.bytes, newline=False)
    return encoded[:TOPIC_ID_CHARS].translate(_TO_URL_SAFE).decode("ascii")


def decode_topic_id(text: str) -> UUID:
    """Read 22 characters; only the exact text that `encode_topic_id` returns is accepted."""
    if _TOPIC_ID.fullmatch(text) is None:
        raise FormatError(f"{text[:80]!r} is not an id of 22 URL-safe base64 characters")
    topic_id = UUID(bytes=binascii.a2b_base64(text.translate(_FROM_URL_SAFE) + "=="))
    if encode_topic_id(topic_id) != text:
        # 22 characters have 132 bits; the 4 extra bits must be zero.
        raise FormatError(f"{text!r} does not end on a whole byte", position=TOPIC_ID_CHARS - 1)
    return topic_id


def new_topic_id(random_id: Callable[[], UUID] = uuid.uuid4) -> UUID:
    """A new unique id for a topic or a log directory."""
    while True:
        topic_id = random_id()
        if topic_id.int >= _RESERVED_BELOW and not encode_topic_id(topic_id).startswith("-"):
            return topic_id


def render_partition_metadata(topic_id: UUID) -> str:
    """The whole file."""
    assert topic_id != ZERO_TOPIC_ID
    return f"version: {_VERSION}\ntopic_id: {encode_topic_id(topic_id)}"


def parse_partition_metadata(text: str) -> UUID:
    """The topic id in the file, which must not be all zero."""
    found = _METADATA.fullmatch(text)
    if found is None:
        raise FormatError("line 1: not 'version: <number>'")
    if int(found[1]) != _VERSION:
        raise UnsupportedFormatError("partition.metadata version", int(found[1]))
    position = found.start(2)
    id_line = _TOPIC_ID_LINE.fullmatch(found[2])
    if id_line is None:
        raise FormatError("line 2: not 'topic_id: <id>' at the end of the file", position=position)
    try:
        topic_id = decode_topic_id(id_line[1])
    except FormatError as error:
        raise FormatError(f"line 2: {error.reason}", position=position) from error
    if topic_id == ZERO_TOPIC_ID:
        raise FormatError("line 2: the topic id is all zero", position=position)
    return topic_id
