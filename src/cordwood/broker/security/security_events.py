"""What the audit log is about: who signed in, who was refused, who changed what.

An event is a value. The code that decides or changes something reports it to `SecurityEvents` and
goes on: a report never blocks and never fails. Texts of clients may be of any length and hold any
characters; the audit log cuts and escapes them.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, Union

from cordwood.value_class import dataclass, field

# Values that JSON has. Secrets are not put in: see `audit_record.HIDDEN`.
Detail = Union[None, bool, int, float, str, "Sequence[Detail]", "Mapping[str, Detail]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who caused an event, and from where."""

    principal: str  # User:alice
    address: str
    listener: str = ""
    client_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """A client proved who it is, or failed to. `origin.principal` is the claimed one."""

    origin: Origin
    mechanism: str  # SCRAM-SHA-256, PLAIN, SSL
    is_accepted: bool
    reason: str = ""  # of a failure, in words for the operator; never a password or a token


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """The authorizer decided. Refusals are reported, and what allowed administrators do."""

    origin: Origin
    api: str  # Produce
    operation: str  # WRITE
    resource: str  # TOPIC
    name: str
    is_allowed: bool
    rule: str = ""  # the rule that decided, in words; empty: no rule matched


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrativeChange:
    """Something was changed by an administrator: it is in effect when this is reported."""

    origin: Origin
    api: str  # CreateTopics
    operation: str  # CREATE, DELETE, ALTER, ALTER_CONFIGS
    resource: str  # TOPIC, GROUP, BROKER, USER, ACL, QUOTA
    name: str
    old: Mapping[str, Detail] = field(default_factory=dict)  # values before; secrets left out
    new: Mapping[str, Detail] = field(default_factory=dict)


SecurityEvent = Authentication | AccessDecision | AdministrativeChange


class SecurityEvents(Protocol):
    """Takes events. Any thread may report; a report neither blocks nor raises."""

    def report(self, event: SecurityEvent) -> None: ...


class UnwatchedEvents:
    """Nobody looks."""

    def report(self, event: SecurityEvent) -> None:
        return


UNWATCHED: Final[SecurityEvents] = UnwatchedEvents()
