"""How the clients of each listener authenticate: what the configuration and the users come to."""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from cordwood.broker.config.sasl_config import SaslConfig
from cordwood.broker.config.security_config import ListenerConfig
from cordwood.broker.security.authentication_events import (
    AuthenticationCounts,
    AuthenticationEvents,
    EventGroup,
    FailureLog,
)
from cordwood.broker.security.credential_checks import CredentialChecks
from cordwood.clock import Clock
from cordwood.security.sasl.sasl_exchange import OAUTHBEARER, PLAIN, Exchange, MakeExchange
from cordwood.security.security_source import SecuritySource
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.broker.security.sasl_mechanisms import SaslMechanisms

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAuthentication:
    """The mechanisms of one listener, and what all of its connections share."""

    name: str
    sasl: SaslConfig
    exchanges: Mapping[str, MakeExchange]  # by mechanism
    checks: CredentialChecks
    events: EventGroup
    counts: AuthenticationCounts
    clock: Clock

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self.sasl.mechanisms

    def begin(self, mechanism: str) -> Exchange:
        return self.exchanges[mechanism]()

    def reauth_ms(self, mechanism: str) -> int:
        """After how long clients must authenticate again; 0: the broker does not mind."""
        return self.sasl.of(mechanism).connections_max_reauth_ms

    @property
    def timeout_s(self) -> float:
        return self.sasl.keys.sasl_server_authn_timeout_ms / 1000

    @property
    def failure_delay_s(self) -> float:
        return self.sasl.keys.connection_failed_authentication_delay_ms / 1000

    @property
    def frame_bytes_max(self) -> int:
        """The largest request of a client that is not authenticated."""
        return self.sasl.keys.sasl_server_max_receive_size


class Authentications:
    """The authentication of all listeners that have SASL, with its threads.

    Made and stopped by the owner of the broker. Other methods may be called by any thread.
    """

    def __init__(
        self, listeners: Iterable[ListenerConfig], file: SecuritySource, clock: Clock
    ) -> None:
        """Raises `ConfigError`: for users and URLs, and if packages are missing."""
        self.counts = AuthenticationCounts()
        self.events = EventGroup([self.counts, FailureLog(clock.monotonic)])
        # Of client certificates; `TlsHandshakes` logs the failures.
        self.certificate_events = EventGroup([self.counts])
        self._checks = CredentialChecks()
        self._directories = file.directories
        self._mechanisms: SaslMechanisms | None = None
        self.by_listener: dict[str, ListenerAuthentication] = {}
        for listener in listeners:
            if listener.sasl is not None:
                mechanisms = self._loaded(file)
                sasl = listener.sasl
                self.by_listener[listener.name] = ListenerAuthentication(
                    name=listener.name,
                    sasl=sasl,
                    exchanges={
                        mechanism: mechanisms.maker(listener.name, mechanism, sasl.of(mechanism))
                        for mechanism in sasl.mechanisms
                    },
                    checks=self._checks,
                    events=self.events,
                    counts=self.counts,
                    clock=clock,
                )

    def _loaded(self, file: SecuritySource) -> "SaslMechanisms":
        if self._mechanisms is None:
            # Not at the top: a broker without SASL does not load it.
            from cordwood.broker.security.sasl_mechanisms import SaslMechanisms

            self._mechanisms = SaslMechanisms(file)
        return self._mechanisms

    def watch(self, listener: AuthenticationEvents) -> None:
        """Tell `listener` of every attempt. Before the broker starts."""
        self.events.add(listener)
        self.certificate_events.add(listener)

    def start(self) -> None:
        """Fetch the keys of tokens, in the background. Warn of listeners that nobody can use."""
        if self._mechanisms is not None:
            self._warn_of_locked_doors(self._mechanisms.with_users())
            self._mechanisms.start()

    def stop(self) -> None:
        if self._mechanisms is not None:
            self._mechanisms.stop()
        self._checks.stop()

    def _warn_of_locked_doors(self, known: Collection[str]) -> None:
        if not self._directories:
            return  # users come from the cluster, later
        for listener in self.by_listener.values():
            if not _can_sign_in(listener.sasl, known):
                logger.warning(
                    "%s: nobody can sign in, because there is no user for %s. Stop the broker, run "
                    "`cordwood users add NAME --at %s`, and start it again",
                    listener.name,
                    " or ".join(listener.mechanisms),
                    ",".join(self._directories),
                )


def _can_sign_in(sasl: SaslConfig, known: Collection[str]) -> bool:
    """Whether somebody may be able to. `known`: the mechanisms that the store has users for."""
    return any(
        mechanism == OAUTHBEARER
        or mechanism in known
        or (mechanism == PLAIN and (known or sasl.of(PLAIN).sasl_jaas_config is not None))
        for mechanism in sasl.mechanisms
    )
