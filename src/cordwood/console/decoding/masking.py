"""Masking rules: parts of records that nobody sees in the console, nor finds by searching.

A rule is a path, with a topic before it if it is for some topics only:

    value.card.number        one field of JSON, MessagePack or Avro; lists are looked into
    value.*.email            any name in between
    payments*:value.iban     only in topics that match
    key   value   headers.authorization   all of it

If a rule is for a part of a value and the value cannot be parsed, the whole value is hidden.
"""

import fnmatch
import json
from collections.abc import Iterable
from typing import Final

from cordwood.console.decoding.decoded import Decoded
from cordwood.console.decoding.value_decoders import decode, decoded_content
from cordwood.errors import ConfigError
from cordwood.format.record import Header, Record
from cordwood.value_class import dataclass

MASK: Final = "***"
_MASK_BYTES: Final = MASK.encode()
_KEY: Final = "key"
_VALUE: Final = "value"
_HEADERS: Final = "headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingRule:
    """`path` begins with key, value or headers."""

    topics: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        path = ".".join(self.path)
        return path if self.topics == "*" else f"{self.topics}:{path}"


def parse_rule(text: str) -> MaskingRule:
    """A rule as it is written. Raises `ConfigError`."""
    before, colon, after = text.strip().partition(":")
    topics, path = (before, after) if colon else ("*", before)
    parts = tuple(part.strip() for part in path.split("."))
    if not topics or parts[0] not in {_KEY, _VALUE, _HEADERS} or not all(parts):
        raise ConfigError(
            "--mask", text, "must be a path such as value.card.number, key or headers.token"
        )
    return MaskingRule(topics=topics, path=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """All rules. Nothing that they cover leaves the process."""

    rules: tuple[MaskingRule, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Masking":
        return cls(rules=tuple(map(parse_rule, texts)))

    def of_topic(self, topic: str) -> "TopicMasking":
        return TopicMasking(
            paths=tuple(r.path for r in self.rules if fnmatch.fnmatchcase(topic, r.topics))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMasking:
    """The rules for one topic."""

    paths: tuple[tuple[str, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths)

    @property
    def hides_keys(self) -> bool:
        return any(path[0] == _KEY for path in self.paths)

    def key(self, decoded: Decoded) -> Decoded:
        return self._masked(decoded, _KEY)

    def value(self, decoded: Decoded) -> Decoded:
        return self._masked(decoded, _VALUE)

    def header(self, name: str, decoded: Decoded) -> Decoded:
        return _hidden(decoded) if self._hides_header(name) else decoded

    def _masked(self, decoded: Decoded, part: str) -> Decoded:
        paths = [path[1:] for path in self.paths if path[0] == part]
        if not paths or decoded.kind == "none":
            return decoded
        if not all(paths) or not isinstance(decoded.content, (dict, list)):
            return _hidden(decoded)
        content: object = decoded.content
        for path in paths:
            content = _without(content, path)
        return decoded_content(decoded.kind, content, decoded.size)

    def record(self, record: Record) -> Record:
        """A record without what the rules hide, for searching."""
        return record._replace(
            key=self._bytes(record.key, _KEY),
            value=self._bytes(record.value, _VALUE),
            headers=[self._searched(header) for header in record.headers],
        )

    def _searched(self, header: Header) -> Header:
        return (header[0], _MASK_BYTES) if self._hides_header(header[0]) else header

    def _hides_header(self, name: str) -> bool:
        return any(
            path[0] == _HEADERS and (len(path) == 1 or fnmatch.fnmatchcase(name, path[1]))
            for path in self.paths
        )

    def _bytes(self, data: bytes | None, part: str) -> bytes | None:
        if data is None or not any(path[0] == part for path in self.paths):
            return data
        masked = self._masked(decode(data), part)
        if isinstance(masked.content, (dict, list)):
            return json.dumps(masked.content, ensure_ascii=False, default=str).encode()
        return masked.text.encode()


def _hidden(decoded: Decoded) -> Decoded:
    return Decoded(kind=decoded.kind, text=MASK, size=decoded.size, note="hidden by a masking rule")


def _without(content: object, path: tuple[str, ...]) -> object:
    if not path:
        return MASK
    if isinstance(content, list):
        return [_without(item, path) for item in content]
    if not isinstance(content, dict):
        return content
    return {
        key: _without(item, path[1:]) if fnmatch.fnmatchcase(str(key), path[0]) else item
        for key, item in content.items()
    }
