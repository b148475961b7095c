"""Users, access rules and quotas; settings; what the console saw happen."""

from typing import Final

from cordwood.console.facts.events import Event
from cordwood.console.pages.page import PageNotFoundError, PageRequest
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.errors import BrokerRefusedError, CordwoodError
from cordwood.remote import api_calls
from cordwood.remote.refusals import check
from cordwood.remote.remote_acls import RemoteAcls
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_quotas import RemoteQuotas
from cordwood.remote.remote_users import RemoteUsers
from cordwood.value_class import dataclass

_BROKER: Final = 4
_RULES_OFF: Final = "security_disabled"
_SOURCES: Final = {
    1: "topic",
    2: "set while it runs",
    3: "set while it runs, for all brokers",
    4: "file, environment or flag",
    5: "default",
}

# --- users, access rules, quotas -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow:
    name: str
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    principal: str
    permission: str
    operation: str
    resource: str
    pattern: str
    name: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    entity: str
    key: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityView:
    """What could not be asked has its reason instead."""

    users: tuple[UserRow, ...]
    users_problem: str | None
    rules: TablePage[RuleRow]
    rules_problem: str | None
    has_no_rules: bool
    quotas: tuple[QuotaRow, ...]
    quotas_problem: str | None


_RULE_COLUMNS: Final[tuple[Column[RuleRow], ...]] = (
    Column(name="principal", title="Principal", value=lambda r: r.principal),
    Column(name="permission", title="Permission", value=lambda r: r.permission),
    Column(name="operation", title="Operation", value=lambda r: r.operation),
    Column(name="resource", title="Resource", value=lambda r: r.resource),
    Column(name="pattern", title="Pattern", value=lambda r: r.pattern),
    Column(name="name", title="Name", value=lambda r: r.name),
    Column(name="host", title="Host", value=lambda r: r.host),
)


def show_security(request: PageRequest) -> SecurityView:
    access = request.viewer.access
    if access is None:
        raise PageNotFoundError("Users and access rules are known by a broker; none is asked here.")
    with access.connected() as cluster:
        users, users_problem = _users(cluster)
        rules, rules_problem, has_no_rules = _rules(cluster)
        quotas, quotas_problem = _quotas(cluster)
    state = TableState.parse(request.parameters, sort="principal")
    return SecurityView(
        users=users,
        users_problem=users_problem,
        rules=table_page(
            rules,
            _RULE_COLUMNS,
            state,
            text=lambda r: f"{r.principal} {r.operation} {r.resource} {r.name}",
        ),
        rules_problem=rules_problem,
        has_no_rules=has_no_rules,
        quotas=quotas,
        quotas_problem=quotas_problem,
    )


def _users(cluster: RemoteCluster) -> tuple[tuple[UserRow, ...], str | None]:
    try:
        found = RemoteUsers(cluster).users()
    except CordwoodError as error:
        return (), str(error)
    return tuple(
        UserRow(
            name=name,
            mechanisms=tuple(
                f"{mechanism.mechanism} ({iterations} iterations)"
                for mechanism, iterations in mechanisms.items()
            ),
        )
        for name, mechanisms in found.items()
    ), None


def _rules(cluster: RemoteCluster) -> tuple[list[RuleRow], str | None, bool]:
    """The rules, or why there are none; and whether the broker has rules at all."""
    try:
        found = RemoteAcls(cluster).find()
    except CordwoodError as error:
        is_off = isinstance(error, BrokerRefusedError) and error.code == _RULES_OFF
        return [], str(error), is_off
    return (
        [
            RuleRow(
                principal=rule.principal,
                permission=_word(rule.permission.name),
                operation=_word(rule.operation.name),
                resource=_word(rule.resource.name),
                pattern=_word(rule.pattern.name),
                name=rule.name,
                host=rule.host,
            )
            for rule in found
        ],
        None,
        False,
    )


def _word(name: str) -> str:
    return name.replace("_", " ").lower()


def _quotas(cluster: RemoteCluster) -> tuple[tuple[QuotaRow, ...], str | None]:
    try:
        found = RemoteQuotas(cluster).quotas()
    except CordwoodError as error:
        return (), str(error)
    return tuple(
        QuotaRow(
            entity=", ".join(
                f"{kind.replace('_', ' ')} {'(default)' if name == '' else name}"
                for kind, name in entity._asdict().items()
                if name is not None
            ),
            key=key,
            value=value,
        )
        for entity, values in found.items()
        for key, value in values.items()
    ), None


# --- settings --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    key: str
    value: str
    source: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsView:
    console: tuple[tuple[str, str], ...]
    table: TablePage[SettingRow] | None
    problem: str | None


_SETTING_COLUMNS: Final[tuple[Column[SettingRow], ...]] = (
    Column(name="key", title="Key", value=lambda r: r.key),
    Column(name="value", title="Value", value=lambda r: r.value),
    Column(name="source", title="Source", value=lambda r: r.source),
)


def show_settings(request: PageRequest) -> SettingsView:
    request.check_sees_cluster()
    table, problem = None, None
    if request.viewer.access is not None:
        try:
            with request.viewer.access.connected() as cluster:
                rows = _broker_settings(cluster)
        except (CordwoodError, OSError) as error:
            problem = str(error)
        else:
            state = TableState.parse(request.parameters, sort="key")
            table = table_page(
                rows, _SETTING_COLUMNS, state, text=lambda r: f"{r.key} {r.value} {r.source}"
            )
    return SettingsView(console=_own_settings(request), table=table, problem=problem)


def _own_settings(request: PageRequest) -> tuple[tuple[str, str], ...]:
    config, opened = request.console.config, request.console.opened
    access = request.console.access
    return (
        (
            "Data directories",
            ", ".join(opened.store.data_dirs) if opened else "not on this machine",
        ),
        ("Broker", access.shown_address if access else "none is asked"),
        ("Looks at the store every", f"{config.interval_s:g} s"),
        ("Changes", "allowed" if config.allows_changes else "not allowed (--allow-changes)"),
        ("Login", "users of the broker" if config.needs_login else "none; only this machine"),
        ("Masking rules", ", ".join(map(str, config.masking.rules)) or "none"),
    )


def _broker_settings(cluster: RemoteCluster) -> list[SettingRow]:
    cluster.describe([])
    answer = cluster.anyone().call(
        api_calls.DESCRIBE_CONFIGS(
            {
                "resources": [
                    {
                        "resource_type": _BROKER,
                        "resource_name": str(_first_broker(cluster)),
                        "configuration_keys": None,
                    }
                ],
                "include_documentation": True,
            }
        )
    )
    [result] = answer.results
    check(result.error_code, "describe the broker", message=result.error_message)
    return [
        SettingRow(
            key=entry.name,
            value="(hidden)" if entry.is_sensitive else entry.value or "",
            source=_SOURCES.get(entry.config_source, "broker"),
            meaning=getattr(entry, "documentation", None) or "",
        )
        for entry in result.configs
    ]


def _first_broker(cluster: RemoteCluster) -> int:
    return min(cluster.broker_ids, default=0)


# --- log -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    table: TablePage[Event]
    watched_since_ms: int


_EVENT_COLUMNS: Final[tuple[Column[Event], ...]] = (
    Column(name="time", title="Time", value=lambda e: e.time_ms, is_number=True),
    Column(name="severity", title="Severity", value=lambda e: e.severity),
    Column(name="kind", title="Kind", value=lambda e: e.kind),
    Column(name="text", title="What happened", value=lambda e: e.text),
    Column(name="user", title="Who", value=lambda e: e.user),
)


def show_log(request: PageRequest) -> LogView:
    request.check_sees_cluster()
    state = TableState.parse(request.parameters, sort="-time")
    return LogView(
        table=table_page(
            list(reversed(request.console.keeper.events)),
            _EVENT_COLUMNS,
            state,
            text=lambda event: f"{event.kind} {event.severity} {event.text}",
        ),
        watched_since_ms=request.console.started_ms,
    )
