"""``cordwood acls``: lists, adds and removes access rules."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.completion import complete_group, complete_topic
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, DryRunOption, JsonOption, YesOption
from cordwood.cli.readable_values import counted
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import require_confirmation, say
from cordwood.value_class import replace

if TYPE_CHECKING:
    from cordwood.security.access.acl_wish import AclWish
    from cordwood.security.security_state import AclRule

acls_app = typer.Typer(help="List, add and remove access rules.", no_args_is_help=True)

_COLUMNS: Final = (
    "permission",
    Column(name="principal", is_whole=True),
    "operation",
    "resource",
    "pattern",
    Column(name="name", is_whole=True),
    "host",
)

_Names = list[str] | None
AllowOption = Annotated[
    _Names,
    typer.Option(
        "--allow-principal", metavar="TYPE:NAME", help="Allow; repeatable. User:* is all."
    ),
]
DenyOption = Annotated[
    _Names, typer.Option("--deny-principal", metavar="TYPE:NAME", help="Deny; repeatable.")
]
AllowHostOption = Annotated[
    _Names, typer.Option("--allow-host", metavar="IP", help="Allow from here only; repeatable.")
]
DenyHostOption = Annotated[
    _Names, typer.Option("--deny-host", metavar="IP", help="Deny from here only; repeatable.")
]
OperationOption = Annotated[
    _Names,
    typer.Option(
        "--operation",
        metavar="NAME",
        help="Operation, such as read or describe-configs; repeatable.",
    ),
]
TopicOption = Annotated[
    _Names,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        autocompletion=complete_topic,
        help="Topic; * is all. Repeatable.",
    ),
]
GroupOption = Annotated[
    _Names,
    typer.Option(
        "--group",
        metavar="GROUP",
        autocompletion=complete_group,
        help="Group; * is all. Repeatable.",
    ),
]
TransactionalIdOption = Annotated[
    _Names, typer.Option("--transactional-id", metavar="ID", help="Transactional id; repeatable.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PatternOption = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="literal, or prefixed: the names begin so. To list and remove also any, and match: "
        "the rules that count for a resource of that name.",
    ),
]


@acls_app.callback()
def acls() -> None:
    """List, add and remove access rules."""


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """Report a rule that cannot be as a wrong command line."""
    from cordwood.security.access.acl_filter import InvalidRuleError

    try:
        yield
    except InvalidRuleError as error:
        raise UsageError(str(error)) from error


def _resources(
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    resource_pattern_type: PatternOption = "literal",
) -> "AclWish":
    """Which resources the rules are about."""
    from cordwood.protocol.acl_codes import AclPattern
    from cordwood.security.access.acl_text import parse_number
    from cordwood.security.access.acl_wish import AclWish

    return AclWish(
        topics=tuple(topic or ()),
        groups=tuple(group or ()),
        transactional_ids=tuple(transactional_id or ()),
        is_cluster=cluster,
        pattern=parse_number(AclPattern, resource_pattern_type),
    )


def _principals(
    wish: "AclWish",
    *,
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    allow_host: AllowHostOption = None,
    deny_host: DenyHostOption = None,
    operation: OperationOption = None,
) -> "AclWish":
    """Who may do what, added to `wish`."""
    from cordwood.protocol.acl_codes import AclOperation
    from cordwood.security.access.acl_text import parse_number

    return replace(
        wish,
        allowed=tuple(allow_principal or ()),
        denied=tuple(deny_principal or ()),
        allowed_hosts=tuple(allow_host or ()),
        denied_hosts=tuple(deny_host or ()),
        operations=tuple(parse_number(AclOperation, text) for text in operation or ()),
    )


_OF_RESOURCES: Final = tuple(signature(_resources).parameters.values())
_OF_PRINCIPALS: Final = tuple(signature(_principals).parameters.values())[1:]


def _about_rules(
    *, pattern: str = "literal", has_principals: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that describe rules; it gets them as its `wish`.

    They come after ``--at``. Typer reads them from the signature.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command)
        at, *others = (each for each in own.parameters.values() if each.name != "wish")
        principals = _OF_PRINCIPALS if has_principals else ()
        resources = [
            each.replace(default=pattern) if each.name == "resource_pattern_type" else each
            for each in _OF_RESOURCES
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            with _usage():
                wish = _resources(**{each.name: given.pop(each.name) for each in resources})
                wish = _principals(wish, **{each.name: given.pop(each.name) for each in principals})
            command(wish=wish, **given)

        parameters = [at, *principals, *resources, *others]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return add


@acls_app.command("list")
@_about_rules(pattern="any", has_principals=False)
def list_rules(
    *,
    at: AtOption = None,
    wish: "AclWish",
    principal: Annotated[
        _Names, typer.Option("--principal", metavar="TYPE:NAME", help="Only of these; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List access rules.

    \b
    Examples:
      cordwood acls list --at localhost:9092
      cordwood acls list --topic orders --resource-pattern-type match
    """
    from cordwood.cli.at.access_rules import open_rules

    with open_rules(parse_target(at)) as rules:
        found = [
            rule
            for rule in rules.find(wish.filters())
            if not principal or rule.principal in principal
        ]
    output_for(as_json=as_json).table(_COLUMNS, [_row(rule) for rule in found])
    if not found and not as_json:
        say("there are no such access rules")


@acls_app.command("add")
@_about_rules()
def add_rules(
    *,
    at: AtOption = None,
    wish: "AclWish",
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer of --topic needs.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer of --topic in --group needs.")
    ] = False,
    from_list: Annotated[
        str | None,
        typer.Option(
            "--from-list", metavar="FILE", help="Rules from `kafka-acls --list`; - is stdin."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add access rules. Without --operation they are about all operations.

    \b
    Examples:
      cordwood acls add --allow-principal User:alice --producer --topic orders
      cordwood acls add --allow-principal User:bob --consumer --topic orders --group billing
      cordwood acls add --deny-principal User:eve --deny-host 10.0.0.9 --topic '*'
      kafka-acls --bootstrap-server kafka:9092 --list | cordwood acls add --from-list -
    """
    from cordwood.cli.at.access_rules import open_rules

    with _usage():
        if from_list is not None:
            if wish.allowed or wish.denied:
                raise UsageError("--from-list has its own principals")
            wanted = _read_list(from_list)
        else:
            wanted = replace(wish, is_producer=producer, is_consumer=consumer).rules()
    with open_rules(parse_target(at, may_be_new=not dry_run)) as rules:
        if not dry_run:
            rules.create(wanted)
    output_for(as_json=as_json).table(_COLUMNS, [_row(rule) for rule in wanted])
    if dry_run:
        say("dry run: nothing was changed")
    elif not as_json:
        say(f"added {counted(len(wanted), 'access rule')}")


@acls_app.command("remove")
@_about_rules()
def remove_rules(
    *,
    at: AtOption = None,
    wish: "AclWish",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the access rules that all given options match. What is not given matches everything.

    \b
    Examples:
      cordwood acls remove --allow-principal User:alice --topic orders --dry-run
      cordwood acls remove --topic orders --resource-pattern-type any --yes
    """
    from cordwood.cli.at.access_rules import open_rules

    with open_rules(parse_target(at)) as rules:
        found = rules.find(wish.filters())
        output_for(as_json=as_json).table(_COLUMNS, [_row(rule) for rule in found])
        if not found:
            say("there are no such access rules")
            return
        if dry_run:
            say("dry run: nothing was changed")
            return
        require_confirmation(f"remove {counted(len(found), 'access rule')}?", is_given=yes)
        rules.delete(found)
    if not as_json:
        say(f"removed {counted(len(found), 'access rule')}")


def _read_list(path: str) -> "list[AclRule]":
    from cordwood.security.access.acl_text import parse_kafka_list

    if path == "-":
        return parse_kafka_list(sys.stdin)
    with open(path, encoding="utf-8") as lines:
        return parse_kafka_list(lines)


def _row(rule: "AclRule") -> Row:
    return {
        "permission": rule.permission.name,
        "principal": rule.principal,
        "operation": rule.operation.name,
        "resource": rule.resource.name,
        "pattern": rule.pattern.name,
        "name": rule.name,
        "host": rule.host,
    }
