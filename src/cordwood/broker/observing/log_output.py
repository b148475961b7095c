"""The log output of a broker process: one line per event, as text or as JSON.

Only the command line sets this up. A library leaves it to the program that uses it.

    2026-07-08T09:00:00.123Z INFO  cordwood.broker.server: listening on 127.0.0.1:9092
    {"time": "2026-07-08T09:00:00.123Z", "level": "info", "logger": "cordwood.broker.server", ...}

Facts that are passed with ``extra={"facts": {...}}`` become fields in JSON.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from cordwood.log.rules.config_key import ConfigKey, ConfigKind, config_field
from cordwood.value_class import dataclass, fields

_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOutputConfig:
    """How the process logs. The prefix is `logger`, because `log` means the commit log."""

    logger_level: str = config_field(
        "logger.level", ConfigKind.TEXT, "info", "The lowest level that is written.",
        choices=_LEVELS, since_cordwood=True,
    )  # fmt: skip
    logger_format: str = config_field(
        "logger.format", ConfigKind.TEXT, "text", "The format of log lines.",
        choices=("text", "json"), since_cordwood=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for key in LOG_OUTPUT_KEYS:
            key.check(getattr(self, key.field_name))


LOG_OUTPUT_KEYS: Final[tuple[ConfigKey, ...]] = tuple(
    output_field.metadata["key"] for output_field in fields(LogOutputConfig)
)


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


# Control characters, separators of lines, and characters that turn the direction of text.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _escaped(text: str) -> str:
    """`text` with escapes, as in Python, in place of characters that a terminal acts on."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """For people: time, level, logger, message; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time_of(record)} {record.levelname:<7} {record.name}: {record.getMessage()}"
        # One event, one line: text that a client sent must not look like a line of ours, and must
        # not control the terminal that shows it.
        line = _escaped(line)
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            # Indented, because the text of an error may have lines that look like ours.
            line = "\n    ".join([line, *map(_escaped, lines)])
        return line


def _escaped_json(text: str) -> str:
    """As `_escaped`; JSON escapes only control characters below 0x20 by itself."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class JsonFormatter(logging.Formatter):
    """For collectors: one JSON object per event."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        facts = getattr(record, "facts", None)
        if isinstance(facts, dict):
            event |= {name: value for name, value in facts.items() if name not in event}
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return _escaped_json(json.dumps(event, default=str, ensure_ascii=False))


def configure_logging(config: LogOutputConfig, stream: TextIO | None = None) -> None:
    """Make every logger of the process write to `stream`; by default to standard error."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if config.logger_format == "json" else TextFormatter())
    root = logging.getLogger()
    for earlier in list(root.handlers):
        root.removeHandler(earlier)
    root.addHandler(handler)
    # Debug output of other libraries does not help to debug a broker.
    root.setLevel(max(logging.INFO, _level(config)))
    logging.getLogger("cordwood").setLevel(_level(config))


def _level(config: LogOutputConfig) -> int:
    return logging.getLevelNamesMapping()[config.logger_level.upper()]
