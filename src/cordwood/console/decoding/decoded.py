"""A key, a value or a header as text."""

from typing import Final

from cordwood.quantities import KIB, MIB
from cordwood.value_class import dataclass

SHOWN_BYTES_MAX: Final = 256 * KIB  # of one value on its own page
PREVIEW_CHARS_MAX: Final = 300  # of one value in a table
PARSED_BYTES_MAX: Final = 1 * MIB  # more than this is not parsed, only shown as text or hex
DEPTH_MAX: Final = 64
ITEMS_MAX: Final = 20_000

NONE: Final = "none"
JSON: Final = "json"
TEXT: Final = "text"
HEX: Final = "hex"
BASE64: Final = "base64"
MSGPACK: Final = "msgpack"
AVRO: Final = "avro"
NUMBER: Final = "number"
INTERNAL: Final = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """`text` is what people see. `note` says what a reader should know about it.

    kind     the decoder that understood the bytes; `none` for a null
    is_cut   whether `text` is only the beginning
    content  the value as Python's numbers, texts, lists and dicts; None if it has no structure
    """

    kind: str
    text: str
    size: int | None = None
    is_cut: bool = False
    note: str | None = None
    content: object = None


class UndecodableError(ValueError):
    """The bytes are not what the decoder expects, or go beyond its limits."""
