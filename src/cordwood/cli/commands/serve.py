"""``cordwood serve``: a broker in the foreground, until it is told to stop.

The first SIGTERM or SIGINT stops in order: no new requests, those under way are answered, all is
synced and marked clean, exit code 0. A second one ends at once; the next start then recovers.
"""

import gc
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import DirectoryTarget, parse_target
from cordwood.cli.completion_names import completion_of
from cordwood.cli.config_flags import complete_setting
from cordwood.cli.stop_signals import StopSignals
from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.broker.server import BrokerServer
    from cordwood.settings import Assignment, Settings

logger = logging.getLogger(__name__)

_GARBAGE_OBJECTS: Final = 20_000  # more than those of a hundred connections with requests
_SWITCH_INTERVAL_S: Final = 0.0005


def serve(
    *,
    directories: Annotated[
        list[str] | None,
        typer.Option(
            "--dir",
            "--at",
            metavar="DIR",
            help="A data directory, made where it is missing; several spread the partitions; "
            "else ./data. [log.dirs]",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; else 127.0.0.1. [host]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on, 0 for any; else 9092. [port]")
    ] = None,
    advertised_host: Annotated[
        str | None,
        typer.Option(help="The host clients are told; else the one above. [advertised.host]"),
    ] = None,
    advertised_port: Annotated[
        int | None,
        typer.Option(help="The port clients are told; else the one above. [advertised.port]"),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion_of("disk", "os"),
            help="When appends are acknowledged: disk (the default) or os. [log.durability]",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve /metrics, /healthz and /readyz here; else not at all. [metrics.port]"
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A .toml or .properties file; else CORDWOOD_CONFIG or cordwood.toml.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            autocompletion=complete_setting,
            help="key=value for any key of `cordwood config show`; repeatable.",
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion_of("text", "json"),
            help="Reports as text or json. [logger.format]",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion_of("debug", "info", "warning", "error"),
            help="debug, info, warning or error. [logger.level]",
        ),
    ] = None,
) -> None:
    """Serve a data directory to Kafka clients.

    \b
    Examples:
      cordwood serve
      cordwood serve --at /srv/data --host 0.0.0.0 --advertised-host log.example.org
      cordwood serve --durability os --set log.retention.ms=7d --metrics-port 9600
    """
    from cordwood.settings import load_settings

    flags = _flags(
        assignments or [],
        {
            "log.dirs": ("--dir", _data_directories(directories)),
            "host": ("--host", host),
            "port": ("--port", port),
            "advertised.host": ("--advertised-host", advertised_host),
            "advertised.port": ("--advertised-port", advertised_port),
            "log.durability": ("--durability", durability),
            "metrics.port": ("--metrics-port", metrics_port),
            "logger.format": ("--log-format", log_format),
            "logger.level": ("--log-level", log_level),
        },
    )
    run_broker(load_settings(file=config_file, flags=flags))


def _data_directories(texts: Sequence[str] | None) -> list[str] | None:
    """The directories that were named; an address is none."""
    found: list[str] = []
    for text in texts or ():
        target = parse_target(text, may_be_new=True)
        if not isinstance(target, DirectoryTarget):
            raise ConfigError("--dir", text, "is an address: a directory is served on --port")
        found += target.paths
    return found or None


def _flags(texts: Sequence[str], given: dict[str, tuple[str, object | None]]) -> "list[Assignment]":
    from cordwood.settings import Assignment, flag_assignments

    named = [
        Assignment(key, value, flag) for key, (flag, value) in given.items() if value is not None
    ]
    return [*flag_assignments(texts), *named]


def run_broker(settings: "Settings") -> None:
    """Serve until a signal comes; returns once everything is closed in order."""
    from cordwood.broker.observing.log_output import configure_logging
    from cordwood.broker.server import BrokerServer

    configure_logging(settings.log_output)
    stop = StopSignals()
    stop.install()
    for name, _, source in settings.without_effect:
        logger.warning("%s (from %s) is accepted and has no effect", name, source)
    started_s = time.monotonic()
    _raise_open_files_limit()
    store = settings.store.open(settings.topic_defaults)
    server = BrokerServer(store, settings.broker, owns_store=True)
    try:
        server.start()
        _settle()
        _report_start(server, settings, time.monotonic() - started_s)
        stop.wait()
        logger.info("stopping: %s", stop.reason)
    finally:
        server.stop()
    logger.info(
        "stopped in order after %.1f s",
        time.monotonic() - started_s,
        extra={"facts": {"event": "stopped"}},
    )


def _settle() -> None:
    """The process is ours alone: keep short what holds up every request.

    What is loaded now stays loaded, so the garbage collector need not walk through it again. Nor
    need it look at every few hundred requests that are under way: they are freed when they are
    answered, and it only finds what refers to itself. And a thread that works in the background
    lets the loops have their turn sooner.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_OBJECTS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def _report_start(server: "BrokerServer", settings: "Settings", took_s: float) -> None:
    store, (host, port) = server.store, server.address
    status = store.directories.status()
    recovered = sum(s.partition_count for s in status if not s.was_clean and s.error is None)
    facts = {
        "event": "started",
        "address": f"{host}:{port}",
        "data_dirs": store.data_dirs,
        "cluster_id": store.cluster_id,
        "durability": settings.topic_defaults.durability,
        "topics": len(store.topics()),
        "partitions": sum(s.partition_count for s in status),
        "recovered_partitions": recovered,
        "took_ms": round(took_s * 1000),
    }
    if server.metrics_address is not None:
        facts["metrics_address"] = "{}:{}".format(*server.metrics_address)
    logger.info(
        "serving %s on %s: durability %s, %d topics, %d partitions (%d recovered), in %d ms",
        ", ".join(store.data_dirs),
        facts["address"],
        facts["durability"],
        facts["topics"],
        facts["partitions"],
        recovered,
        facts["took_ms"],
        extra={"facts": facts},
    )
    if settings.topic_defaults.durability == "os":
        logger.warning(
            "durability is os: what was acknowledged last may be lost with the machine's power"
        )


def _raise_open_files_limit() -> None:
    """As many files as the system lets us have: partitions, segments and clients need them."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ImportError, ValueError, OSError) as error:
        logger.debug("the limit of open files stays as it is: %s", error)
