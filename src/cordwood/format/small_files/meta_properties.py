r"""`meta.properties`, the identity of a log directory, and the clean-shutdown marker.

    #
    #Sat Nov 15 20:15:00 UTC 2025
    node.id=1
    version=1
    directory.id=<22 characters>
    cluster.id=<text>

`meta.properties` is Java properties text: `#` and `!` start comments, a key ends at the first
`=`, `:` or blank; a backslash escapes, and at the end of a line continues it. Version 1 requires
`cluster.id` and `node.id`; version 0 has `broker.id`, and both are optional. Unknown keys are
ignored. The file is written in ASCII, because Java reads it as ISO-8859-1.

`.kafka_cleanshutdown` is one JSON object: ``{"version":0,"brokerEpoch":5}``. At a start only its
existence counts; older brokers left it empty.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.quantities import INT32_MAX, INT64_MAX, TimestampMs
from cordwood.value_class import dataclass

_VERSION_KEY: Final = "version"
_CLUSTER_ID_KEY: Final = "cluster.id"
_NODE_ID_KEY: Final = "node.id"
_BROKER_ID_KEY: Final = "broker.id"
_DIRECTORY_ID_KEY: Final = "directory.id"

_INT32: Final = re.compile(r"-?[0-9]{1,10}")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u]|u|$)", re.DOTALL)
_KEY_AND_VALUE: Final = re.compile(
    r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL
)
_UNESCAPED_BY_LETTER: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED_BY_CHARACTER: Final = {
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "\\": "\\\\",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}

# Not those of the locale: tools on other machines read this file.
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)

# The marker contains two numbers. Anything much longer is another file.
_CLEAN_SHUTDOWN_CHARS_MAX: Final = 64 * 1024
_CLEAN_SHUTDOWN_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The identity of a log directory. Version 1 always has `cluster_id` and `node_id`."""

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None

    def __post_init__(self) -> None:
        assert self.version in (0, 1), self
        assert self.version == 0 or self.cluster_id is not None, self
        assert self.version == 0 or self.node_id is not None, self

    @property
    def writer_id(self) -> str:
        """Identifies the store to archives. A copy or a restored store has another one."""
        if self.directory_id is None:
            return self.cluster_id or ""
        return encode_topic_id(self.directory_id)


def render_meta_properties(meta: MetaProperties, *, written_ms: TimestampMs) -> str:
    """The whole file, with the date in Java's format."""
    properties: dict[str, str] = {}
    if meta.node_id is not None:
        properties[_NODE_ID_KEY if meta.version else _BROKER_ID_KEY] = str(meta.node_id)
    properties[_VERSION_KEY] = str(meta.version)
    if meta.directory_id is not None:
        properties[_DIRECTORY_ID_KEY] = encode_topic_id(meta.directory_id)
    if meta.cluster_id is not None:
        properties[_CLUSTER_ID_KEY] = meta.cluster_id
    return f"#\n#{_java_date(written_ms)}\n{render_properties(properties)}"


def parse_meta_properties(text: str) -> MetaProperties:
    """Read the file. A missing `version` means 0."""
    properties = parse_properties(text)
    version = _int32(properties, _VERSION_KEY) or 0
    if version not in (0, 1):
        raise UnsupportedFormatError("meta.properties version", version)
    cluster_id = properties.get(_CLUSTER_ID_KEY)
    node_id_key = _NODE_ID_KEY if version else _BROKER_ID_KEY
    node_id = _int32(properties, node_id_key)
    if version and cluster_id is None:
        raise FormatError(f"{_CLUSTER_ID_KEY} is missing")
    if version and node_id is None:
        raise FormatError(f"{node_id_key} is missing")
    directory_id = None
    if _DIRECTORY_ID_KEY in properties:
        try:
            directory_id = decode_topic_id(properties[_DIRECTORY_ID_KEY])
        except FormatError as error:
            raise FormatError(f"{_DIRECTORY_ID_KEY}: {error.reason}") from error
    return MetaProperties(
        version=version, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id
    )


def render_clean_shutdown(broker_epoch: int) -> str:
    """The marker that a clean shutdown writes."""
    marker = {"version": _CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}
    return json.dumps(marker, separators=(",", ":"))


def parse_clean_shutdown(text: str) -> int:
    """The broker epoch in the marker; unknown keys are ignored."""
    if len(text) > _CLEAN_SHUTDOWN_CHARS_MAX:
        raise FormatError(f"{len(text)} characters are too many for a clean-shutdown marker")
    try:
        marker = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {error.msg}", position=error.pos) from error
    except (ValueError, RecursionError) as error:  # an excessive number or nesting
        raise FormatError(f"not a clean-shutdown marker: {error}") from error
    if not isinstance(marker, dict):
        raise FormatError("not a JSON object")
    epoch = marker.get("brokerEpoch")
    if type(epoch) is not int or not -INT64_MAX - 1 <= epoch <= INT64_MAX:
        raise FormatError("brokerEpoch is not an int64")
    return epoch


def render_properties(properties: Mapping[str, str]) -> str:
    """Java properties text, one line per key, in the order given; always ASCII."""
    return "".join(
        f"{_escape(key, blanks_everywhere=True)}={_escape(value, blanks_everywhere=False)}\n"
        for key, value in properties.items()
    )


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties text; if a key occurs twice, the last value counts, as in Java."""
    properties: dict[str, str] = {}
    for position, line in _logical_lines(text):
        found = _KEY_AND_VALUE.fullmatch(line)
        assert found is not None, line  # every part of the pattern may be empty
        properties[_unescape(found[1], position)] = _unescape(found[2], position)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined and without comments, each with its position."""
    parts: list[str] = []
    start = position = 0
    while position < len(text):
        found = _LINE_END.search(text, position)
        end, following = (found.start(), found.end()) if found else (len(text), len(text))
        line = text[position:end].lstrip(_BLANKS)
        if not parts:
            start = position
        position = following
        if not parts and (not line or line[0] in "#!"):
            continue
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            if len(line) > 1:  # for Java a lone backslash does not begin a line
                parts.append(line[:-1])
            continue
        yield start, "".join((*parts, line))
        parts = []
    if parts:
        yield start, "".join(parts)


def _unescape(text: str, position: int) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPED.sub(lambda found: _unescaped(found[1], position), text)
    try:
        # Java escapes UTF-16 units: a character above 16 bits is two of them.
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise FormatError("half of a surrogate pair in an escape", position=position) from error


def _unescaped(escape: str, position: int) -> str:
    if escape == "u":
        raise FormatError("\\u is not followed by four hexadecimal digits", position=position)
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _UNESCAPED_BY_LETTER.get(escape, escape)


def _escape(text: str, *, blanks_everywhere: bool) -> str:
    escaped = []
    leading = True
    for character in text:
        leading = leading and character == " "
        if character == " ":
            escaped.append("\\ " if leading or blanks_everywhere else " ")
        elif character in _ESCAPED_BY_CHARACTER:
            escaped.append(_ESCAPED_BY_CHARACTER[character])
        elif " " < character <= "~":
            escaped.append(character)
        else:
            units = character.encode("utf-16-be").hex().upper()
            escaped.extend(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    return "".join(escaped)


def _int32(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if _INT32.fullmatch(text) is None or not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        raise FormatError(f"{key} = {text[:80]!r} is not an int32")
    return int(text)


def _java_date(timestamp_ms: TimestampMs) -> str:
    at = _EPOCH_START + timedelta(milliseconds=timestamp_ms)
    return f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at:%d %H:%M:%S} UTC {at.year}"
