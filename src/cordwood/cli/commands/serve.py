"""``cordwood serve``: runs a broker in the foreground until a signal stops it.

The first SIGTERM or SIGINT stops it cleanly: it accepts no new requests, answers those in
progress, syncs everything, marks the store clean and ends with exit code 0. A second signal ends
it at once; the next start then recovers. SIGHUP loads the certificates of TLS listeners again.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from cordwood.cli.at.target import DirectoryTarget, parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.signals import StopSignals
from cordwood.errors import ConfigError, CordwoodError

if TYPE_CHECKING:
    from cordwood.broker.processes.supervisor import Supervisor
    from cordwood.broker.server import BrokerServer
    from cordwood.settings import Assignment, Settings

logger = logging.getLogger(__name__)

CONSOLE_PORT: Final = 9480
_GARBAGE_OBJECTS: Final = 20_000  # more than a hundred connections with requests have
_SWITCH_INTERVAL_S: Final = 0.0005


def run_serve(
    *,
    directories: Sequence[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    advertised_host: str | None = None,
    advertised_port: int | None = None,
    durability: str | None = None,
    metrics_port: int | None = None,
    processes: int | None = None,
    otel_endpoint: str | None = None,
    console: bool = False,
    console_port: int = CONSOLE_PORT,
    secure: bool = False,
    insecure: bool = False,
    config_file: str | os.PathLike[str] | None = None,
    assignments: Sequence[str] | None = None,
    log_format: str | None = None,
    log_level: str | None = None,
) -> None:
    """Serve as the options say, until a signal comes; None: an option was not given."""
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
            "otel.endpoint": ("--otel-endpoint", otel_endpoint),
            "insecure.listeners.allowed": ("--insecure", "true" if insecure else None),
            "logger.format": ("--log-format", log_format),
            "logger.level": ("--log-level", log_level),
        },
    )
    console_on = console_port if console else None
    if processes is not None and console:
        raise UsageError("--processes cannot be combined with --console; run `cordwood console`")
    if not secure:
        settings = load_settings(file=config_file, flags=flags)
        if processes is not None:
            run_processes(settings, processes)
        else:
            run_broker(settings, console_port=console_on)
        return
    if insecure:
        raise UsageError("--secure and --insecure exclude each other")
    from cordwood.cli.commands.secured_start import (
        check_is_secure,
        prepare_security,
        report_setup,
    )

    setup = prepare_security(load_settings(file=config_file, flags=flags))
    settings = load_settings(file=config_file, flags=flags)
    check_is_secure(settings)
    report_setup(setup, settings)
    if processes is not None:
        run_processes(settings, processes)
        return
    run_broker(settings, console_port=console_on, security_folder=setup.folder)


def _data_directories(texts: Sequence[str] | None) -> list[str] | None:
    """The directories given; `ConfigError` for an address."""
    found: list[str] = []
    for text in texts or ():
        target = parse_target(text, may_be_new=True)
        if not isinstance(target, DirectoryTarget):
            raise ConfigError(
                "--dir",
                text,
                "must be a directory, not an address; --host and --port set the address",
            )
        found += target.paths
    return found or None


def _flags(texts: Sequence[str], given: dict[str, tuple[str, object | None]]) -> "list[Assignment]":
    from cordwood.settings import Assignment, flag_assignments

    named = [
        Assignment(key, value, flag) for key, (flag, value) in given.items() if value is not None
    ]
    return [*flag_assignments(texts), *named]


def run_broker(
    settings: "Settings",
    *,
    console_port: int | None = None,
    security_folder: str | None = None,
) -> None:
    """Serve until a signal comes; return after everything is closed."""
    from cordwood.broker.config.security_config import refuse_insecure_listeners
    from cordwood.broker.observing.log_output import configure_logging
    from cordwood.broker.server import BrokerServer
    from cordwood.log.partition.state.replica_role import AMONG_OTHERS, SOLE_REPLICA

    refuse_insecure_listeners(settings.broker, settings.security)
    beside = _beside(settings, console_port, security_folder)
    configure_logging(settings.log_output)
    stop = StopSignals()
    stop.install()
    _warn(settings)
    started_s = time.monotonic()
    _raise_open_files_limit()
    cluster = settings.cluster
    if cluster.is_member:
        from cordwood.broker.cluster.cluster_joining import check_archive, check_directories

        check_directories(settings.store.log_dirs)
        check_archive(settings.topic_defaults)
    role = AMONG_OTHERS if cluster.is_member else SOLE_REPLICA
    store = settings.store.open(settings.topic_defaults, role=role)
    failures: list[CordwoodError] = []

    def failed(error: CordwoodError) -> None:
        failures.append(error)
        stop.request("it cannot be a member of its cluster")

    server = BrokerServer(
        store,
        settings.broker,
        security=settings.security,
        owns_store=True,
        cluster=cluster,
        when_failed=failed,
    )
    try:
        server.start()
        _settle()
        _reload_on_hangup(server)
        _report_start(server, settings, time.monotonic() - started_s)
        with beside(server):
            stop.wait()
            logger.info("stopping: %s", stop.reason)
    finally:
        server.stop()
    if failures:
        raise failures[0]
    _report_end(started_s)


def _warn(settings: "Settings") -> None:
    for idle in settings.without_effect:
        logger.warning("%s (from %s) is accepted but has no effect", idle.name, idle.source)
    for path in settings.open_secrets:
        logger.warning("%s has a secret and every user can read it: chmod 600 it", path)


def _report_end(started_s: float) -> None:
    logger.info(
        "stopped cleanly after %.1f s",
        time.monotonic() - started_s,
        extra={"facts": {"event": "stopped"}},
    )


def run_processes(settings: "Settings", count: int) -> None:
    """Serve with several processes until a signal comes; return after everything is closed."""
    from cordwood.broker.config.security_config import refuse_insecure_listeners
    from cordwood.broker.observing.log_output import configure_logging
    from cordwood.broker.processes.process_task import NodeConfig
    from cordwood.broker.processes.supervisor import Supervisor

    refuse_insecure_listeners(settings.broker, settings.security)
    if settings.cluster.is_member:
        raise ConfigError("--processes", count, "is not for a member of a cluster")
    configure_logging(settings.log_output)
    stop = StopSignals()
    stop.install()
    _warn(settings)
    started_s = time.monotonic()
    _raise_open_files_limit()
    supervisor = Supervisor(
        NodeConfig(
            broker=settings.broker,
            security=settings.security,
            store=settings.store,
            topic_defaults=settings.topic_defaults,
            log_output=settings.log_output,
        ),
        count,
    )
    try:
        supervisor.start()
        if any(listener.tls is not None for listener in settings.security.listeners):
            signal.signal(signal.SIGHUP, lambda number, _: supervisor.signal(number))
        _report_processes(supervisor, settings, time.monotonic() - started_s)
        stop.wait()
        logger.info("stopping: %s", stop.reason)
    finally:
        supervisor.stop()
    _report_end(started_s)


def _report_processes(supervisor: "Supervisor", settings: "Settings", took_s: float) -> None:
    addresses = [f"{host}:{port}" for host, port in supervisor.addresses]
    store = supervisor.store
    facts = {
        "event": "started",
        "address": addresses[0],
        "addresses": addresses,
        "processes": supervisor.pids(),
        "pid": os.getpid(),
        "data_dirs": store.data_dirs,
        "cluster_id": store.cluster_id,
        "durability": settings.topic_defaults.durability,
        "topics": len(store.topics()),
        "took_ms": round(took_s * 1000),
    }
    logger.info(
        "serving %s with %d processes on %s: durability %s, %d topics, in %d ms",
        ", ".join(store.data_dirs),
        len(addresses),
        ", ".join(addresses),
        facts["durability"],
        facts["topics"],
        facts["took_ms"],
        extra={"facts": facts},
    )
    _warn_of_choices(settings)


def _beside(
    settings: "Settings", console_port: int | None, security_folder: str | None
) -> "Callable[[BrokerServer], AbstractContextManager[None]]":
    """What runs beside a broker: a console, or nothing."""
    if console_port is None:
        return lambda server: contextlib.nullcontext()
    from cordwood.cli.commands.console_child import connection_options, console_beside

    options = connection_options(settings, security_folder)
    return lambda server: console_beside(server, options, console_port)


def _reload_on_hangup(server: "BrokerServer") -> None:
    """Without TLS there is nothing to load: SIGHUP ends the broker, as when a terminal closes."""
    if hasattr(signal, "SIGHUP") and server.has_tls:
        signal.signal(signal.SIGHUP, lambda *_: server.reload_certificates())


def _settle() -> None:
    """Tune the interpreter for short pauses; the process runs nothing but the broker.

    Loaded modules stay loaded, so the garbage collector need not walk through them again. Requests
    are freed without it once they are answered; it only finds reference cycles, so it may run
    rarely. A short switch interval lets the event loops interrupt background threads sooner.

    Only young objects are searched for garbage before: a search of all of them would delay the
    first answer by 10 ms, and the searches during the start left hardly anything to find.
    """
    gc.collect(1)
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
    _warn_of_choices(settings)


def _warn_of_choices(settings: "Settings") -> None:
    for listener in settings.security.insecure_listeners:
        logger.warning(
            "INSECURE: %s lets everybody in who reaches it: clients can read, write and delete "
            "everything without authentication (insecure.listeners.allowed)",
            listener.listener,
            extra={"facts": {"event": "insecure", "listener": str(listener.listener)}},
        )
    if settings.topic_defaults.durability == "os":
        logger.warning(
            "durability is os: the last acknowledged records may be lost in a power failure"
        )


def _raise_open_files_limit() -> None:
    """Raise the soft limit to the hard one: partitions, segments and clients need open files."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ImportError, ValueError, OSError) as error:
        logger.debug("cannot raise the limit of open files: %s", error)
