"""One configuration key: its name, its default, and the values it accepts.

A key parses values as people write them (``7d``, ``"64MiB"``, ``true``, ``["compact"]``) and
renders them as Kafka prints them (``604800000``, ``67108864``, ``true``, ``compact``). It refuses
a value with a `ConfigError` that names the key, the value as typed, and the rule.
"""

import math
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from cordwood.errors import HIDDEN, ConfigError
from cordwood.quantities import GIB, INT64_MAX, KIB, MIB, parse_duration_ms, parse_size
from cordwood.value_class import dataclass, field

ConfigValue = int | float | bool | str | tuple[str, ...] | None


class ConfigKind(StrEnum):
    """The type of a value, which decides how its text is parsed."""

    SIZE = "size"  # bytes, units accepted
    DURATION = "duration"  # milliseconds, units accepted
    INTEGER = "integer"
    RATIO = "ratio"
    BOOLEAN = "boolean"
    TEXT = "text"
    LIST = "list"  # comma separated


_WHOLE_NUMBERS = frozenset({ConfigKind.SIZE, ConfigKind.DURATION, ConfigKind.INTEGER})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A key and its rule.

    A number is from `minimum` to `maximum`, both included, or one of `also_allowed`. A text, or
    each item of a list, is one of `choices` and matches `pattern`, if given; `requirement` says
    the pattern in words. `none_text` is the text for None (no limit, not set).
    """

    name: str
    kind: ConfigKind
    default_text: str
    doc: str
    minimum: float = 0
    maximum: float = INT64_MAX
    also_allowed: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    requirement: str = "must be text"
    none_text: str | None = None
    since_cordwood: bool = False
    is_internal: bool = False
    is_sensitive: bool = False  # its value is never shown

    @property
    def field_name(self) -> str:
        """The key as a Python name: ``retention.ms`` is ``retention_ms``."""
        return self.name.replace(".", "_")

    @property
    def default(self) -> ConfigValue:
        return self.parse(self.default_text)

    @property
    def rule(self) -> str:
        """The values that the key accepts, as the end of an error message."""
        match self.kind:
            case ConfigKind.BOOLEAN if self.none_text is not None:
                return f"must be true, false or {self.none_text}"
            case ConfigKind.BOOLEAN:
                return "must be true or false"
            case ConfigKind.TEXT if self.choices:
                return f"must be one of {', '.join(self.choices)}"
            case ConfigKind.TEXT:
                return self.requirement
            case ConfigKind.LIST if self.choices:
                return f"must be a list with items from {', '.join(self.choices)}"
            case ConfigKind.LIST if self.pattern is not None:
                return "must be * or a list of partition:broker pairs"
            case ConfigKind.LIST:
                return "must be a comma-separated list"
            case _:
                return self._range_rule()

    def parse(self, raw: object) -> ConfigValue:
        """The value of `raw`, which is text, or already a number, a bool, a list or None."""
        if self.none_text is not None and (raw is None or str(raw).strip() == self.none_text):
            return None
        try:
            value = self._read(raw)
        except (ValueError, TypeError) as error:
            reason = self._reading_rule(error)
            # The cause may quote the value.
            cause = None if self.is_sensitive else error
            raise ConfigError(self.name, self._shown(raw), reason) from cause
        self._check(value, raw)
        return value

    def check(self, value: ConfigValue) -> None:
        """Refuse a value that `parse` would not return."""
        self._check(value, value)

    def render(self, value: ConfigValue) -> str:
        """The text of a value, as `parse` reads it back."""
        if value is None:
            assert self.none_text is not None, self
            return self.none_text
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _read(self, raw: object) -> ConfigValue:
        match self.kind:
            case ConfigKind.BOOLEAN:
                return _read_boolean(raw)
            case ConfigKind.RATIO:
                return _read_ratio(raw)
            case ConfigKind.LIST:
                return _read_list(raw)
            case ConfigKind.TEXT:
                return _read_text(raw)
            case _:
                return self._read_whole_number(raw)

    def _read_whole_number(self, raw: object) -> int:
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        text = _read_text(raw)
        if self.kind is ConfigKind.SIZE:
            return parse_size(text)
        if self.kind is ConfigKind.DURATION:
            return parse_duration_ms(text)
        return int(text)

    def _reading_rule(self, error: Exception) -> str:
        # The parsers of sizes and durations name the units they accept.
        is_about_units = self.kind in {ConfigKind.SIZE, ConfigKind.DURATION}
        return str(error) if is_about_units and isinstance(error, ValueError) else self.rule

    def _check(self, value: ConfigValue, raw: object) -> None:
        if not self._accepts(value):
            raise ConfigError(self.name, self._shown(raw), self.rule)

    def _shown(self, raw: object) -> object:
        return HIDDEN if self.is_sensitive else raw

    def _accepts(self, value: ConfigValue) -> bool:
        if value is None:
            return self.none_text is not None
        match self.kind:
            case ConfigKind.BOOLEAN:
                return isinstance(value, bool)
            case ConfigKind.TEXT:
                return isinstance(value, str) and self._accepts_text(value)
            case ConfigKind.LIST:
                return isinstance(value, tuple) and all(map(self._accepts_text, value))
            case _:
                return self._accepts_number(value)

    def _accepts_number(self, value: ConfigValue) -> bool:
        number_types = int if self.kind in _WHOLE_NUMBERS else (int, float)
        if isinstance(value, bool) or not isinstance(value, number_types):
            return False
        return value in self.also_allowed or self.minimum <= value <= self.maximum

    def _accepts_text(self, text: str) -> bool:
        if self.choices and text not in self.choices:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, text) is not None

    def _range_rule(self) -> str:
        smallest, largest = self._describe(self.minimum), self._describe(self.maximum)
        rule = f"must be at least {smallest}"
        if self.maximum != INT64_MAX:
            rule = f"must be {smallest} to {largest}"
        if self.none_text is not None:
            rule += f", or {self.none_text} for none"
        for number in self.also_allowed:
            rule += f", or {number}"
        return rule

    def _describe(self, number: float) -> str:
        if self.kind is ConfigKind.SIZE:
            for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
                if number and number % size == 0:
                    return f"{int(number) // size} {unit}"
        return str(number)


def config_field(name: str, kind: ConfigKind, default: str, doc: str, **rule: Any) -> Any:
    """A dataclass field for one key; its metadata holds the key under ``key``.

    The repr of the dataclass leaves out sensitive values.
    """
    key = ConfigKey(name=name, kind=kind, default_text=default, doc=doc, **rule)
    return field(default=key.default, metadata={"key": key}, repr=not key.is_sensitive)


def _read_boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    match _read_text(raw).strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("not true or false")


def _read_ratio(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise TypeError("not a number")
    value = float(raw)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def _read_list(raw: object) -> tuple[str, ...]:
    items: Iterable[object]
    if isinstance(raw, str):
        items = raw.split(",")
    elif isinstance(raw, Iterable):
        items = raw
    else:
        raise TypeError("not a list")
    named = [text for item in items if (text := _read_text(item).strip())]
    return tuple(dict.fromkeys(named))


def _read_text(raw: object) -> str:
    if not isinstance(raw, str):
        raise TypeError("not text")
    return raw
