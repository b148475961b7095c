"""Changes of users, as Kafka makes them: an entry that is wrong fails its user, and no other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cordwood.errors import ConfigError
from cordwood.protocol.error_code import ErrorCode
from cordwood.security.sasl.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    check_user_name,
    credential_of,
    digest_size,
)
from cordwood.security.security_state import (
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from cordwood.value_class import dataclass, field, replace


class Deletion(NamedTuple):
    """Remove a credential. `mechanism` is the protocol's number."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """Add or replace a credential; the client has salted the password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class UserResult(NamedTuple):
    """How the change of one user ended."""

    user: str
    code: ErrorCode = ErrorCode.none
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """What a request comes to, for one state."""

    results: Sequence[UserResult]
    upserted: Mapping[UserCredential, ScramCredential] = field(default_factory=dict)
    deleted: frozenset[UserCredential] = frozenset()

    def apply(self, state: SecurityState) -> SecurityState:
        if not (self.upserted or self.deleted):
            return state
        kept = {
            owner: credential
            for owner, credential in state.credentials.items()
            if owner not in self.deleted
        }
        return replace(state, credentials={**kept, **self.upserted})


def plan_user_change(
    state: SecurityState, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> UserChange:
    """Who is changed, and how; who is not, and why. One result for each user."""
    entries: list[Deletion | Upsertion] = [*deletions, *upsertions]
    named = Counter(entry.user for entry in entries)
    results: dict[str, UserResult] = {}
    upserted: dict[UserCredential, ScramCredential] = {}
    deleted: set[UserCredential] = set()
    for entry in entries:
        if entry.user in results:
            continue
        if isinstance(entry, Deletion):
            refusal = _why_not_deleted(state, entry)
        else:
            refusal = _why_not_upserted(entry)
        if refusal is None and named[entry.user] > 1:
            refusal = UserResult(
                entry.user,
                ErrorCode.duplicate_resource,
                "a user can be changed only once in a request",
            )
        if refusal is None and isinstance(entry, Upsertion):
            mechanism = ScramMechanism(entry.mechanism)
            upserted[UserCredential(entry.user, mechanism)] = credential_of(
                mechanism, entry.salted_password, entry.salt, entry.iterations
            )
        elif refusal is None:
            deleted.add(UserCredential(entry.user, ScramMechanism(entry.mechanism)))
        results[entry.user] = refusal or UserResult(entry.user)
    return UserChange(
        results=tuple(results.values()), upserted=upserted, deleted=frozenset(deleted)
    )


def _why_not_deleted(state: SecurityState, entry: Deletion) -> UserResult | None:
    refusal = _why_not_named(entry.user, entry.mechanism)
    if refusal is not None:
        return refusal
    if UserCredential(entry.user, ScramMechanism(entry.mechanism)) not in state.credentials:
        return UserResult(
            entry.user, ErrorCode.resource_not_found, "the user has no such credential"
        )
    return None


def _why_not_upserted(entry: Upsertion) -> UserResult | None:
    refusal = _why_not_named(entry.user, entry.mechanism)
    if refusal is not None:
        return refusal
    try:
        check_user_name(entry.user)
    except ConfigError as error:
        return _unacceptable(entry.user, str(error))
    if not ITERATIONS_MIN <= entry.iterations <= ITERATIONS_MAX:
        return _unacceptable(
            entry.user,
            f"{entry.iterations} iterations are not in {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        )
    if not 0 < len(entry.salt) <= SALT_BYTES_MAX:
        return _unacceptable(entry.user, f"the salt must have 1 to {SALT_BYTES_MAX} bytes")
    size = digest_size(ScramMechanism(entry.mechanism))
    if len(entry.salted_password) != size:
        return _unacceptable(entry.user, f"the salted password must have {size} bytes")
    return None


def _why_not_named(user: str, mechanism: int) -> UserResult | None:
    if not user:
        return _unacceptable(user, "the user name must not be empty")
    if mechanism not in set(ScramMechanism):
        return UserResult(
            user, ErrorCode.unsupported_sasl_mechanism, f"unknown SCRAM mechanism {mechanism}"
        )
    return None


def _unacceptable(user: str, reason: str) -> UserResult:
    return UserResult(user, ErrorCode.unacceptable_credential, reason)
