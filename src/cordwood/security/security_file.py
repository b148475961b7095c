"""The file that keeps users, access rules and quotas: `cordwood-security`.

Every data directory has a copy, of mode 0600: a checked document, see `security_document`. The
newest sound copy counts. Each change replaces all copies.

A store whose copies all exist and cannot be read is not opened: without its rules it would let
everybody in, or nobody. Nor is one with two newest copies that differ. That happens if directories
were used apart from each other, each with changes of its own: any choice could bring back a right
that was withdrawn, so the operator chooses.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cordwood.errors import ConfigError, FormatError
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    encode_document,
)
from cordwood.quantities import MIB
from cordwood.security.security_document import (
    SECURITY_FILE,
    SecurityDocument,
    decode_security,
    encode_security,
)
from cordwood.security.security_source import Change
from cordwood.security.security_state import SecurityState
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

_BYTES_MAX: Final = 64 * MIB
_SECRET_BYTES: Final = 32


class SecurityFile:
    """The present state, and its changes. Any thread may call it; changes take turns."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        """Raises `FormatError` or `OSError` if there are copies and none can be read."""
        self._fs = fs
        self.directories = directories
        self._changing = threading.Lock()
        self._listeners: list[Callable[[SecurityState], None]] = []
        self._generation, (self._state, self.secret) = self._read()

    @property
    def state(self) -> SecurityState:
        return self._state

    def when_changed(self, listener: Callable[[SecurityState], None]) -> None:
        """Call `listener` with the state now, and after each change before it is answered."""
        with self._changing:
            self._listeners.append(listener)
            listener(self._state)

    def change(self, change: Change) -> SecurityState:
        """Replace the state by what `change` makes of it: durable, then in effect, on return.

        What `change` raises is passed on, and nothing has changed. Raises `OSError` if it could not
        be written anywhere.
        """
        with self._changing:
            wanted = change(self._state)
            if wanted != self._state:
                # A write that fails may have replaced some copies, so no other gets its number.
                self._generation += 1
                self._write(self._generation, SecurityDocument(wanted, self.secret))
                self._state = wanted
                self._report(wanted)
            return wanted

    def encoded(self) -> bytes:
        """The state and the secret, for another process of this node; it must stay secret.

        A listener may call it.
        """
        return encode_security(SecurityDocument(self._state, self.secret))

    def follow(self, encoded: bytes) -> None:
        """Another process of this node has changed the file, which it owns: do as it says."""
        document = decode_security(encoded)
        with self._changing:
            self.secret = document.secret
            if document.state != self._state:
                self._state = document.state
                self._report(document.state)

    def _report(self, state: SecurityState) -> None:
        """Every listener learns of it, also if one of them fails: the change is durable."""
        failures: list[Exception] = []
        for listener in self._listeners:
            try:
                listener(state)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def copy_to(self, directory: str) -> None:
        """Write the state and the secret into the directory of another store, of mode 0600."""
        with self._changing:
            generation, document = self._generation, SecurityDocument(self._state, self.secret)
        if generation:
            content = encode_document(
                SECURITY_FILE, CheckedDocument(generation, encode_security(document))
            )
            replace_file(self._fs, os.path.join(directory, SECURITY_FILE), content, is_private=True)

    def _write(self, generation: int, document: SecurityDocument) -> None:
        """Durable in at least one directory on return; failures of others are logged."""
        body = encode_security(document)
        content = encode_document(SECURITY_FILE, CheckedDocument(generation, body))
        if len(content) > _BYTES_MAX:  # it could not be read again
            raise ConfigError(
                SECURITY_FILE,
                f"{len(content)} bytes",
                f"users, rules and quotas together may take {_BYTES_MAX} bytes; use prefixed rules "
                "instead of many literal ones",
            )
        failures: list[OSError] = []
        for directory in self.directories:
            path = os.path.join(directory, SECURITY_FILE)
            try:
                replace_file(self._fs, path, content, is_private=True)
            except OSError as error:
                logger.error("could not write %s: %s", path, error)
                failures.append(error)
        if failures and len(failures) == len(self.directories):
            raise failures[0]

    def _read(self) -> tuple[int, SecurityDocument]:
        newest: _Copy | None = None
        failure: FormatError | OSError | None = None
        for directory in self.directories:
            path = os.path.join(directory, SECURITY_FILE)
            try:
                content = read_whole(self._fs, path, limit=_BYTES_MAX)
                found = _Copy(path, *decode_document(SECURITY_FILE, content))
                decode_security(found.body)
            except FileNotFoundError:
                continue
            except FormatError as error:
                logger.error("%s cannot be read: %s", path, error)
                failure = _unreadable(path, error)
            except OSError as error:
                logger.error("%s cannot be read: %s", path, error)
                failure = error
            else:
                newest = found if newest is None else _newer(newest, found)
        if newest is not None:
            if newest.other is not None:
                raise _undecided(newest.path, newest.other)
            return newest.generation, decode_security(newest.body)
        if failure is not None:
            raise failure
        return 0, SecurityDocument(SecurityState(), os.urandom(_SECRET_BYTES))


class _Copy(NamedTuple):
    """A sound copy. `other` is the path of one of the same generation with another content."""

    path: str
    generation: int
    body: bytes
    other: str | None = None


def _newer(one: _Copy, other: _Copy) -> _Copy:
    if one.generation != other.generation:
        return max(one, other, key=lambda copy: copy.generation)
    return one if one.body == other.body else one._replace(other=one.other or other.path)


def _undecided(path: str, other: str) -> FormatError:
    return FormatError(
        f"{path} and {other} are equally new and differ, because the directories were used apart "
        "from each other; move away the one whose users and access rules are not to be in force"
    )


def _unreadable(path: str, error: FormatError) -> FormatError:
    return FormatError(
        f"{error.reason} ({path}); restore the file from a copy, or, to begin without users, "
        "access rules and quotas, move it away",
        position=error.position,
    )
