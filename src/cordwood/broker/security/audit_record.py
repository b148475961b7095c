"""Security events as lines of JSON, whatever names clients sent.

A line is plain ASCII without control characters, so no name can begin a line of its own or change a
terminal. Texts are cut at `_TEXT_MAX` characters, lists and tables at `_ITEMS_MAX` items, lines
at `LINE_BYTES_MAX`. Values of keys that may hold secrets are hidden.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from cordwood.broker.security.security_events import (
    AccessDecision,
    AdministrativeChange,
    Authentication,
    Detail,
    SecurityEvent,
)

HIDDEN: Final = "[hidden]"
LINE_BYTES_MAX: Final = 16 * 1024
_TEXT_MAX: Final = 300
_ITEMS_MAX: Final = 100
_DEPTH_MAX: Final = 4
_COMMIT: Final = "OffsetCommit"
_SECRET: Final = re.compile(
    r"password|secret|jaas|token|credential|salt|stored_key|server_key|keystore\.key|private",
    re.IGNORECASE,
)


def audit_line(event: SecurityEvent, now_ms: int, *, left_out: int = 0) -> str:
    """The event as one line, without its end.

    `left_out` events like it came before it and are not in the log.
    """
    fields = _fields(event)
    if left_out:
        fields["left_out"] = left_out
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    fields = {"time": moment.replace("+00:00", "Z"), **fields}
    line = json.dumps(fields)
    if len(line) > LINE_BYTES_MAX:
        fields |= {key: "[too long]" for key in ("old", "new") if key in fields}
        line = json.dumps(fields)
    return line


def with_dropped(line: str, dropped: int) -> str:
    """The line, which says that so many events of any kind before it are missing."""
    return f'{line[:-1]}, "dropped": {dropped}}}'


class RateKey(NamedTuple):
    """Events of one kind are limited together, and so are all events of one source."""

    kind: tuple[str, str, str]
    source: tuple[str, str]


def rate_key(event: SecurityEvent) -> RateKey | None:
    """None: it is never left out.

    That is so for changes: nobody may hide one among others. Offsets that a client commits are an
    exception, because it commits them again and again.
    """
    principal, address = event.origin.principal[:_TEXT_MAX], event.origin.address
    if isinstance(event, Authentication):
        # The address, too: a claimed name is not a proven one.
        mechanism = f"{event.mechanism[:_TEXT_MAX]} {event.is_accepted}"
        source = principal if event.is_accepted else ""
        return RateKey((principal, address, mechanism), (source, address))
    if isinstance(event, AdministrativeChange) and event.api != _COMMIT:
        return None
    return RateKey(
        (principal, f"{event.resource}:{event.name[:_TEXT_MAX]}", f"{event.api} {event.operation}"),
        (principal, address),
    )


def _fields(event: SecurityEvent) -> dict[str, Any]:
    origin = event.origin
    who = {
        "principal": _cut(origin.principal),
        "address": _cut(origin.address),
        "listener": _cut(origin.listener),
        "client_id": _cut(origin.client_id),
    }
    match event:
        case Authentication():
            return {
                "event": "authentication",
                **who,
                "mechanism": _cut(event.mechanism),
                "decision": "accepted" if event.is_accepted else "refused",
                "reason": _cut(event.reason),
            }
        case AccessDecision():
            return {
                "event": "access",
                **who,
                "api": event.api,
                "operation": event.operation,
                "resource": event.resource,
                "name": _cut(event.name),
                "decision": "allowed" if event.is_allowed else "denied",
                "rule": _cut(event.rule),
            }
        case AdministrativeChange():
            return {
                "event": "change",
                **who,
                "api": event.api,
                "operation": event.operation,
                "resource": event.resource,
                "name": _cut(event.name),
                "old": _detail(event.old),
                "new": _detail(event.new),
            }


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}... ({len(text)} characters)"


def _detail(value: Detail, depth: int = 0) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, Mapping | Sequence) and depth >= _DEPTH_MAX:
        return "..."
    if isinstance(value, Mapping):
        shown = {
            _cut(str(key)): HIDDEN
            if item is not None and _SECRET.search(str(key))
            else _detail(item, depth + 1)
            for key, item in list(value.items())[:_ITEMS_MAX]
        }
        if len(value) > _ITEMS_MAX:
            shown["..."] = f"{len(value) - _ITEMS_MAX} more"
        return shown
    if isinstance(value, Sequence):
        items = [_detail(item, depth + 1) for item in value[:_ITEMS_MAX]]
        return [*items, f"... {len(value) - _ITEMS_MAX} more"] if len(value) > _ITEMS_MAX else items
    return value
