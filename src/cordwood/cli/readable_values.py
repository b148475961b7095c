"""Numbers and bytes as people read them. Programs get them as they are, by ``--json``."""

import re
from datetime import datetime
from typing import Any, Final

from cordwood.quantities import GIB, KIB, MIB

NOTHING: Final = "-"

_SIZES: Final = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_DURATIONS: Final = (
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "min"),
    (1000, "s"),
)
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a1-\ud7ff\ue000-\U0010ffff]")
_NAMED_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(value: Any) -> str:
    """Any value of a table's cell."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or NOTHING
    return str(value)


def shown_bytes(size: int | None) -> str:
    """``1.5 MiB``"""
    if size is None:
        return NOTHING
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def shown_count(count: int | None) -> str:
    """``1,234,567``"""
    return NOTHING if count is None else f"{count:,}"


def shown_duration(duration_ms: int | None) -> str:
    """``36.0 h``, ``250 ms``"""
    if duration_ms is None:
        return NOTHING
    for unit, name in _DURATIONS:
        if duration_ms >= unit:
            return f"{duration_ms / unit:.1f} {name}"
    return f"{duration_ms} ms"


def shown_time(timestamp_ms: int | None) -> str:
    """``2026-11-16 09:30:00.250+01:00``, in the time zone of whoever looks."""
    if timestamp_ms is None or timestamp_ms < 0:
        return NOTHING
    return iso_time(timestamp_ms).replace("T", " ")


def iso_time(timestamp_ms: int) -> str:
    """As ISO 8601 writes it, to the millisecond; a time no calendar has stays a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
        return moment.isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"


def printable(data: bytes | None) -> str:
    """Bytes for a terminal: UTF-8 as it is, and anything that could steer the terminal escaped."""
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in data)
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
