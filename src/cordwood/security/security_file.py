"""The file that keeps users, access rules and quotas: `cordwood-security`.

Every data directory has a copy, of mode 0600: a checked document, see `security_document`. The
newest sound copy counts. Each change replaces all copies.

A store whose copies all exist and cannot be read is not opened: without its rules it would let
everybody in, or nobody.
"""

import logging
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Final

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
from cordwood.security.security_state import SecurityState
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

_BYTES_MAX: Final = 64 * MIB
_SECRET_BYTES: Final = 32

Change = Callable[[SecurityState], SecurityState]


class SecurityFile:
    """The present state, and its changes. Any thread may call it; changes take turns."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        """Raises `FormatError` or `OSError` if there are copies and none can be read."""
        self._fs = fs
        self._directories = directories
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
        for directory in self._directories:
            path = os.path.join(directory, SECURITY_FILE)
            try:
                replace_file(self._fs, path, content, is_private=True)
            except OSError as error:
                logger.error("could not write %s: %s", path, error)
                failures.append(error)
        if failures and len(failures) == len(self._directories):
            raise failures[0]

    def _read(self) -> tuple[int, SecurityDocument]:
        newest = (0, SecurityDocument(SecurityState(), secrets.token_bytes(_SECRET_BYTES)))
        failure: FormatError | OSError | None = None
        for directory in self._directories:
            path = os.path.join(directory, SECURITY_FILE)
            try:
                generation, body = decode_document(
                    SECURITY_FILE, read_whole(self._fs, path, limit=_BYTES_MAX)
                )
                newest = max(newest, (generation, decode_security(body)), key=lambda read: read[0])
            except FileNotFoundError:
                continue
            except FormatError as error:
                logger.error("%s cannot be read: %s", path, error)
                failure = _unreadable(path, error)
            except OSError as error:
                logger.error("%s cannot be read: %s", path, error)
                failure = error
        if failure is not None and not newest[0]:
            raise failure
        return newest


def _unreadable(path: str, error: FormatError) -> FormatError:
    return FormatError(
        f"{error.reason} ({path}); restore the file from a copy, or, to begin without users, "
        "access rules and quotas, move it away",
        position=error.position,
    )
