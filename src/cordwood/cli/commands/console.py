"""``cordwood console``: serves a web page about a store or a broker."""

import logging
import threading
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

import typer

from cordwood.cli.at.connection import AtText, ConnectionOptions
from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption
from cordwood.cli.signals import StopSignals
from cordwood.cli.terminal import say
from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.security.clients.client_security import ClientSecurity

_MISSING: Final = "the console needs the package {name}: pip install 'cordwood[console]'"


def console(
    *,
    at: AtOption = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="HOST:PORT",
            help="With --at DIR: the broker that serves it, for members and states of groups.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on, 0 for any.")] = 9480,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Let viewers change configurations and reset groups."),
    ] = False,
    login: Annotated[
        bool,
        typer.Option("--login", help="Viewers log in as users of the broker; its rules decide."),
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="[TOPIC:]PATH",
            help="Hide a part of records, for example value.card.number; repeatable.",
        ),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks at the store.")] = 2.0,
    tls_certificate: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Certificate to serve the console with, PEM."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Private key of the certificate, PEM.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST", help="A name under which the console answers; repeatable."
        ),
    ] = None,
    ends_with_stdin: Annotated[
        bool, typer.Option("--end-with-stdin", hidden=True, help="End when standard input does.")
    ] = False,
) -> None:
    """Serve a web page about a store or a broker: messages, segments, groups, plans.

    It reads a data directory beside its owner, and asks a broker for what lives in its memory. It
    changes nothing without --allow-changes. Other machines reach it only with --login and TLS.

    \b
    Examples:
      cordwood console
      cordwood console --at localhost:9092 --port 9480
      cordwood console --at ./data --mask 'payments:value.card.number'
    """
    from cordwood.broker.observing.log_output import configure_logging
    from cordwood.settings import load_settings

    try:
        from cordwood.console.console_config import ConsoleConfig
        from cordwood.console.console_server import ConsoleServer, end_with_parent
        from cordwood.console.decoding.masking import Masking
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cordwood"):
            raise
        raise UsageError(_MISSING.format(name=error.name)) from error
    configure_logging(load_settings().log_output)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = ConsoleServer(
        ConsoleConfig(
            **_target(at, broker),
            host=host,
            port=port,
            allows_changes=allow_changes,
            needs_login=login,
            masking=Masking.parse(mask or ()),
            interval_s=interval,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            hosts=frozenset(name or ()),
        )
    )
    signals = StopSignals()
    signals.install()

    def stop() -> None:
        signals.wait()
        server.stop()

    threading.Thread(target=stop, name="cordwood-console-stop", daemon=True).start()
    if ends_with_stdin:
        end_with_parent(server.stop)
    server.run(on_start=lambda address: say(f"the console is on {address}"))


class _Place(TypedDict):
    directories: tuple[str, ...]
    addresses: tuple[tuple[str, int], ...]
    security: "ClientSecurity | None"


def _target(at: str | None, broker: str | None) -> _Place:
    """The directories and the broker that ``--at`` and ``--broker`` name."""
    if broker is None:
        target = parse_target(at)
        if isinstance(target, BrokerTarget):
            return _Place(directories=(), addresses=target.addresses, security=target.security)
        return _Place(directories=target.paths, addresses=(), security=None)
    files = parse_target(None if at is None else str(at))
    if not isinstance(files, DirectoryTarget):
        raise ConfigError("--broker", broker, "goes with --at DIR; --at names a broker already")
    connection = at.connection if isinstance(at, AtText) else ConnectionOptions()
    asked = parse_target(AtText(broker, connection))
    if not isinstance(asked, BrokerTarget):
        raise ConfigError("--broker", broker, "must be host:port")
    return _Place(directories=files.paths, addresses=asked.addresses, security=asked.security)
