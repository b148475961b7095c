"""The files that `cordwood serve --secure` makes: ``security/`` in the first data directory.

    ca.key              the key of the authority; may be moved to a safe place and put back to renew
    ca.pem              its certificate: what clients need
    server.pem          the broker's key and certificate
    admin.password      the password of the user admin
    admin.properties    for `--command-config` and Java's clients, as admin
    kcat.conf           for kcat and other programs of librdkafka, as admin
    README.txt          how to connect, with examples
    broker.properties   settings of the broker; it is written last

All but ca.pem and README.txt are of mode 0600. `broker.properties` marks a complete set: each start
of the broker reads it, below files, variables and flags. A set-up that was interrupted is continued
by the next one. Nothing is replaced, except a certificate that expires soon or lacks a name.
"""

import contextlib
import datetime
import os
import secrets
from collections.abc import Sequence
from typing import Final

from cordwood.errors import ConfigError
from cordwood.format.file_names import SECURITY_FOLDER
from cordwood.format.small_files.meta_properties import render_properties
from cordwood.security.certificates.certificate_authority import (
    CertificateAuthority,
    certificate_facts,
    covers,
)
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_examples import render_examples
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.clients.client_settings import java_properties, librdkafka_settings
from cordwood.security.secret import Secret
from cordwood.storage.files import FileSystem, make_durable_directory, read_whole, replace_file
from cordwood.value_class import dataclass

SETTINGS_FILE: Final = "broker.properties"
ADMIN: Final = "admin"
RENEWED_DAYS: Final = 30  # before its end

_FILE_BYTES_MAX: Final = 1024 * 1024
_PASSWORD_BYTES: Final = 24
_SERVER: Final = "server.pem"
_CA: Final = "ca.pem"
_CA_KEY: Final = "ca.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureSetup:
    """What is in the folder. `is_new`: it was made, or completed, just now."""

    folder: str
    password: Secret
    is_new: bool
    is_renewed: bool
    expires: datetime.datetime

    @property
    def ca_file(self) -> str:
        return os.path.join(self.folder, _CA)

    @property
    def settings_file(self) -> str:
        return os.path.join(self.folder, SETTINGS_FILE)

    def client(self) -> ClientSecurity:
        """How the administrator connects."""
        return _admin(self.password, CertificateStore(option="--ca", location=self.ca_file))


class SecureFolder:
    """Makes the files. For one process at a time: the caller holds the lock of the data."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self._fs = fs
        self._settings: dict[str, str] = {}
        self.path = os.path.join(os.path.abspath(data_dir), SECURITY_FOLDER)

    @property
    def is_complete(self) -> bool:
        return self._fs.exists(self._file(SETTINGS_FILE))

    def prepare(
        self,
        *,
        hosts: Sequence[str],
        address: tuple[str, int],
        settings: dict[str, str],
        now: datetime.datetime,
    ) -> SecureSetup:
        """Make what is missing, except the settings: `finish` writes them.

        hosts     names and addresses that the certificate is for
        address   what clients connect to
        settings  of the listener, beside those that name the files here
        """
        make_durable_directory(self._fs, self.path)
        os.chmod(self.path, 0o700)
        is_renewed, expires = self._certificate(hosts, now)
        password = Secret(self._kept("admin.password", secrets.token_urlsafe(_PASSWORD_BYTES)))
        setup = SecureSetup(
            folder=self.path,
            password=password,
            is_new=not self.is_complete,
            is_renewed=is_renewed,
            expires=expires,
        )
        self._client_files(setup, address)
        if setup.is_new:
            self._settings = settings
        return setup

    def finish(self, setup: SecureSetup) -> None:
        """Write the settings, once everything else is there."""
        if setup.is_new:
            rendered = render_properties(
                {
                    **self._settings,
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": _SERVER,  # in this folder, wherever it is moved to
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                    "authorizer.class.name": "standard",
                    "super.users": f"User:{ADMIN}",
                }
            )
            head = "# Made by `cordwood serve --secure`. Each start reads it.\n"
            self._write(SETTINGS_FILE, (head + rendered).encode())

    # --- certificates --------------------------------------------------------------------------

    def _certificate(
        self, hosts: Sequence[str], now: datetime.datetime
    ) -> tuple[bool, datetime.datetime]:
        """Whether a certificate was replaced, and when the present one ends."""
        present = self._read(_SERVER)
        authority = self._authority(is_needed=present is None, now=now)
        if present is not None:
            try:
                facts = certificate_facts(_certificates_of(present))
            except ValueError as error:
                raise self._unusable(_SERVER, error) from error
            is_due = facts.days_left(now) < RENEWED_DAYS
            if not is_due and covers(facts, hosts):
                return False, facts.not_after
            if authority is None:
                if not is_due:
                    return False, facts.not_after
                raise ConfigError(
                    "--secure",
                    self._file(_SERVER),
                    f"ends on {facts.not_after:%Y-%m-%d}, and {_CA_KEY} is not here to renew it: "
                    "put it back and start again",
                )
            hosts = sorted({*facts.names, *hosts})
        assert authority is not None
        issued = authority.issue("cordwood", hosts, now=now)
        self._write(_SERVER, issued.store_pem)
        return present is not None, certificate_facts(issued.certificate_pem).not_after

    def _authority(self, *, is_needed: bool, now: datetime.datetime) -> CertificateAuthority | None:
        key, certificate = self._read(_CA_KEY), self._read(_CA)
        if key is not None and certificate is not None:
            try:
                return CertificateAuthority.load(key, certificate)
            except (ValueError, TypeError) as error:
                raise self._unusable(_CA_KEY, error) from error
        if certificate is not None:  # it signed something, somewhere: it must not be replaced
            if is_needed:
                raise ConfigError(
                    "--secure", self._file(_CA_KEY), "does not exist; put it back and start again"
                )
            return None
        if not is_needed:
            raise ConfigError(
                "--secure", self._file(_CA), f"does not exist, but {_SERVER} does; put it back"
            )
        made = CertificateAuthority.create("Cordwood authority", now=now)
        # The certificate is written last: without it, the key of an interrupted set-up is unused.
        self._write(_CA_KEY, made.key_pem)
        self._write(_CA, made.certificate_pem, is_private=False)
        return made

    def _unusable(self, name: str, error: Exception) -> ConfigError:
        return ConfigError("--secure", self._file(name), f"cannot be used: {error}")

    # --- files of clients ----------------------------------------------------------------------

    def _client_files(self, setup: SecureSetup, address: tuple[str, int]) -> None:
        """Missing ones only: an operator may have changed the others."""
        shown = "{}:{}".format(*address)
        # Any free port: each start has another one.
        servers = {"bootstrap.servers": shown} if address[1] else {}
        pem = (self._read(_CA) or b"").decode()
        inline = _admin(setup.password, CertificateStore(option="--ca", pem=pem))
        java = render_properties({**servers, **java_properties(inline)})
        librdkafka = "".join(
            f"{key}={value}\n"
            for key, value in {
                **servers,
                **librdkafka_settings(setup.client()),
            }.items()
        )
        examples = render_examples(setup.folder, shown, ADMIN)
        for name, content, is_private in (
            ("admin.properties", java, True),
            ("kcat.conf", librdkafka, True),
            ("README.txt", examples, False),
        ):
            if not self._fs.exists(self._file(name)):
                self._write(name, content.encode(), is_private=is_private)

    def _kept(self, name: str, text: str) -> str:
        """The text in a file, which is created with `text` if it is missing."""
        present = self._read(name)
        if present is not None:
            kept = present.decode(errors="replace").strip()
            if not kept:  # an administrator without a password is an open door
                raise ConfigError(
                    "--secure",
                    self._file(name),
                    "is empty; put its content back, or remove the file",
                )
            return kept
        self._write(name, f"{text}\n".encode())
        return text

    # --- files ---------------------------------------------------------------------------------

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return read_whole(self._fs, self._file(name), limit=_FILE_BYTES_MAX)
        return None

    def _write(self, name: str, content: bytes, *, is_private: bool = True) -> None:
        replace_file(self._fs, self._file(name), content, is_private=is_private)


def _admin(password: Secret, trust: CertificateStore) -> ClientSecurity:
    return ClientSecurity(
        protocol=ClientProtocol.SASL_SSL,
        trust=trust,
        mechanism="SCRAM-SHA-256",
        user=ADMIN,
        password=password,
    )


def _certificates_of(store_pem: bytes) -> bytes:
    """The certificates of a PEM text without the key before them."""
    return store_pem[max(store_pem.find(b"-----BEGIN CERTIFICATE"), 0) :]
