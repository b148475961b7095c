"""Settings that were made while a broker ran: of the broker and of single groups.

Every data directory has a copy, `cordwood-configs`: a checked document whose body is JSON.

    {"broker": {"": {"log.retention.ms": "1000"}, "1": {...}}, "group": {"billing": {...}}}

The newest sound copy counts. Each change replaces all copies.
"""

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.errors import ConfigError, FormatError
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    encode_document,
)
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem, read_whole, replace_file

logger = logging.getLogger(__name__)

CONFIGS_FILE: Final = "cordwood-configs"
_BYTES_MAX: Final = 16 * MIB

Texts = dict[str, str]  # values by key


class SavedConfigs:
    """Keys and values as text, by kind and name of their owner. Any thread may call it."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs = fs
        self._directories = directories
        self._lock = threading.Lock()
        self._generation, self._saved = self._read()

    def of(self, kind: str, name: str) -> Mapping[str, str]:
        return self._saved.get(kind, {}).get(name, {})

    def names(self, kind: str) -> list[str]:
        """The names that have settings, in order."""
        return sorted(self._saved.get(kind, {}))

    def put(self, kind: str, name: str, texts: Mapping[str, str]) -> None:
        """Replace the settings of one owner. Durable on return; raises `OSError` if it is not.

        Raises `ConfigError`, and changes nothing, if all settings together become too large.
        """
        with self._lock:
            owners = dict(self._saved.get(kind, {}))
            owners.pop(name, None)
            if texts:
                owners[name] = dict(texts)
            saved = {**self._saved, kind: owners}
            self._write(self._generation + 1, saved)
            self._generation, self._saved = self._generation + 1, saved

    def copy_to(self, directory: str) -> None:
        """Write the settings into the directory of another store. Durable on return."""
        with self._lock:
            generation, saved = self._generation, self._saved
        if generation:
            body = json.dumps(saved, sort_keys=True).encode()
            content = encode_document(CONFIGS_FILE, CheckedDocument(generation, body))
            replace_file(self._fs, os.path.join(directory, CONFIGS_FILE), content)

    def _write(self, generation: int, saved: Mapping[str, Mapping[str, Texts]]) -> None:
        """Durable in at least one directory on return; failures of others are logged."""
        body = json.dumps(saved, sort_keys=True).encode()
        content = encode_document(CONFIGS_FILE, CheckedDocument(generation, body))
        if len(content) > _BYTES_MAX:  # it could not be read again
            raise ConfigError(
                CONFIGS_FILE,
                f"{len(content)} bytes",
                f"all settings together may take {_BYTES_MAX} bytes; remove those of groups that "
                "are not used any more",
            )
        failures: list[OSError] = []
        for directory in self._directories:
            path = os.path.join(directory, CONFIGS_FILE)
            try:
                replace_file(self._fs, path, content)
            except OSError as error:
                logger.warning("could not write %s: %s", path, error)
                failures.append(error)
        if failures and len(failures) == len(self._directories):
            raise failures[0]

    def _read(self) -> tuple[int, dict[str, dict[str, Texts]]]:
        newest: tuple[int, dict[str, dict[str, Texts]]] = (0, {})
        for directory in self._directories:
            path = os.path.join(directory, CONFIGS_FILE)
            try:
                found = parse_configs(read_whole(self._fs, path, limit=_BYTES_MAX))
            except FileNotFoundError:
                continue
            except (FormatError, OSError) as error:
                logger.warning("ignoring %s, which cannot be read: %s", path, error)
                continue
            newest = max(newest, found, key=lambda read: read[0])
        return newest


def parse_configs(content: bytes) -> tuple[int, dict[str, dict[str, Texts]]]:
    """The generation and the settings. Raises `FormatError` unless the file is sound."""
    generation, body = decode_document(CONFIGS_FILE, content)
    try:
        saved = json.loads(body)
        checked = {
            str(kind): {
                str(name): {str(key): str(value) for key, value in texts.items()}
                for name, texts in owners.items()
            }
            for kind, owners in saved.items()
        }
    except (ValueError, AttributeError) as error:
        raise FormatError(f"the body of the {CONFIGS_FILE} file cannot be read") from error
    return generation, checked
