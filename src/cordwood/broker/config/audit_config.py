"""Keys of the audit log: who did what, and who was refused."""

from typing import Final

from cordwood.broker.config.keyed_config import check_keys, keys_of
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, config_field
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """Where audit events go, and how many."""

    audit_file: str | None = config_field(
        "audit.file", ConfigKind.TEXT, "",
        "A file that audit events are appended to, as lines of JSON; - for standard error; empty: "
        "no file.",
        none_text="", since_cordwood=True,
    )  # fmt: skip
    audit_topic: str | None = config_field(
        "audit.topic", ConfigKind.TEXT, "",
        "A topic that audit events are appended to. It is created if it is missing.",
        pattern=r"[A-Za-z0-9._-]{1,249}", requirement="must be the name of a topic",
        none_text="", since_cordwood=True,
    )  # fmt: skip
    audit_events_per_second: int = config_field(
        "audit.events.per.second", ConfigKind.INTEGER, "10",
        "At most so many refusals or sign-ins of one user about one resource and one API, and ten "
        "times as many of one user at one address; the next one says how many were left out.",
        minimum=1, maximum=INT32_MAX, since_cordwood=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_keys(self)

    @property
    def closed_topics(self) -> frozenset[str]:
        """Topics that only the broker writes to, and that are not deleted through it."""
        return frozenset() if self.audit_topic is None else frozenset({self.audit_topic})


AUDIT_KEYS: Final[tuple[ConfigKey, ...]] = keys_of(AuditConfig)
