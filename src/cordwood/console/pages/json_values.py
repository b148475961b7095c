"""View models as JSON."""

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


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
