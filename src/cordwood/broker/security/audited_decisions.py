"""What the authorizer and the authenticators report, as events of the audit log."""

from cordwood.broker.security.authentication_events import Attempt
from cordwood.broker.security.security_events import (
    AccessDecision,
    Authentication,
    Origin,
    SecurityEvents,
)
from cordwood.security.access.access_event import AccessEvent
from cordwood.security.principal import USER, Principal
from cordwood.security.security_state import AclRule


class AuditedDecisions:
    """Listens to decisions and passes them on. Any thread.

    A permission is not an event: the change that follows it is, with its values.
    """

    def __init__(self, events: SecurityEvents) -> None:
        self._events = events

    def decided(self, event: AccessEvent) -> None:
        if event.is_allowed:
            return
        request, reason = event.request, event.reason
        self._events.report(
            AccessDecision(
                origin=Origin(
                    principal=str(event.principal),
                    address=event.host,
                    listener=request.listener,
                    client_id=request.client_id,
                ),
                api=request.api,
                operation=request.operation.name,
                resource=request.resource.name,
                name=request.name,
                is_allowed=False,
                rule=rule_in_words(reason) if isinstance(reason, AclRule) else reason,
            )
        )

    # --- authentication ----------------------------------------------------------------------

    def succeeded(self, attempt: Attempt, principal: Principal) -> None:
        self._attempted(attempt, str(principal), is_accepted=True)

    def failed(self, attempt: Attempt, reason: str) -> None:
        claimed = str(Principal(USER, attempt.user)) if attempt.user else ""
        self._attempted(attempt, claimed, is_accepted=False, reason=reason)

    def _attempted(
        self, attempt: Attempt, principal: str, *, is_accepted: bool, reason: str = ""
    ) -> None:
        self._events.report(
            Authentication(
                origin=Origin(
                    principal=principal,
                    address=attempt.client_host,
                    listener=attempt.listener,
                    client_id=attempt.client_id,
                ),
                mechanism=attempt.mechanism or "",
                is_accepted=is_accepted,
                reason=reason,
            )
        )


def rule_in_words(rule: AclRule) -> str:
    """``User:bob from 10.0.0.1 DENY WRITE on TOPIC LITERAL orders``."""
    return (
        f"{rule.principal} from {rule.host} {rule.permission.name} {rule.operation.name} on "
        f"{rule.resource.name} {rule.pattern.name} {rule.name}"
    )
