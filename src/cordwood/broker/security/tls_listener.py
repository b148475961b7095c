"""The TLS of one listener while the broker runs: its current context, and how it is replaced.

A context is never changed, only replaced, so a connection keeps the one that it began with. A new
certificate must keep the subject and the alternative names of the one before, unless the
configuration allows otherwise: clients check these, and a wrong file must not lock them out.
"""

import logging
import ssl
import threading
from datetime import UTC, datetime

from cordwood.broker.config.security_config import ListenerConfig
from cordwood.broker.config.tls_config import TlsConfig
from cordwood.broker.security.tls_context import TlsContext, make_context
from cordwood.broker.security.tls_material import FileMark
from cordwood.errors import ConfigError, CordwoodError, FormatError
from cordwood.security.certificates.certificate import Certificate
from cordwood.security.certificates.principal_mapping import PrincipalMapping
from cordwood.security.principal import ANONYMOUS, USER, Principal

logger = logging.getLogger(__name__)


class ClientRefusedError(CordwoodError):
    """A client whose handshake succeeded must be disconnected; the message says why."""


class TlsListener:
    """Threads that connect clients use it; the thread that reloads replaces its context."""

    def __init__(self, config: ListenerConfig) -> None:
        """Reads the files of the listener. Raises `ConfigError`."""
        assert config.tls is not None, config
        self.name = config.name
        self._config: TlsConfig = config.tls
        self._is_principal = config.sasl is None  # else SASL says who the client is
        self._lock = threading.Lock()  # held while the context is replaced
        rules = self._config.ssl_principal_mapping_rules
        try:
            self._mapping = PrincipalMapping(rules)
        except ValueError as error:
            raise ConfigError("ssl.principal.mapping.rules", rules, str(error)) from error
        self._marks = self._files()
        try:
            self._current = make_context(self._config)
        except ConfigError as error:
            reason = f"{error.reason} (listener {self.name})"
            raise ConfigError(error.key, error.value, reason) from error
        self._report("uses")

    @property
    def certificate(self) -> Certificate:
        """The certificate that new connections get."""
        return self._current.certificate

    # --- clients -----------------------------------------------------------------------------

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._current.context

    def principal_of(self, tls: ssl.SSLObject) -> Principal:
        """Who a client is after its handshake. Raises `ClientRefusedError`."""
        suites, used = self._current.suites, tls.cipher()
        if suites and used is not None and used[1] == "TLSv1.3" and used[0] not in suites:
            raise ClientRefusedError(f"{used[0]} is not in ssl.cipher.suites")
        der = tls.getpeercert(binary_form=True) if self._is_principal else None
        if der is None:
            return ANONYMOUS
        try:
            certificate = Certificate.decode(der)
        except FormatError as error:
            raise ClientRefusedError(f"the client's certificate cannot be read: {error}") from error
        if certificate.not_after < datetime.now(UTC):  # a resumed session is not verified again
            raise ClientRefusedError("the client's certificate has expired")
        name = self._mapping.name_of(certificate.subject)
        if name is None:
            raise ClientRefusedError(
                "no rule of ssl.principal.mapping.rules gives a name for the subject "
                f"{certificate.subject[:200]}"
            )
        return Principal(USER, name)

    # --- new files ---------------------------------------------------------------------------

    def _files(self) -> tuple[FileMark, FileMark]:
        config = self._config
        return (
            FileMark.of(config.ssl_keystore_location),
            FileMark.of(config.ssl_truststore_location),
        )

    def reload(self, *, is_forced: bool = False) -> bool:
        """Use the files as they are now, if they have changed. Returns whether they are used.

        Files that cannot be used are logged, and the context stays as it is.
        """
        with self._lock:
            marks = self._files()
            if marks == self._marks and not is_forced:
                return False
            self._marks = marks
            try:
                made = make_context(self._config)
                self._check_change(made)
            except ConfigError as error:
                logger.error(
                    "%s: the new certificate is not used, the one before stays: %s",
                    self.name,
                    error,
                )
                return False
            self._current = made
            self._report("now uses")
            return True

    def _check_change(self, made: TlsContext) -> None:
        """Raises `ConfigError` if clients could not accept what they accepted before."""
        config, old, new = self._config, self._current.certificate, made.certificate
        shown = config.ssl_keystore_location or "..."
        key = "ssl.keystore.location"
        now = datetime.now(UTC)
        if new.not_after <= now < old.not_after:
            raise ConfigError(key, shown, f"the certificate expired on {new.not_after:%Y-%m-%d}")
        if new.not_before > now >= old.not_before:
            raise ConfigError(
                key,
                shown,
                f"the certificate is not valid before {new.not_before:%Y-%m-%d %H:%M} UTC",
            )
        if new.subject != old.subject and not config.ssl_allow_dn_changes:
            raise ConfigError(
                key,
                shown,
                f"the subject changes from {old.subject} to {new.subject}; ssl.allow.dn.changes "
                "allows it",
            )
        missing = old.alternative_names - new.alternative_names
        if missing and not config.ssl_allow_san_changes:
            raise ConfigError(
                key,
                shown,
                f"the alternative names {', '.join(sorted(missing))} are missing; "
                "ssl.allow.san.changes allows it",
            )

    def _report(self, verb: str) -> None:
        certificate = self._current.certificate
        logger.info(
            "%s %s the certificate %s with SHA-256 fingerprint %s, which expires on %s",
            self.name,
            verb,
            certificate.subject,
            certificate.fingerprint,
            f"{certificate.not_after:%Y-%m-%d %H:%M} UTC",
        )
        for warning in self._current.warnings:
            logger.warning("%s: %s", self.name, warning)
        if certificate.not_after <= datetime.now(UTC):
            logger.warning("%s: the certificate has expired; clients will refuse it", self.name)
