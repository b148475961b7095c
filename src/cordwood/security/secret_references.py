"""References to secrets in configuration values, as Kafka's config providers have them.

    ${file:/run/secrets/password}        a whole file, without blanks at its ends
    ${file:/etc/app.properties:key}      one key of a properties file
    ${dir:/run/secrets:password}         a file of a directory
    ${env:PASSWORD}                      an environment variable
    $${                                  the characters ${ themselves

A reference may be a part of a value. What it refers to is not searched for references. Errors name
the reference, never what it refers to.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.errors import FormatError
from cordwood.format.small_files.meta_properties import parse_properties
from cordwood.value_class import dataclass, field

SECRET_BYTES_MAX: Final = 1024 * 1024

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z][A-Za-z0-9_-]*):([^}]*)\}")
_ESCAPED: Final = "$${"
_PROVIDERS: Final = ("file", "dir", "env")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedValue:
    """A value whose references are replaced; `open_files` can be read by every user."""

    text: str = field(repr=False)
    open_files: tuple[str, ...] = ()


def has_reference(text: str) -> bool:
    return "${" in text and _REFERENCE.search(text) is not None


def is_reference(text: str) -> bool:
    """Whether the whole text is one reference: it can be shown, whatever it refers to."""
    found = _REFERENCE.fullmatch(text.strip())
    return found is not None and found[0] != _ESCAPED


def resolve_references(text: str, environment: Mapping[str, str]) -> ResolvedValue:
    """`text` with its references replaced. Raises ValueError that names the one that fails."""
    open_files: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found[0] == _ESCAPED:
            return "${"
        try:
            return _resolve(found[1], found[2], environment, open_files.append)
        except ValueError as error:
            raise ValueError(f"{found[0]} {error}") from None

    return ResolvedValue(text=_REFERENCE.sub(replaced, text), open_files=tuple(open_files))


def read_secret_file(path: str, note_open: Callable[[str], None]) -> str:
    """The content of a file. Raises ValueError; calls `note_open` if everybody can read it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(SECRET_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ValueError(f"cannot be read: {reason or 'not a file name'}") from None
    if len(content) > SECRET_BYTES_MAX:
        raise ValueError(f"is larger than {SECRET_BYTES_MAX} bytes")
    if mode & stat.S_IROTH:
        note_open(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None


def _resolve(
    provider: str, rest: str, environment: Mapping[str, str], note_open: Callable[[str], None]
) -> str:
    if provider == "env":
        if rest not in environment:
            raise ValueError("is not set: there is no such environment variable")
        return environment[rest]
    if provider not in _PROVIDERS:
        raise ValueError(
            f"has an unknown provider; known are {', '.join(_PROVIDERS)}; write $${{ for the "
            "characters ${"
        )
    path, colon, key = rest.partition(":")
    if not os.path.isabs(path):
        raise ValueError("must have an absolute path")
    if provider == "dir":
        if not key or "/" in key or key in (".", ".."):
            raise ValueError("must be ${dir:/directory:name} with the name of a file")
        return read_secret_file(os.path.join(path, key), note_open).strip()
    content = read_secret_file(path, note_open)
    if not colon:
        return content.strip()
    try:
        found = parse_properties(content)
    except FormatError:
        raise ValueError("is not a properties file") from None
    if key not in found:
        raise ValueError("is not set: the file has no such key")
    return found[key].strip()
