"""How the clients of each listener authenticate: what the configuration and the users come to."""

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.broker.config.sasl_config import SaslConfig, SaslKeys
from cordwood.broker.config.security_config import LISTENER_PREFIX, ListenerConfig
from cordwood.broker.security.authentication_events import (
    AuthenticationCounts,
    AuthenticationEvents,
    EventGroup,
    FailureLog,
)
from cordwood.broker.security.credential_checks import CredentialChecks
from cordwood.clock import Clock
from cordwood.errors import ConfigError
from cordwood.security.sasl.jaas import parse_plain_users
from cordwood.security.sasl.oauth_exchange import OAuthExchange
from cordwood.security.sasl.plain_exchange import ListedPasswords, PlainExchange
from cordwood.security.sasl.sasl_exchange import Exchange
from cordwood.security.sasl.scram_credentials import KnownCredential, UserDirectory, matches_any
from cordwood.security.sasl.scram_exchange import ScramExchange
from cordwood.security.sasl.token_keys import require_packages
from cordwood.security.sasl.tokens import TokenRules, UnknownKeyError, ValidToken, check_token
from cordwood.security.security_source import SecuritySource
from cordwood.security.security_state import ScramMechanism, SecurityState
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.broker.security.token_key_source import KeyAddress, TokenKeySource

logger = logging.getLogger(__name__)

_PLAIN: Final = "PLAIN"
_OAUTHBEARER: Final = "OAUTHBEARER"
_NONCE_BYTES: Final = 24

MakeExchange = Callable[[], Exchange]


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
        self._sources: dict[KeyAddress, TokenKeySource] = {}
        self._secret = file.secret
        self._directories = file.directories
        self._directory = UserDirectory(SecurityState(), file.secret)
        file.when_changed(self._users_changed)
        self.by_listener: dict[str, ListenerAuthentication] = {
            listener.name: ListenerAuthentication(
                name=listener.name,
                sasl=listener.sasl,
                exchanges={
                    mechanism: self._maker(listener.name, mechanism, listener.sasl.of(mechanism))
                    for mechanism in listener.sasl.mechanisms
                },
                checks=self._checks,
                events=self.events,
                counts=self.counts,
                clock=clock,
            )
            for listener in listeners
            if listener.sasl is not None
        }

    def watch(self, listener: AuthenticationEvents) -> None:
        """Tell `listener` of every attempt. Before the broker starts."""
        self.events.add(listener)
        self.certificate_events.add(listener)

    def start(self) -> None:
        """Fetch the keys of tokens, in the background. Warn of listeners that nobody can use."""
        self._warn_of_locked_doors()
        for source in self._sources.values():
            source.start()

    def stop(self) -> None:
        for source in self._sources.values():
            source.stop()
        self._checks.stop()

    def _warn_of_locked_doors(self) -> None:
        if not self._directories:
            return  # users come from the cluster, later
        known = {owner.mechanism.mechanism for owner in self._directory.credentials}
        for listener in self.by_listener.values():
            if not _can_sign_in(listener.sasl, known):
                logger.warning(
                    "%s: nobody can sign in, because there is no user for %s. Stop the broker, run "
                    "`cordwood users add NAME --at %s`, and start it again",
                    listener.name,
                    " or ".join(listener.mechanisms),
                    ",".join(self._directories),
                )

    def _users_changed(self, state: SecurityState) -> None:
        if state.credentials is not self._directory.credentials:
            self._directory = UserDirectory(state, self._secret)

    def _find(self, user: str, mechanism: ScramMechanism) -> KnownCredential:
        return self._directory.find(user, mechanism)

    def _is_password(self, user: str, password: str) -> bool:
        return matches_any(self._directory, user, password)

    def _maker(self, listener: str, mechanism: str, keys: SaslKeys) -> MakeExchange:
        listed = _listed_users(listener, keys)
        if mechanism == _PLAIN:
            is_password = (
                self._is_password if listed is None else ListedPasswords(listed).is_password
            )
            return lambda: PlainExchange(is_password)
        if mechanism == _OAUTHBEARER:
            check = self._token_check(keys)
            return lambda: OAuthExchange(check)
        kind = ScramMechanism[mechanism.replace("-", "_")]
        return lambda: ScramExchange(kind, self._find, secrets.token_urlsafe(_NONCE_BYTES))

    def _token_check(self, keys: SaslKeys) -> Callable[[str, int], ValidToken]:
        # Not at the top: what fetches would delay the start of every broker.
        from cordwood.broker.security.token_key_source import KeyAddress, TokenKeySource

        require_packages()
        address = KeyAddress.of_config(keys)
        source = self._sources.get(address)
        if source is None:
            source = self._sources[address] = TokenKeySource(address)
        found = source
        rules = TokenRules(
            audience=keys.sasl_oauthbearer_expected_audience,
            issuer=keys.sasl_oauthbearer_expected_issuer,
            skew_s=keys.sasl_oauthbearer_clock_skew_seconds,
            scope_claim=keys.sasl_oauthbearer_scope_claim_name,
            subject_claim=keys.sasl_oauthbearer_sub_claim_name,
        )

        def check(token: str, now_ms: int) -> ValidToken:
            try:
                return check_token(token, found.keys, rules, now_ms)
            except UnknownKeyError:
                found.missed()
                raise

        return check


def _can_sign_in(sasl: SaslConfig, known: Collection[str]) -> bool:
    """Whether somebody may be able to. `known`: the mechanisms that the store has users for."""
    return any(
        mechanism == _OAUTHBEARER
        or mechanism in known
        or (mechanism == _PLAIN and (known or sasl.of(_PLAIN).sasl_jaas_config is not None))
        for mechanism in sasl.mechanisms
    )


def _listed_users(listener: str, keys: SaslKeys) -> Mapping[str, str] | None:
    """The users in the configuration; None: those of the store."""
    if keys.sasl_jaas_config is None:
        return None
    try:
        return parse_plain_users(keys.sasl_jaas_config) or None
    except ValueError as error:
        key = f"{LISTENER_PREFIX}{listener.lower()}.sasl.jaas.config"
        raise ConfigError(key, "[hidden]", str(error)) from None
