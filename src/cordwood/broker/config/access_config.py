"""Keys of authorization and of quotas: Kafka's, with Kafka's names."""

from typing import Final

from cordwood.broker.config.keyed_config import check_keys, keys_of
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, config_field
from cordwood.quantities import INT32_MAX
from cordwood.security.principal import Principal
from cordwood.value_class import dataclass

_TEXT, _BOOLEAN, _INTEGER = ConfigKind.TEXT, ConfigKind.BOOLEAN, ConfigKind.INTEGER

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Who is checked, and by which rules."""

    authorizer_class_name: str | None = config_field(
        "authorizer.class.name", _TEXT, "",
        "Empty: every client may do everything. Kafka's StandardAuthorizer, or standard for short: "
        "access rules decide.",
        choices=(STANDARD_AUTHORIZER, "standard"), none_text="",
    )  # fmt: skip
    super_users: str = config_field(
        "super.users", _TEXT, "",
        "Users that may do everything, such as User:admin;User:CN=broker, separated by semicolons.",
    )  # fmt: skip
    allow_everyone_if_no_acl_found: bool = config_field(
        "allow.everyone.if.no.acl.found", _BOOLEAN, "false",
        "Whether everybody may use a resource that has no access rule.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_keys(self)
        _ = self.super_principals

    @property
    def has_authorizer(self) -> bool:
        return self.authorizer_class_name is not None

    @property
    def super_principals(self) -> frozenset[Principal]:
        try:
            return frozenset(
                Principal.parse(text.strip())
                for text in self.super_users.split(";")
                if text.strip()
            )
        except ValueError as error:
            raise ConfigError("super.users", self.super_users, str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """How rates are measured."""

    quota_window_num: int = config_field(
        "quota.window.num", _INTEGER, "11",
        "The number of samples that a rate is measured with.", minimum=1, maximum=1000,
    )  # fmt: skip
    quota_window_size_seconds: int = config_field(
        "quota.window.size.seconds", _INTEGER, "1",
        "The time of each sample.", minimum=1, maximum=INT32_MAX,
    )  # fmt: skip
    controller_quota_window_num: int = config_field(
        "controller.quota.window.num", _INTEGER, "11",
        "The number of samples for rates of creations and deletions.", minimum=1, maximum=1000,
    )  # fmt: skip
    controller_quota_window_size_seconds: int = config_field(
        "controller.quota.window.size.seconds", _INTEGER, "1",
        "The time of each of these samples.", minimum=1, maximum=INT32_MAX,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_keys(self)


ACCESS_KEYS: Final[tuple[ConfigKey, ...]] = keys_of(AccessConfig)
QUOTA_KEYS: Final[tuple[ConfigKey, ...]] = keys_of(QuotaConfig)
