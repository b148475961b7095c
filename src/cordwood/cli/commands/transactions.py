"""``cordwood transactions``: lists, describes and aborts transactions, and finds hanging ones."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.completion import complete_topic
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, JsonOption, YesOption
from cordwood.cli.readable_values import shown_time
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import require_confirmation, say

if TYPE_CHECKING:
    from cordwood.cli.at.transaction_access import TransactionAccess
    from cordwood.remote.remote_transactions import OpenTransaction, Place

transactions_app = typer.Typer(
    help="List, describe and abort transactions, and find those that hang.", no_args_is_help=True
)

_LIST_COLUMNS: Final = (
    Column(name="transactional_id", is_whole=True),
    "state",
    Column(name="producer_id", is_number=True),
)
_FACT_COLUMNS: Final = (
    "transactional_id",
    "state",
    "producer_id",
    "producer_epoch",
    "timeout_ms",
    "started",
    "partitions",
)
_OPEN_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    Column(name="partition", is_number=True),
    Column(name="producer_id", is_number=True),
    Column(name="producer_epoch", is_number=True),
    Column(name="start_offset", is_number=True),
    "last_record",
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Transactional id.")]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:PARTITION]",
        autocompletion=complete_topic,
        help="Only this topic or partition.",
    ),
]


@transactions_app.callback()
def transactions() -> None:
    """List, describe and abort transactions, and find those that hang."""


def _opened(at: str | None) -> "AbstractContextManager[TransactionAccess]":
    from cordwood.cli.at.transaction_access import open_transactions

    return open_transactions(parse_target(at))


@transactions_app.command("list")
def list_transactions(
    *,
    at: AtOption = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only this state, as Ongoing; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the transactional ids and the states of their newest transactions.

    \b
    Examples:
      cordwood transactions list --at localhost:9092
      cordwood transactions list --state Ongoing --json
    """
    with _opened(at) as access:
        found = access.listed()
    wanted = {name.lower() for name in state or ()}
    rows: list[Row] = [
        {
            "transactional_id": transaction.transactional_id,
            "state": transaction.state,
            "producer_id": transaction.producer_id,
        }
        for transaction in found
        if not wanted or transaction.state.lower() in wanted
    ]
    output_for(as_json=as_json).table(_LIST_COLUMNS, rows)
    if not rows and not as_json:
        say("no transactional ids" + (" in this state" if wanted else " yet"))


@transactions_app.command("describe")
def describe_transaction(
    transactional_id: IdArgument, *, at: AtOption = None, as_json: JsonOption = False
) -> None:
    """Describe the newest transaction of an id: its state, producer and partitions.

    A transaction that is being completed shows the partitions that have no marker yet.

    \b
    Examples:
      cordwood transactions describe billing-1
      cordwood transactions describe billing-1 --at localhost:9092 --json
    """
    from cordwood.errors import LogError

    with _opened(at) as access:
        found = access.described([transactional_id])
    if not found:
        raise LogError(f"unknown transactional id {transactional_id!r}")
    transaction = found[0]
    start_ms = transaction.start_ms
    places = [f"{topic}:{number}" for topic, number in transaction.partitions or ()]
    row: Row = {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "partitions": places,
    }
    if as_json:
        output_for(as_json=True).facts((), row | {"start_ms": start_ms})
    else:
        started = None if start_ms is None else shown_time(start_ms)
        output_for(as_json=False).facts(_FACT_COLUMNS, row | {"started": started})


@transactions_app.command("abort")
def abort_transaction(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Transactional id.")
    ] = None,
    *,
    at: AtOption = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC:PARTITION",
            autocompletion=complete_topic,
            help="Partition in which a transaction hangs; with --producer.",
        ),
    ] = None,
    producer: Annotated[
        int | None,
        typer.Option("--producer", metavar="PRODUCER-ID", help="Producer of the hanging one."),
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Abort the open transaction of an id. Its producer is fenced: it cannot continue.

    With --topic and --producer, abort a transaction that hangs in one partition: one that no
    transactional id has, as `find-hanging` shows it.

    \b
    Examples:
      cordwood transactions abort billing-1 --at localhost:9092 --yes
      cordwood transactions abort --topic orders:0 --producer 4711 --yes
    """
    if (transactional_id is None) == (topic is None) or (topic is None) != (producer is None):
        raise UsageError("give a transactional id, or --topic with a partition and --producer")
    if transactional_id is not None:
        require_confirmation(f"Abort the transaction of {transactional_id}?", is_given=yes)
        with _opened(at) as access:
            access.abort(transactional_id)
        row: Row = {"transactional_id": transactional_id}
        shown = f"aborted the transaction of {transactional_id}"
    else:
        assert topic is not None
        assert producer is not None
        name, number = _place(topic)
        require_confirmation(
            f"Abort the transaction of producer {producer} in {topic}?", is_given=yes
        )
        with _opened(at) as access:
            _end(access, (name, number), producer)
        row = {"topic": name, "partition": number, "producer_id": producer}
        shown = f"aborted the transaction of producer {producer} in {topic}"
    if as_json:
        output_for(as_json=True).facts((), row)
    else:
        say(shown)


def _end(access: "TransactionAccess", place: "Place", producer: int) -> None:
    from cordwood.cli.at.transaction_access import hanging
    from cordwood.errors import LogError

    found = [t for t in access.open_in([place]) if t.producer_id == producer]
    if not found:
        raise LogError(f"producer {producer} has no open transaction in {place[0]}:{place[1]}")
    if not [t for t in hanging(access, [place]) if t.producer_id == producer]:
        raise LogError(
            f"the transaction of producer {producer} does not hang: a transactional id has it; "
            "abort it by that id"
        )
    access.end(found[0])


@transactions_app.command("find-hanging")
def find_hanging(
    *, at: AtOption = None, topic: TopicOption = None, as_json: JsonOption = False
) -> None:
    """Find transactions that are open in a partition and that no transactional id has.

    Committed readers cannot pass them, and nothing ends them. Exit code 1 if there are any.

    \b
    Examples:
      cordwood transactions find-hanging --at localhost:9092
      cordwood transactions find-hanging --topic orders
    """
    from cordwood.cli.at.transaction_access import hanging

    with _opened(at) as access:
        found = hanging(access, _wanted(access, topic))
    output_for(as_json=as_json).table(_OPEN_COLUMNS, [_row(t, as_json=as_json) for t in found])
    if found:
        raise typer.Exit(1)
    if not as_json:
        say("no transaction hangs")


def _wanted(access: "TransactionAccess", topic: str | None) -> "list[Place]":
    places = access.places()
    if topic is None:
        return places
    name, separator, _ = topic.partition(":")
    if separator:
        return [_place(topic)]
    chosen = [place for place in places if place[0] == name]
    if not chosen:
        from cordwood.errors import UnknownTopicError

        raise UnknownTopicError(name)
    return chosen


def _place(text: str) -> "Place":
    name, separator, number = text.rpartition(":")
    if not separator or not number.isdigit():
        raise UsageError(f"--topic {text}: give a topic and a partition, as orders:0")
    return name, int(number)


def _row(found: "OpenTransaction", *, as_json: bool) -> Row:
    row: Row = {
        "topic": found.place[0],
        "partition": found.place[1],
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "start_offset": found.start_offset,
    }
    if as_json:
        return row | {"last_timestamp_ms": found.last_timestamp_ms}
    return row | {"last_record": shown_time(found.last_timestamp_ms)}
