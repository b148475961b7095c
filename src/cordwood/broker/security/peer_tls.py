"""The TLS of connections that this broker opens: its current context, and how it is replaced.

A context is never changed, only replaced, so a connection keeps the one that it began with.
"""

import logging
import ssl
import threading
from datetime import UTC, datetime

from cordwood.broker.security.tls_material import FileMark
from cordwood.errors import ConfigError, FormatError
from cordwood.security.certificates.certificate import Certificate, certificates_in
from cordwood.security.certificates.certificate_store import STORE_BYTES_MAX, CertificateStore
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.security.clients.client_tls import tls_context

logger = logging.getLogger(__name__)


class PeerTls:
    """Threads that connect use it; the thread that reloads replaces its context."""

    def __init__(self, name: str, security: ClientSecurity) -> None:
        """`name` says to whom the connections are. Reads the files. Raises `ConfigError`."""
        self.name = name
        self._security = security
        self._lock = threading.Lock()  # held while the context is replaced
        self._marks = self._files()
        self._context = tls_context(security)
        self._certificate = _certificate(security.identity)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def reload(self, *, is_forced: bool = False) -> bool:
        """Use the files as they are now, if they have changed. Returns whether they are used.

        Files that cannot be used are logged and tried again, and the context stays as it is.
        """
        with self._lock:
            marks = self._files()
            if marks == self._marks and not is_forced:
                return False
            try:
                context = tls_context(self._security)
                certificate = _certificate(self._security.identity)
                self._check_change(certificate)
            except ConfigError as error:
                logger.error("%s: the new certificates are not used: %s", self.name, error)
                return False
            self._context, self._certificate, self._marks = context, certificate, marks
            logger.info("%s: new connections use the certificates that were replaced", self.name)
            return True

    def _check_change(self, new: Certificate | None) -> None:
        """Raises `ConfigError` if others could not accept what they accepted before."""
        old, store = self._certificate, self._security.identity
        if new is None or old is None or store is None:
            return
        now = datetime.now(UTC)
        if new.not_after <= now < old.not_after:
            raise ConfigError(
                store.option, store.shown, f"the certificate expired on {new.not_after:%Y-%m-%d}"
            )
        if new.not_before > now >= old.not_before:
            raise ConfigError(
                store.option,
                store.shown,
                f"the certificate is not valid before {new.not_before:%Y-%m-%d %H:%M} UTC",
            )

    def _files(self) -> list[FileMark]:
        stores = (self._security.trust, self._security.identity)
        return [
            FileMark.of(path)
            for store in stores
            if store is not None
            for path in (store.location, store.key_location)
        ]


def _certificate(store: CertificateStore | None) -> Certificate | None:
    """What this broker shows of itself, in files that OpenSSL has taken; None: nothing."""
    if store is None:
        return None
    try:
        if store.pem is not None:
            pem = store.pem
        elif store.is_pkcs12():
            pem = store.pkcs12_identity()[0].decode()
        else:
            with open(store.path, "rb") as file:
                pem = file.read(STORE_BYTES_MAX).decode("ascii", "replace")
        found = [Certificate.decode(der) for der in certificates_in(pem)]
    except (OSError, FormatError) as error:
        raise ConfigError(store.option, store.shown, f"cannot be read: {error}") from error
    return found[0] if found else None


def peer_tls(name: str, security: ClientSecurity) -> PeerTls | None:
    """The TLS of connections with `security`; None if they have none."""
    return PeerTls(name, security) if security.protocol.has_tls else None
