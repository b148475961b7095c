"""The console beside a broker: a process of its own, which ends with the broker.

It reads the broker's files and asks the broker over the loopback address. If clients of the broker
must authenticate, viewers of the console must, too: as the same users.
"""

import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cordwood.cli.failures import UsageError

if TYPE_CHECKING:
    from cordwood.broker.config.security_config import ListenerConfig
    from cordwood.broker.server import BrokerServer
    from cordwood.settings import Settings

logger = logging.getLogger(__name__)

_STOP_S: Final = 10.0
_PACKAGES: Final = ("jinja2", "starlette", "uvicorn")


def connection_options(settings: "Settings", security_folder: str | None) -> list[str]:
    """How the console connects to the first listener. `UsageError` if it cannot.

    `security_folder` is where ``--secure`` keeps certificates; None: it is not used.
    """
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"--console needs the package {name}: pip install 'cordwood[console]'")
    listener: ListenerConfig = settings.security.listeners[0]
    options = ["--login"] if listener.sasl is not None else []
    if listener.tls is not None:
        if security_folder is None:
            raise UsageError(
                "--console does not know who signs the certificate of this broker; start the "
                "console by itself: cordwood console --at DIR --broker HOST:PORT --ca FILE --login"
            )
        options += ["--ca", os.path.join(security_folder, "ca.pem")]
    if not options and settings.security.access.has_authorizer:
        raise UsageError(
            "--console would show everybody on this machine what access rules protect; its first "
            "listener needs SASL, so that viewers can log in"
        )
    return options


def _reachable(host: str, port: int) -> str:
    """The address of a listener, for a client on the same machine."""
    try:
        address = ip_address(host)
        is_local = address.is_unspecified or address.is_loopback
    except ValueError:
        is_local = host == ""
    name = "localhost" if is_local else host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


@contextlib.contextmanager
def console_beside(server: "BrokerServer", options: list[str], port: int) -> Iterator[None]:
    """Run a console while the block runs. If it ends early, the broker goes on without it."""
    command = [
        *(sys.executable, "-m", "cordwood", "console"),
        *("--at", ",".join(server.store.data_dirs)),
        *("--broker", _reachable(*server.address[:2])),
        *("--port", str(port)),
        "--end-with-stdin",
        *options,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    logger.info(
        "starting the console on http://127.0.0.1:%d",
        port,
        extra={"facts": {"event": "console", "port": port, "pid": process.pid}},
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it ends when its standard input does, also if we are killed
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
