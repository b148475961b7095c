"""The columns of a row, by name, and the option that chooses among them.

They are those of Spark's Kafka source. `headers` is there when asked for.
"""

from typing import Final

from cordwood.errors import ConfigError

HEADERS: Final = "headers"
DEFAULT_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
ALL_COLUMNS: Final = (*DEFAULT_COLUMNS, HEADERS)

_SPELLINGS: Final = {name.lower(): name for name in ALL_COLUMNS}


def parse_columns(text: str) -> tuple[str, ...]:
    """The columns that `text` names, in its order."""
    rule = f"must be some of {', '.join(ALL_COLUMNS)}, with commas between them"
    typed = [part.strip() for part in text.split(",")]
    found = tuple(_SPELLINGS.get(name.lower(), "") for name in typed)
    if not all(found) or not found:
        unknown = next(name for name, known in zip(typed, found, strict=True) if not known)
        raise ConfigError("columns", text, f"{rule}; not {unknown!r}")
    if len(set(found)) < len(found):
        raise ConfigError("columns", text, f"{rule}, each once")
    return found
