"""The mechanisms of SASL, and the users and keys that they check. Loaded if a listener needs it."""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.broker.config.sasl_config import SaslKeys
from cordwood.broker.config.security_config import LISTENER_PREFIX
from cordwood.errors import ConfigError
from cordwood.security.sasl.jaas import parse_plain_users
from cordwood.security.sasl.oauth_exchange import OAuthExchange
from cordwood.security.sasl.plain_exchange import ListedPasswords, PlainExchange
from cordwood.security.sasl.sasl_exchange import OAUTHBEARER, PLAIN, MakeExchange
from cordwood.security.sasl.scram_credentials import KnownCredential, UserDirectory, matches_any
from cordwood.security.sasl.scram_exchange import ScramExchange
from cordwood.security.sasl.token_keys import require_packages
from cordwood.security.sasl.tokens import TokenRules, UnknownKeyError, ValidToken, check_token
from cordwood.security.security_source import SecuritySource
from cordwood.security.security_state import ScramMechanism, SecurityState

if TYPE_CHECKING:
    from cordwood.broker.security.token_key_source import KeyAddress, TokenKeySource

_NONCE_BYTES: Final = 24


class SaslMechanisms:
    """Makes the exchanges of all listeners. Belongs to `Authentications`; any thread may call."""

    def __init__(self, file: SecuritySource) -> None:
        self._sources: dict[KeyAddress, TokenKeySource] = {}
        self._secret = file.secret
        self._directory = UserDirectory(SecurityState(), file.secret)
        file.when_changed(self._users_changed)

    def start(self) -> None:
        """Fetch the keys of tokens, in the background."""
        for source in self._sources.values():
            source.start()

    def stop(self) -> None:
        for source in self._sources.values():
            source.stop()

    def with_users(self) -> set[str]:
        """The mechanisms that the store has users for."""
        return {owner.mechanism.mechanism for owner in self._directory.credentials}

    def _users_changed(self, state: SecurityState) -> None:
        if state.credentials is not self._directory.credentials:
            self._directory = UserDirectory(state, self._secret)

    def _find(self, user: str, mechanism: ScramMechanism) -> KnownCredential:
        return self._directory.find(user, mechanism)

    def _is_password(self, user: str, password: str) -> bool:
        return matches_any(self._directory, user, password)

    def maker(self, listener: str, mechanism: str, keys: SaslKeys) -> MakeExchange:
        """What makes the exchanges of a mechanism. Raises `ConfigError`."""
        listed = _listed_users(listener, keys)
        if mechanism == PLAIN:
            is_password = (
                self._is_password if listed is None else ListedPasswords(listed).is_password
            )
            return lambda: PlainExchange(is_password)
        if mechanism == OAUTHBEARER:
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


def _listed_users(listener: str, keys: SaslKeys) -> Mapping[str, str] | None:
    """The users in the configuration; None: those of the store."""
    if keys.sasl_jaas_config is None:
        return None
    try:
        return parse_plain_users(keys.sasl_jaas_config) or None
    except ValueError as error:
        key = f"{LISTENER_PREFIX}{listener.lower()}.sasl.jaas.config"
        raise ConfigError(key, "[hidden]", str(error)) from None
