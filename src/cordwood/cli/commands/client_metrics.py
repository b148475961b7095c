"""``cordwood client-metrics``: which metrics clients send to a broker, and how often."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import BrokerTarget, parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import say
from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.remote.remote_client_metrics import RemoteClientMetrics

client_metrics_app = typer.Typer(
    help="List, set and remove subscriptions to the metrics of clients.", no_args_is_help=True
)

_COLUMNS: Final = (
    Column(name="name", is_whole=True),
    Column(name="metrics", is_whole=True),
    Column(name="interval_ms", is_number=True),
    Column(name="match", is_whole=True),
)
_KEYS: Final = ("metrics", "interval.ms", "match")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]


@client_metrics_app.callback()
def client_metrics() -> None:
    """List, set and remove subscriptions to the metrics of clients."""


@contextmanager
def _opened(at: str | None) -> "Iterator[RemoteClientMetrics]":
    from cordwood.cli.at.broker_backend import BrokerBackend
    from cordwood.remote.remote_client_metrics import RemoteClientMetrics

    target = parse_target(at)
    if not isinstance(target, BrokerTarget):
        raise UsageError(f"{target} is a directory; clients send metrics to a broker: pass --at")
    with BrokerBackend(target) as backend:
        yield RemoteClientMetrics(backend.cluster)


@client_metrics_app.command("list")
def list_subscriptions(*, at: AtOption = None, as_json: JsonOption = False) -> None:
    """List all subscriptions.

    \b
    Examples:
      cordwood client-metrics list --at localhost:9092
      cordwood client-metrics list --at localhost:9092 --json
    """
    with _opened(at) as access:
        found = access.subscriptions()
    rows: list[Row] = [
        {
            "name": name,
            "metrics": keys["metrics"],
            "interval_ms": int(keys["interval.ms"]),
            "match": keys["match"],
        }
        for name, keys in sorted(found.items())
    ]
    output_for(as_json=as_json).table(_COLUMNS, rows)
    if not rows and not as_json:
        say("no subscriptions yet; add one with `cordwood client-metrics set`")


@client_metrics_app.command("set")
def set_subscription(
    name: NameArgument,
    *,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="PREFIXES", help="Prefixes of metric names, with commas; *: all."
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="TIME", help="How often: 100 ms to an hour. 30s works."),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            "--match",
            metavar="SELECTOR=PATTERN,...",
            help="Which clients, for example client_id=till-.*; empty: every client.",
        ),
    ] = None,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have clients send metrics, which /metrics of the broker then shows.

    A subscription that exists is changed; keys that are not given stay.

    \b
    Examples:
      cordwood client-metrics set all --metrics '*' --interval 30s --at localhost:9092
      cordwood client-metrics set tills --match 'client_id=till-.*' --at localhost:9092
    """
    given = {"metrics": metrics, "interval.ms": _interval(interval), "match": match}
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise UsageError("Say what to set: --metrics, --interval or --match")
    with _opened(at) as access:
        access.alter(name, dict(changes))
        keys = access.subscriptions().get(name, {})
    if as_json:
        output_for(as_json=True).facts((), {"name": name, **keys})
    else:
        say(f"{name}: clients send {keys['metrics'] or 'nothing'} every {keys['interval.ms']} ms")


@client_metrics_app.command("remove")
def remove_subscription(
    name: NameArgument, *, at: AtOption = None, as_json: JsonOption = False
) -> None:
    """Remove a subscription: clients send only what other subscriptions ask for.

    \b
    Example:
      cordwood client-metrics remove all --at localhost:9092
    """
    with _opened(at) as access:
        if name not in access.subscriptions():
            raise ConfigError("client-metrics", name, "there is no such subscription")
        access.alter(name, dict.fromkeys(_KEYS))
    if as_json:
        output_for(as_json=True).facts((), {"name": name, "removed": True})
    else:
        say(f"{name}: removed")


def _interval(text: str | None) -> str | None:
    from cordwood.log.rules.config_key import ConfigKey, ConfigKind

    if text is None:
        return None
    rule = ConfigKey(name="interval.ms", kind=ConfigKind.DURATION, default_text="300000", doc="")
    return str(rule.parse(text))
