"""View models as JSON."""

import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def json_text(value: object) -> bytes:
    """JSON that every parser takes, also of numbers that are not finite and of half characters."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str).encode()
    except ValueError:
        return json.dumps(_finite(value), default=str).encode()


def _finite(value: object) -> object:
    """The value with numbers that JSON does not have as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def as_json(value: object) -> Any:
    """Dataclasses and named tuples as objects, without what their repr leaves out."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
