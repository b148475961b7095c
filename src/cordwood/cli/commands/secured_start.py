"""What `cordwood serve --secure` does before the broker starts: see `secure_setup`."""

import datetime
import secrets
import socket
import sys
from typing import TYPE_CHECKING, Final

import typer

from cordwood.broker.config.broker_config import ANY_ADDRESS
from cordwood.broker.config.listeners import SecurityProtocol
from cordwood.cli.at.directory_security import open_security
from cordwood.cli.at.target import DirectoryTarget
from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_authority import check_cryptography
from cordwood.security.clients.client_examples import render_examples
from cordwood.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    credential_of,
    salt_password,
)
from cordwood.security.secret import Secret
from cordwood.security.security_state import ScramMechanism, SecurityState, UserCredential
from cordwood.security.setup.secure_setup import ADMIN, SecureFolder, SecureSetup
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import replace

if TYPE_CHECKING:
    from cordwood.settings import Settings

_ALWAYS: Final = ("localhost", "127.0.0.1", "::1")


def prepare_security(settings: "Settings") -> SecureSetup:
    """Make certificates, the administrator and the files of clients, as far as they are missing."""
    check_cryptography()
    paths = settings.store.log_dirs
    folder = SecureFolder(RealFileSystem(), paths[0])
    if not folder.is_complete:
        _refuse_other_listeners(settings)
    (listener, *_) = settings.security.listeners
    host, port = listener.advertised.host, listener.advertised.port or listener.listener.port
    host = _machine_name() if host in ANY_ADDRESS else host
    with open_security(DirectoryTarget(paths=tuple(paths))) as security_file:
        setup = folder.prepare(
            hosts=_names(settings),
            address=(f"[{host}]" if ":" in host else host, port),
            settings=_listener_settings(settings),
            now=datetime.datetime.now(datetime.UTC),
        )
        if setup.is_new or not security_file.state.credentials:
            # Without users nobody can log in: a restored snapshot has none, for example.
            security_file.change(lambda state: _with_admin(state, setup.password))
            if not setup.is_new:
                _to_stderr(f"there was no user: added {ADMIN}, whose password is in {setup.folder}")
        folder.finish(setup)
    return setup


def check_is_secure(settings: "Settings") -> None:
    """Other files, variables and flags count more than the folder: they may have undone it."""
    for listener in settings.security.listeners:
        if listener.protocol is not SecurityProtocol.SASL_SSL and not listener.is_local:
            raise ConfigError(
                "listeners",
                str(listener.listener),
                "--secure is for listeners with SASL_SSL; remove the flag, or this listener",
            )
    if not settings.security.access.has_authorizer:
        raise ConfigError(
            "authorizer.class.name", "", "--secure needs access rules; do not set it to nothing"
        )


def report_setup(setup: SecureSetup, settings: "Settings") -> None:
    """Say how to connect. The password is shown on a terminal, and only once."""
    say = _to_stderr
    if setup.is_renewed:
        say(f"renewed {setup.folder}/server.pem; it ends on {setup.expires:%Y-%m-%d}")
    if not setup.is_new:
        say(f"secured by {setup.folder}; README.txt there says how to connect")
        return
    (listener, *_) = settings.security.listeners
    host = listener.advertised.host
    host = _machine_name() if host in ANY_ADDRESS else host
    port = listener.advertised.port or listener.listener.port
    say(f"made {setup.folder}: certificates, the user {ADMIN}, and files for clients")
    if sys.stderr.isatty():
        say(f"the password of {ADMIN}, which is shown only now: {setup.password.reveal()}")
    say("")
    say(render_examples(setup.folder, f"{host}:{port}", ADMIN))


def _refuse_other_listeners(settings: "Settings") -> None:
    if settings.broker.listeners is not None:
        raise ConfigError(
            "listeners",
            settings.broker.listeners,
            "--secure makes a listener of its own at --host and --port; remove this key, or set up "
            "ssl.keystore.location and sasl.enabled.mechanisms beside it, without --secure",
        )


def _listener_settings(settings: "Settings") -> dict[str, str]:
    """The address, as the flags of the first start have it."""
    broker = settings.broker
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    found = {"listeners": f"{SecurityProtocol.SASL_SSL}://{host}:{broker.port}"}
    if broker.advertised_host is not None:
        found["advertised.host"] = broker.advertised_host
    if broker.advertised_port is not None:
        found["advertised.port"] = str(broker.advertised_port)
    return found


def _names(settings: "Settings") -> list[str]:
    """The names and addresses under which clients may know this broker."""
    hosts = [*_ALWAYS, socket.gethostname()]
    for listener in settings.security.listeners:
        for host in (listener.listener.host, listener.advertised.host):
            hosts.append(_machine_name() if host in ANY_ADDRESS else host)
    return [host for host in dict.fromkeys(hosts) if host]


def _machine_name() -> str:
    """As the broker names itself to clients if it listens on all addresses."""
    return socket.getfqdn()


def _with_admin(state: SecurityState, password: Secret) -> SecurityState:
    credentials = dict(state.credentials)
    for mechanism in ScramMechanism:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salt_password(mechanism, password.reveal(), salt, ITERATIONS_MIN)
        credentials[UserCredential(ADMIN, mechanism)] = credential_of(
            mechanism, salted, salt, ITERATIONS_MIN
        )
    return replace(state, credentials=credentials)


def _to_stderr(text: str) -> None:
    typer.echo(text, err=True)
