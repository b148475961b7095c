"""The options of ``cordwood serve``, as Typer reads them; `serve.py` does the work.

A start with plain options does not load this module: see `serve_words.py`.
"""

from typing import Annotated

import typer

from cordwood.cli.commands.serve import CONSOLE_PORT, run_serve
from cordwood.cli.completion import completion_of
from cordwood.cli.options import ConfigFileOption, SetOption

DirectoriesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dir",
        "--at",
        metavar="DIR",
        help="Data directory, created if missing; with several, partitions are spread over "
        "them. Default: ./data. [log.dirs]",
    ),
]
HostOption = Annotated[
    str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1. [host]")
]
PortOption = Annotated[
    int | None, typer.Option(help="Port to listen on, 0 for any. Default: 9092. [port]")
]
AdvertisedHostOption = Annotated[
    str | None,
    typer.Option(help="Host that clients connect to. Default: --host. [advertised.host]"),
]
AdvertisedPortOption = Annotated[
    int | None,
    typer.Option(help="Port that clients connect to. Default: --port. [advertised.port]"),
]
DurabilityOption = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion_of("disk", "os"),
        help="When appends are acknowledged: disk (default) or os. [log.durability]",
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        help="Port for /metrics, /healthz and /readyz. Default: not served. [metrics.port]"
    ),
]
OtelEndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Send metrics to this OpenTelemetry collector, such as http://localhost:4318. "
        "[otel.endpoint]",
    ),
]
ConsoleOption = Annotated[
    bool,
    typer.Option("--console", help="Serve the console, too, in a process of its own."),
]
ConsolePortOption = Annotated[
    int, typer.Option(metavar="PORT", help="Port of the console, on this machine only.")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Serve with N processes, to use more processors. Each has the ports of the broker, "
        "plus its number. Default: one process, without a supervisor.",
    ),
]
SecureOption = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Set up TLS, a user admin and access rules, if that is not done yet, and say how to "
        "connect.",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Let clients of other machines in without authentication. "
        "[insecure.listeners.allowed]",
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion_of("text", "json"),
        help="Log format: text or json. [logger.format]",
    ),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion_of("debug", "info", "warning", "error"),
        help="Log level: debug, info, warning or error. [logger.level]",
    ),
]


def serve(
    *,
    directories: DirectoriesOption = None,
    host: HostOption = None,
    port: PortOption = None,
    advertised_host: AdvertisedHostOption = None,
    advertised_port: AdvertisedPortOption = None,
    durability: DurabilityOption = None,
    metrics_port: MetricsPortOption = None,
    processes: ProcessesOption = None,
    otel_endpoint: OtelEndpointOption = None,
    console: ConsoleOption = False,
    console_port: ConsolePortOption = CONSOLE_PORT,
    secure: SecureOption = False,
    insecure: InsecureOption = False,
    config_file: ConfigFileOption = None,
    assignments: SetOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Serve a data directory to Kafka clients.

    \b
    Examples:
      cordwood serve
      cordwood serve --secure --at /srv/data --host 0.0.0.0 --advertised-host log.example.org
      cordwood serve --console
      cordwood serve --durability os --set log.retention.ms=7d --metrics-port 9600
      cordwood serve --processes 4
    """
    run_serve(
        directories=directories,
        host=host,
        port=port,
        advertised_host=advertised_host,
        advertised_port=advertised_port,
        durability=durability,
        metrics_port=metrics_port,
        processes=processes,
        otel_endpoint=otel_endpoint,
        console=console,
        console_port=console_port,
        secure=secure,
        insecure=insecure,
        config_file=config_file,
        assignments=assignments,
        log_format=log_format,
        log_level=log_level,
    )
