"""``cordwood quotas``: lists, sets and removes limits on what clients may use."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import say
from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.cli.at.quota_access import QuotaAccess
    from cordwood.security.security_state import QuotaEntity

quotas_app = typer.Typer(
    help="List, set and remove quotas of users, client ids and addresses.", no_args_is_help=True
)

_COLUMNS: Final = (
    Column(name="user", is_whole=True),
    Column(name="client_id", is_whole=True),
    Column(name="ip", is_whole=True),
    Column(name="key", is_whole=True),
    Column(name="limit", is_number=True),
)
_DEFAULT_SHOWN: Final = "<default>"

UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="A user, without User: before it.")
]
ClientOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="A client id; also with --user.")
]
IpOption = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address.")]
DefaultUserOption = Annotated[
    bool, typer.Option("--default-user", help="Each user without a quota of its own.")
]
DefaultClientOption = Annotated[
    bool, typer.Option("--default-client-id", help="Each client id without a quota of its own.")
]
DefaultIpOption = Annotated[
    bool, typer.Option("--default-ip", help="Each address without a quota of its own.")
]


@quotas_app.callback()
def quotas() -> None:
    """List, set and remove quotas of users, client ids and addresses."""


def _opened(at: str | None, *, may_be_new: bool = False) -> "AbstractContextManager[QuotaAccess]":
    from cordwood.cli.at.quota_access import open_quotas

    return open_quotas(parse_target(at, may_be_new=may_be_new))


@quotas_app.command("list")
def list_quotas(*, at: AtOption = None, as_json: JsonOption = False) -> None:
    """List all quotas.

    \b
    Examples:
      cordwood quotas list
      cordwood quotas list --at localhost:9092 --json
    """
    with _opened(at) as access:
        found = access.quotas()
    rows: list[Row] = [
        {**_names(entity, as_json=as_json), "key": key, "limit": _number(limit)}
        for entity, limits in sorted(found.items(), key=lambda item: _order(item[0]))
        for key, limit in sorted(limits.items())
    ]
    output_for(as_json=as_json).table(_COLUMNS, rows)
    if not rows and not as_json:
        say("no quotas yet; set one with `cordwood quotas set`")


@quotas_app.command("set")
def set_quotas(
    limit: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=LIMIT...",
            help="producer_byte_rate, consumer_byte_rate (bytes per second; 10MiB works), "
            "request_percentage, controller_mutation_rate, or for addresses "
            "connection_creation_rate.",
        ),
    ],
    *,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    default_user: DefaultUserOption = False,
    default_client_id: DefaultClientOption = False,
    default_ip: DefaultIpOption = False,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit what a user, a client id, a user's client id, or an address may use.

    A limit that exists is replaced; other limits stay. It is in force at once.

    \b
    Examples:
      cordwood quotas set --user alice producer_byte_rate=10MiB
      cordwood quotas set --default-user --client-id etl request_percentage=25
      cordwood quotas set --default-ip connection_creation_rate=20 --at localhost:9092
    """
    from cordwood.security.quotas.quota_rules import check_limit

    entity = _entity(
        _names_given(user, client_id, ip),
        _defaults_given(default_user, default_client_id, default_ip),
    )
    changes: dict[str, float | None] = {}
    for text in limit:
        key, value = _limit(text)
        try:
            check_limit(entity, key, value)
        except ValueError as error:
            raise ConfigError(key, text.partition("=")[2], str(error)) from error
        changes[key] = value
    with _opened(at, may_be_new=True) as access:
        access.alter(entity, changes)
    _report(entity, changes, as_json=as_json)


@quotas_app.command("remove")
def remove_quotas(
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY...]", help="The limits to remove. Default: all."),
    ] = None,
    *,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    default_user: DefaultUserOption = False,
    default_client_id: DefaultClientOption = False,
    default_ip: DefaultIpOption = False,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove limits of a user, a client id, a user's client id, or an address.

    \b
    Examples:
      cordwood quotas remove --user alice
      cordwood quotas remove --default-user producer_byte_rate --at localhost:9092
    """
    from cordwood.security.quotas.quota_rules import described

    entity = _entity(
        _names_given(user, client_id, ip),
        _defaults_given(default_user, default_client_id, default_ip),
    )
    with _opened(at) as access:
        have = access.quotas().get(entity, {})
        missing = [name for name in key or () if name not in have]
        if missing or not have:
            raise ConfigError(
                "quota", missing[0] if missing else described(entity), "there is no such quota"
            )
        changes: dict[str, float | None] = dict.fromkeys(key or have)
        access.alter(entity, changes)
    _report(entity, changes, as_json=as_json)


# --- options ----------------------------------------------------------------------------------


def _names_given(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: name for kind, name in given.items() if name is not None}


def _defaults_given(user: bool, client_id: bool, ip: bool) -> list[str]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    return [kind for kind, is_given in given.items() if is_given]


def _entity(names: dict[str, str], defaults: list[str]) -> "QuotaEntity":
    from cordwood.security.quotas.quota_rules import entity_of

    for kind in defaults:
        if kind in names:
            raise UsageError(f"Give either --{kind} or --default-{kind}, not both")
    wanted = {**names, **dict.fromkeys(defaults)}
    if not wanted:
        raise UsageError("Say whose quota it is: --user, --client-id, --ip, or --default-user, ...")
    if names.get("user", "").startswith("User:"):
        raise ConfigError("--user", names["user"], "give the name without User: before it")
    try:
        return entity_of(wanted)
    except ValueError as error:
        raise ConfigError("quota", ", ".join(names.values()) or "default", str(error)) from error


def _limit(text: str) -> tuple[str, float]:
    from cordwood.log.rules.config_key import ConfigKey, ConfigKind

    key, equals, value = text.partition("=")
    if not equals or not value:
        raise UsageError(f"{text!r} is not KEY=LIMIT, such as producer_byte_rate=1048576")
    if key.endswith("_byte_rate"):
        rule = ConfigKey(name=key, kind=ConfigKind.SIZE, default_text="1", doc="", minimum=1)
        return key, float(str(rule.parse(value)))
    try:
        return key, float(value)
    except ValueError:
        raise ConfigError(key, value, "must be a number") from None


# --- output -----------------------------------------------------------------------------------


def _report(entity: "QuotaEntity", changes: dict[str, float | None], *, as_json: bool) -> None:
    from cordwood.security.quotas.quota_rules import described

    if as_json:
        limits = {key: _number(limit) for key, limit in changes.items()}
        row = {**_names(entity, as_json=True), "limits": limits}
        output_for(as_json=True).facts((), row)
        return
    for key, limit in changes.items():
        shown = "removed" if limit is None else f"set to {_number(limit)}"
        say(f"{described(entity)}: {key} {shown}")


def _names(entity: "QuotaEntity", *, as_json: bool) -> Row:
    """The default is an empty name in JSON."""
    return {
        name: _DEFAULT_SHOWN if text == "" and not as_json else text
        for name, text in entity._asdict().items()
    }


def _order(entity: "QuotaEntity") -> list[str]:
    return [name or "" for name in entity]


def _number(limit: float | None) -> float | int | None:
    return int(limit) if limit is not None and limit == int(limit) else limit
