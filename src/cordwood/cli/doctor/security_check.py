"""Checks how a broker would be protected: listeners, certificates, secrets, users and rules."""

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cordwood.broker.config.security_config import ListenerConfig
from cordwood.broker.security.tls_material import read_key
from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.readable_values import counted
from cordwood.errors import ConfigError, FormatError
from cordwood.format.file_names import SECURITY_FOLDER
from cordwood.security.principal import USER, Principal
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import SecurityState
from cordwood.storage.files import RealFileSystem

if TYPE_CHECKING:
    from cordwood.settings import Settings

_AREA: Final = "security"
_EXPIRES_SOON_DAYS: Final = 30
_SHOWN: Final = 5
_PUBLIC: Final = frozenset({"ca.pem", "README.txt"})  # of the folder of `serve --secure`
_BY_PASSWORD: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


def check_security(
    settings: "Settings", paths: Sequence[str], now: datetime | None = None
) -> Iterator[Finding]:
    """Findings on the configuration and, if there are data directories, on users and rules."""
    moment = now or datetime.now(UTC)
    yield _listeners(settings)
    for listener in settings.security.listeners:
        if listener.tls is not None:
            yield _certificate(listener, moment)
    yield from _open_files(settings, paths)
    if not any(os.path.isdir(path) for path in paths):
        return
    try:
        state = SecurityFile(RealFileSystem(), [p for p in paths if os.path.isdir(p)]).state
    except (FormatError, OSError) as error:
        yield _found("users", str(error), Verdict.PROBLEM, "restore cordwood-security from a copy")
        return
    yield from check_users(settings, state)


def _listeners(settings: "Settings") -> Finding:
    security = settings.security
    insecure = ", ".join(str(each.listener) for each in security.insecure_listeners)
    if not insecure:
        shown = ", ".join(str(each.listener) for each in security.listeners)
        return _found("listeners", shown)
    if settings.broker.insecure_listeners_allowed:
        return _found(
            "listeners",
            f"{insecure}: everybody who reaches it can read, write and delete everything",
            Verdict.WARNING,
            "protect it with `cordwood serve --secure`, unless everybody on its network may",
        )
    return _found(
        "listeners",
        f"{insecure}: clients do not authenticate",
        Verdict.PROBLEM,
        "`cordwood serve` would not start; use --secure, --host 127.0.0.1 or --insecure",
    )


def _certificate(listener: ListenerConfig, now: datetime) -> Finding:
    assert listener.tls is not None
    name = f"certificate of {listener.name}"
    try:
        material = read_key(listener.tls)
    except ConfigError as error:
        return _found(name, str(error), Verdict.PROBLEM, "`cordwood serve` would not start")
    certificate = material.certificate
    days = (certificate.not_after - now).total_seconds() / 86_400
    value = f"{certificate.subject}, ends on {certificate.not_after:%Y-%m-%d}"
    renew = "renew it; `cordwood serve --secure` renews its own"
    if days < 0:
        return _found(name, f"{value}: it has expired", Verdict.PROBLEM, renew)
    if certificate.not_before > now:
        return _found(name, f"{value}: not valid yet", Verdict.PROBLEM, "check the clock")
    if days < _EXPIRES_SOON_DAYS:
        return _found(name, f"{value}, in {int(days)} days", Verdict.WARNING, renew)
    return _found(name, value)


def _open_files(settings: "Settings", paths: Sequence[str]) -> Iterator[Finding]:
    """Files with secrets that every user of the machine can read."""
    named = list(settings.open_secrets)
    for listener in settings.security.listeners:
        if listener.tls is not None and listener.tls.ssl_keystore_location is not None:
            named.append(listener.tls.ssl_keystore_location)
    for path in paths:
        folder = os.path.join(path, SECURITY_FOLDER)
        if os.path.isdir(folder) and os.access(folder, os.R_OK):
            named += [os.path.join(folder, n) for n in os.listdir(folder) if n not in _PUBLIC]
        named.append(os.path.join(path, "cordwood-security"))
    readable = [path for path in dict.fromkeys(named) if _is_open(path)]
    if readable:
        yield _found(
            "secrets",
            f"every user can read {', '.join(readable[:_SHOWN])}",
            Verdict.WARNING,
            f"chmod 600 {' '.join(readable[:_SHOWN])}",
        )


def _is_open(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


# --- users and rules ---------------------------------------------------------------------------


def check_users(settings: "Settings", state: SecurityState) -> Iterator[Finding]:
    """Whether somebody can log in, and may do something afterwards."""
    security = settings.security
    users = {owner.user for owner in state.credentials}
    mechanisms = {m for each in security.listeners if each.sasl for m in each.sasl.mechanisms}
    is_authenticated = any(each.is_authenticated for each in security.listeners)
    has_others = bool(mechanisms - _BY_PASSWORD) or any(
        each.tls is not None and each.tls.ssl_client_auth != "none" for each in security.listeners
    )
    in_jaas = any(each.sasl and each.sasl.keys.sasl_jaas_config for each in security.listeners)
    if users or mechanisms:
        is_locked = bool(mechanisms & _BY_PASSWORD) and not (users or has_others or in_jaas)
        yield _found(
            "users",
            counted(len(users), "user"),
            Verdict.PROBLEM if is_locked else Verdict.OK,
            "nobody can log in; add a user: `cordwood users add NAME`" if is_locked else "",
        )
    access = security.access
    if is_authenticated and not access.has_authorizer:
        yield _found(
            "rules",
            "none: every user may do everything",
            Verdict.NOTE,
            "set authorizer.class.name=standard and super.users to have access rules",
        )
    if not access.has_authorizer:
        return
    supers = {p.name for p in access.super_principals if p.kind == USER}
    if is_authenticated and not (has_others or in_jaas):
        yield from _unknown_super_users(sorted(supers - users))
    named = {rule.principal for rule in state.rules}
    if str(Principal(USER, "*")) not in named and not access.allow_everyone_if_no_acl_found:
        idle = sorted(n for n in users - supers if str(Principal(USER, n)) not in named)
        yield from _users_without_rules(idle)


def _unknown_super_users(names: Sequence[str]) -> Iterator[Finding]:
    if names:
        yield _found(
            "super users",
            f"{_some(names)}: there is no such user",
            Verdict.WARNING,
            "add it, or take it out of super.users: the next user of that name may do everything",
        )


def _users_without_rules(names: Sequence[str]) -> Iterator[Finding]:
    if names:
        yield _found(
            "rules",
            f"{_some(names)}: no rule allows anything",
            Verdict.NOTE,
            "`cordwood acls add --help` shows how to allow something, if that is not meant",
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _found(name: str, value: str, verdict: Verdict = Verdict.OK, advice: str = "") -> Finding:
    return Finding(area=_AREA, name=name, value=value, verdict=verdict, advice=advice)
