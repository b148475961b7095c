"""``cordwood users``: lists, adds and removes the users that authenticate with a password."""

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.render import Column, output_for
from cordwood.cli.terminal import say, warn
from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.cli.at.user_access import UserAccess
    from cordwood.security.security_state import ScramMechanism

users_app = typer.Typer(
    help="List, add and remove users and their passwords.", no_args_is_help=True
)

_COLUMNS: Final = (Column(name="user", is_whole=True), "mechanisms")
_PASSWORD_BYTES_MAX: Final = 8 * 1024

UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="User name.")]
MechanismOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        "-m",
        metavar="MECHANISM",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. Default: both.",
    ),
]


@users_app.callback()
def users() -> None:
    """List, add and remove users and their passwords."""


def _opened(at: str | None, *, may_be_new: bool = False) -> "AbstractContextManager[UserAccess]":
    from cordwood.cli.at.user_access import open_users

    return open_users(parse_target(at, may_be_new=may_be_new))


@users_app.command("list")
def list_users(*, at: AtOption = None, as_json: JsonOption = False) -> None:
    """List the users, and the mechanisms and iterations of their passwords.

    \b
    Examples:
      cordwood users list
      cordwood users list --at localhost:9092 --json
    """
    with _opened(at) as access:
        found = access.users()
    rows = [
        {
            "user": name,
            "mechanisms": {kind.mechanism: count for kind, count in sorted(iterations.items())}
            if as_json
            else ", ".join(f"{kind.mechanism} ({n})" for kind, n in sorted(iterations.items())),
        }
        for name, iterations in sorted(found.items())
    ]
    output_for(as_json=as_json).table(_COLUMNS, rows)
    if not found and not as_json:
        say("no users yet; add one with `cordwood users add NAME`")


@users_app.command("add")
def add_user(
    name: UserArgument,
    *,
    at: AtOption = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    mechanism: MechanismOption = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", metavar="COUNT", help="4096 to 16384. Default: 4096."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a user, or set the password of one that exists.

    The command asks for the password, without showing it. On a data directory it works before the
    broker is started for the first time, so that there is somebody who can log in.

    \b
    Examples:
      cordwood users add alice
      cordwood users add alice --at localhost:9092 --password-stdin < password.txt
    """
    from cordwood.security.sasl.scram_credentials import (
        ITERATIONS_MIN,
        check_iterations,
        check_new_password,
        check_user_name,
    )

    wanted = _mechanisms(mechanism)
    count = ITERATIONS_MIN if iterations is None else iterations
    check_user_name(name)
    check_iterations(count)
    target = parse_target(at, may_be_new=True)  # a wrong one is reported before the question
    password = _read_password(name, from_stdin=password_stdin)
    check_new_password(password)
    from cordwood.cli.at.user_access import open_users

    with open_users(target) as access:
        before = access.users().get(name, {})
        for kind in wanted:
            access.put(name, kind, password, iterations=count)
    others = sorted(kind.mechanism for kind in before if kind not in wanted)
    if as_json:
        row = {
            "user": name,
            "mechanisms": [kind.mechanism for kind in wanted],
            "is_new": not before,
        }
        output_for(as_json=True).facts((), row)
    else:
        shown = ", ".join(kind.mechanism for kind in wanted)
        say(f"{'changed the password of' if before else 'added'} {name} for {shown}")
    if others:
        warn(f"{name} keeps the password that it had for {', '.join(others)}")


@users_app.command("remove")
def remove_user(
    name: UserArgument,
    *,
    at: AtOption = None,
    mechanism: MechanismOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a user, or one of its mechanisms.

    Clients of the user that are connected stay connected.

    \b
    Examples:
      cordwood users remove alice
      cordwood users remove alice --mechanism SCRAM-SHA-256 --at localhost:9092
    """
    wanted = _mechanisms(mechanism)
    with _opened(at) as access:
        present = access.users().get(name)
        if not present:
            raise ConfigError("user", name, "does not exist")
        removed = [kind for kind in wanted if mechanism or kind in present]
        for kind in removed:
            access.remove(name, kind)
    names = [kind.mechanism for kind in removed]
    if as_json:
        output_for(as_json=True).facts((), {"user": name, "removed": names})
    else:
        say(f"removed {name} for {', '.join(names)}")


def _mechanisms(texts: list[str] | None) -> "list[ScramMechanism]":
    from cordwood.security.security_state import ScramMechanism

    known = {kind.mechanism: kind for kind in ScramMechanism}
    found: list[ScramMechanism] = []
    for text in texts or known:
        kind = known.get(text.upper())
        if kind is None:
            raise ConfigError(
                "--mechanism",
                text,
                f"must be one of {', '.join(known)}; the mechanism by which this command connects "
                "is -X sasl.mechanism=NAME",
            )
        if kind not in found:
            found.append(kind)
    return found


def is_terminal() -> bool:
    return sys.stdin.isatty()


def _read_password(name: str, *, from_stdin: bool) -> str:
    if not from_stdin:
        if not is_terminal():
            raise UsageError("Not a terminal; pass --password-stdin and pipe the password in")
        asked = f"Password of {name}"
        return str(typer.prompt(asked, hide_input=True, confirmation_prompt=True, err=True))
    raw = sys.stdin.buffer.read(_PASSWORD_BYTES_MAX)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UsageError("The password on standard input is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")
