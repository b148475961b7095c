"""DescribeUserScramCredentials and AlterUserScramCredentials: the users of SCRAM and PLAIN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import ErrorCode, refusal
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn, routes_on
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.security_events import Detail
from cordwood.errors import ConfigError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.security_source import SecuritySource
from cordwood.security.security_state import ScramCredential, ScramMechanism, SecurityState

if TYPE_CHECKING:
    from cordwood.protocol.schemas import user_messages as messages
    from cordwood.security.sasl.user_changes import UserResult

_DENIED: Final = "the principal may not {} users: it needs {} on the cluster"


class UsersHandler:
    """Reads and changes the security file. Called by workers, because changes are synced."""

    def __init__(self, file: SecuritySource) -> None:
        self._file = file

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
            },
        )

    # --- reading -----------------------------------------------------------------------------

    def describe(
        self, context: RequestContext, request: messages.DescribeUserScramCredentialsRequest
    ) -> messages.DescribeUserScramCredentialsResponseDict:
        if not context.may(needs.DESCRIBE_USER_SCRAM_CREDENTIALS):
            code, message = (
                needs.DESCRIBE_USER_SCRAM_CREDENTIALS.code,
                _DENIED.format("describe", "DESCRIBE"),
            )
            return {
                "error_code": code,
                "error_message": message,
                "results": [  # each without its name, as in Kafka
                    {"error_code": code, "error_message": message} for _ in request.users or ()
                ],
            }
        known = _by_user(self._file.state)
        asked = Counter(user.name for user in request.users or ()) or Counter(known.keys())
        return {
            "error_code": ErrorCode.none,
            "results": [
                _described(user, known.get(user, {}), is_repeated=count > 1)
                for user, count in asked.items()
            ],
        }

    # --- changing ----------------------------------------------------------------------------

    def alter(
        self, context: RequestContext, request: messages.AlterUserScramCredentialsRequest
    ) -> messages.AlterUserScramCredentialsResponseDict:
        # Not at the top: it loads OpenSSL, and most brokers have no users.
        from cordwood.security.sasl.user_changes import (
            Deletion,
            Upsertion,
            UserChange,
            UserResult,
            plan_user_change,
        )

        deletions = [Deletion(entry.name, entry.mechanism) for entry in request.deletions]
        upsertions = [
            Upsertion(
                entry.name,
                entry.mechanism,
                entry.iterations,
                bytes(entry.salt),
                bytes(entry.salted_password),
            )
            for entry in request.upsertions
        ]
        users = dict.fromkeys(
            [*(entry.user for entry in deletions), *(entry.user for entry in upsertions)]
        )
        if not context.may(needs.ALTER_USER_SCRAM_CREDENTIALS):
            return _answer(
                UserResult(
                    user,
                    ErrorCode.cluster_authorization_failed,
                    _DENIED.format("alter", "ALTER"),
                )
                for user in users
            )
        planned = UserChange(results=())
        before = after = self._file.state

        def change(state: SecurityState) -> SecurityState:
            nonlocal planned, before
            before = state
            planned = plan_user_change(state, deletions, upsertions)
            return planned.apply(state)

        try:
            after = self._file.change(change)
        except (OSError, ConfigError) as error:
            code, message = refusal(error)
            return _answer(UserResult(user, code, message) for user in users)
        _report(context, users, before, after)
        return _answer(planned.results)


def _report(
    context: RequestContext, users: Iterable[str], before: SecurityState, after: SecurityState
) -> None:
    """Tell the audit log which users have other credentials now, and not what these are."""
    old, new = _by_user(before), _by_user(after)
    for user in users:
        had, has = old.get(user, {}), new.get(user, {})
        if had != has:
            context.changed(
                "DELETE" if not has else "ALTER" if had else "CREATE",
                "USER",
                user,
                old=_iterations(had),
                new=_iterations(has),
            )


def _iterations(credentials: Mapping[ScramMechanism, ScramCredential]) -> dict[str, Detail]:
    return {
        mechanism.mechanism: f"{credential.iterations} iterations"
        for mechanism, credential in credentials.items()
    }


def _by_user(state: SecurityState) -> dict[str, dict[ScramMechanism, ScramCredential]]:
    found: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    for (user, mechanism), credential in sorted(state.credentials.items()):
        found.setdefault(user, {})[mechanism] = credential
    return found


def _described(
    user: str, credentials: dict[ScramMechanism, ScramCredential], *, is_repeated: bool
) -> messages.DescribeUserScramCredentialsResponseResultsDict:
    if is_repeated:
        return {
            "user": user,
            "error_code": ErrorCode.duplicate_resource,
            "error_message": "the user is named more than once",
        }
    if not credentials:
        return {
            "user": user,
            "error_code": ErrorCode.resource_not_found,
            "error_message": "the user has no credentials",
        }
    return {
        "user": user,
        "error_code": ErrorCode.none,
        "credential_infos": [
            {"mechanism": mechanism, "iterations": credential.iterations}
            for mechanism, credential in credentials.items()
        ],
    }


def _answer(results: Iterable[UserResult]) -> messages.AlterUserScramCredentialsResponseDict:
    return {
        "results": [
            {"user": result.user, "error_code": result.code, "error_message": result.message}
            for result in results
        ]
    }
