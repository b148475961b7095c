"""The authorizer of a broker, as its configuration and its security file have it."""

from cordwood.broker.config.security_config import SecurityConfig
from cordwood.security.access.access_event import AccessEvents
from cordwood.security.access.authorizer import Authorizer, OpenAccess, PrincipalAccess
from cordwood.security.principal import Principal
from cordwood.security.security_source import SecuritySource


class BrokerSecurity:
    """Gives each client its access. Any thread may call it.

    The rules of the file are in force from the start on; a change counts as soon as it is durable.
    """

    def __init__(self, config: SecurityConfig, file: SecuritySource, events: AccessEvents) -> None:
        self.config = config
        self.file = file
        self._events = events
        self._authorizer: Authorizer | None = None
        if config.access.has_authorizer:
            self._authorizer = Authorizer(
                super_users=config.access.super_principals,
                allows_everyone=config.access.allow_everyone_if_no_acl_found,
                events=events,
            )
            file.when_changed(self._authorizer.use)

    @property
    def has_authorizer(self) -> bool:
        return self._authorizer is not None

    def access_of(self, principal: Principal, host: str) -> PrincipalAccess | OpenAccess:
        if self._authorizer is None:
            return OpenAccess(principal, host, self._events)
        return self._authorizer.access_of(principal, host)
