"""The users of a target: of a broker, or of a data directory that no broker serves."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Protocol

from cordwood.cli.at.directory_security import open_security
from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target
from cordwood.errors import ConfigError
from cordwood.security.sasl.scram_credentials import (
    SALT_BYTES,
    check_iterations,
    check_new_password,
    check_user_name,
    credential_of,
    salt_password,
)
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import (
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from cordwood.value_class import replace

Users = Mapping[str, Mapping[ScramMechanism, int]]  # iterations by user and mechanism


class UserAccess(Protocol):
    """Reads and changes users."""

    def users(self) -> Users: ...

    def put(
        self, name: str, mechanism: ScramMechanism, password: str, *, iterations: int
    ) -> None: ...

    def remove(self, name: str, mechanism: ScramMechanism) -> None:
        """Raises `ConfigError` if the user does not have it."""
        ...


class _DirectoryUsers:
    def __init__(self, file: SecurityFile) -> None:
        self._file = file

    def users(self) -> Users:
        found: dict[str, dict[ScramMechanism, int]] = {}
        for (user, mechanism), credential in sorted(self._file.state.credentials.items()):
            found.setdefault(user, {})[mechanism] = credential.iterations
        return found

    def put(self, name: str, mechanism: ScramMechanism, password: str, *, iterations: int) -> None:
        check_user_name(name)
        check_new_password(password)
        check_iterations(iterations)
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salt_password(mechanism, password, salt, iterations)
        credential = credential_of(mechanism, salted, salt, iterations)
        owner = UserCredential(name, mechanism)
        self._file.change(
            lambda state: replace(state, credentials={**state.credentials, owner: credential})
        )

    def remove(self, name: str, mechanism: ScramMechanism) -> None:
        owner = UserCredential(name, mechanism)

        def change(state: SecurityState) -> SecurityState:
            if owner not in state.credentials:
                raise ConfigError("user", name, f"has no password for {mechanism.mechanism}")
            kept = {other: found for other, found in state.credentials.items() if other != owner}
            return replace(state, credentials=kept)

        self._file.change(change)


@contextlib.contextmanager
def open_users(target: Target) -> Iterator[UserAccess]:
    """The users of the target. A directory is created if missing, and locked meanwhile."""
    match target:
        case DirectoryTarget():
            with open_security(target) as file:
                yield _DirectoryUsers(file)
        case BrokerTarget():
            from cordwood.cli.at.broker_backend import BrokerBackend
            from cordwood.remote.remote_users import RemoteUsers

            with BrokerBackend(target) as backend:
                yield RemoteUsers(backend.cluster)
