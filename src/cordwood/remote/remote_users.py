"""Users of a broker: listing them, setting passwords, removing them.

A password does not leave this process. What is sent is what SCRAM makes of it, which is as good as
the password for whoever reads it: send it over TLS.
"""

from __future__ import annotations

import secrets
from typing import Final

from cordwood.errors import ConfigError
from cordwood.protocol.error_code import ErrorCode
from cordwood.remote import api_calls
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    check_iterations,
    check_new_password,
    check_user_name,
    salt_password,
)
from cordwood.security.security_state import ScramMechanism

_MECHANISMS: Final = {int(mechanism): mechanism for mechanism in ScramMechanism}


class RemoteUsers:
    """Reads and changes users. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    def users(self) -> dict[str, dict[ScramMechanism, int]]:
        """All users by name, with the iterations of each of their mechanisms."""
        answer = self._cluster.admin(api_calls.DESCRIBE_USER_SCRAM_CREDENTIALS({"users": None}))
        check(answer.error_code, "list users", message=answer.error_message)
        found = {}
        for result in sorted(answer.results, key=lambda result: result.user):
            if result.error_code == ErrorCode.resource_not_found:
                continue  # removed meanwhile
            check(result.error_code, f"describe user {result.user}", message=result.error_message)
            found[result.user] = {
                _MECHANISMS[info.mechanism]: info.iterations
                for info in result.credential_infos
                if info.mechanism in _MECHANISMS
            }
        return found

    def put(
        self,
        name: str,
        mechanism: ScramMechanism,
        password: str,
        *,
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Set the password of a user, who is added if missing."""
        check_user_name(name)
        check_new_password(password)
        check_iterations(iterations)
        salt = secrets.token_bytes(SALT_BYTES)
        answer = self._cluster.admin(
            api_calls.ALTER_USER_SCRAM_CREDENTIALS(
                {
                    "upsertions": [
                        {
                            "name": name,
                            "mechanism": mechanism,
                            "iterations": iterations,
                            "salt": salt,
                            "salted_password": salt_password(mechanism, password, salt, iterations),
                        }
                    ]
                }
            )
        )
        [result] = answer.results
        check(result.error_code, f"add user {name!r}", message=result.error_message)

    def remove(self, name: str, mechanism: ScramMechanism) -> None:
        """Remove one mechanism of a user, who is gone after the last one."""
        answer = self._cluster.admin(
            api_calls.ALTER_USER_SCRAM_CREDENTIALS(
                {"deletions": [{"name": name, "mechanism": mechanism}]}
            )
        )
        [result] = answer.results
        if result.error_code == ErrorCode.resource_not_found:
            raise ConfigError("user", name, f"has no password for {mechanism.mechanism}")
        check(result.error_code, f"remove user {name!r}", message=result.error_message)
