"""Numbers, times and bytes as people read them. Programs get raw values, by ``--json``."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cordwood.quantities import GIB, KIB, MIB

NOTHING: Final = "-"

_SIZES: Final = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_DURATIONS: Final = (
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "min"),
    (1000, "s"),
)
_NAMED_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2,000 records``"""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shown(value: object) -> str:
    """Any value, for the cell of a table."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or NOTHING
    return str(value)


def shown_config(config: Mapping[str, str]) -> str:
    """``key=value, key=value``"""
    return ", ".join(f"{key}={value}" for key, value in sorted(config.items())) or NOTHING


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
    """``2026-11-16 09:30:00.250+01:00``, in the local time zone."""
    if timestamp_ms is None or timestamp_ms < 0:
        return NOTHING
    return iso_time(timestamp_ms).replace("T", " ")


def iso_time(timestamp_ms: int) -> str:
    """ISO 8601, to the millisecond; ``@`` and the number for a time outside the calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
        return moment.isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"


def printable(data: bytes | None) -> str:
    """Bytes for a terminal: UTF-8 as it is, with characters that it cannot show escaped."""
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in data)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
