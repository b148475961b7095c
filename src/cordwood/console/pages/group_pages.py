"""Groups: their lag in records and in time, their members, and resetting their offsets."""

from collections.abc import Mapping
from typing import Final

from cordwood.console.facts.cluster_facts import GroupFacts, MemberFacts, Place
from cordwood.console.facts.topic_records import Extent, TopicRecords
from cordwood.console.finding.query_syntax import parse_moment_ms
from cordwood.console.pages.page import BadParameterError, PageNotFoundError, PageRequest
from cordwood.console.views.group_rows import groups_page
from cordwood.console.views.lag import GroupPosition, GroupRow, group_row, positions_of
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.errors import CordwoodError
from cordwood.remote.remote_groups import DEAD, RemoteGroups
from cordwood.value_class import dataclass, replace

_TIMED_MAX: Final = 200  # partitions whose time lag is looked up for one page


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    table: TablePage[GroupRow]
    knows_states: bool


def show_groups(request: PageRequest) -> GroupsView:
    state = TableState.parse(request.parameters, sort="-lag")
    return GroupsView(
        table=groups_page(request.snapshot, state),
        knows_states=request.snapshot.broker is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group. `members` is None if no broker can be asked."""

    row: GroupRow
    assignor: str | None
    members: tuple[MemberFacts, ...] | None
    members_problem: str | None
    table: TablePage[GroupPosition]
    may_reset: bool


_COLUMNS: Final[tuple[Column[GroupPosition], ...]] = (
    Column(name="topic", title="Topic", value=lambda p: p.topic),
    Column(name="partition", title="Partition", value=lambda p: p.partition, is_number=True),
    Column(name="offset", title="Committed", value=lambda p: p.offset, is_number=True),
    Column(name="start", title="Log start", value=lambda p: p.start_offset, is_number=True),
    Column(name="end", title="High watermark", value=lambda p: p.end_offset, is_number=True),
    Column(name="lag", title="Lag", value=lambda p: p.lag, is_number=True),
    Column(
        name="time",
        title="Time lag",
        value=lambda p: p.lag_ms,
        is_number=True,
        help="The age of the oldest record that the group has not read.",
    ),
    Column(name="member", title="Member", value=lambda p: p.client_id),
)


def group_of(request: PageRequest) -> GroupFacts:
    name = request.parameters.get("name", "")
    found = request.snapshot.groups.get(name)
    if found is None:
        found = request.viewer.visible(request.console.keeper.take_now()).groups.get(name)
    if found is None:
        raise PageNotFoundError(f"There is no group {name[:80]!r}, or you may not see it.")
    return found


def show_group(request: PageRequest) -> GroupView:
    group = group_of(request)
    assignor, members, problem = _members(request, group.name)
    owners: dict[Place, MemberFacts] = {}
    for member in members or ():
        owners |= dict.fromkeys(member.partitions, member)
    times = _time_lags(request, group)
    positions = [
        replace(
            position,
            member=owner.member_id if owner else None,
            client_id=owner.client_id if owner else None,
        )
        for position in positions_of(group, request.snapshot, times)
        for owner in (owners.get((position.topic, position.partition)),)
    ]
    state = TableState.parse(request.parameters, sort="-lag")
    return GroupView(
        row=group_row(group, request.snapshot),
        assignor=assignor,
        members=members,
        members_problem=problem,
        table=table_page(positions, _COLUMNS, state, text=lambda p: f"{p.topic} {p.client_id}"),
        may_reset=request.viewer.may_change and not members,
    )


def _members(
    request: PageRequest, name: str
) -> tuple[str | None, tuple[MemberFacts, ...] | None, str | None]:
    access = request.viewer.access
    if access is None:
        return None, None, None
    try:
        with access.connected() as cluster:
            described = RemoteGroups(cluster).describe(name)
    except (CordwoodError, OSError) as error:
        return None, None, str(error)
    if described.state == DEAD:
        return None, (), None
    return (
        described.assignor or None,
        tuple(
            MemberFacts(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.host,
                partitions=member.partitions,
            )
            for member in described.members
        ),
        None,
    )


def _time_lags(request: PageRequest, group: GroupFacts) -> Mapping[Place, int]:
    """The age of the next record of each partition that has a lag. Reads one record of each."""
    if request.console.opened is None:
        return {}
    readers: dict[str, TopicRecords] = {}
    found: dict[Place, int] = {}
    for committed in group.committed[:_TIMED_MAX]:
        place = (committed.topic, committed.partition)
        facts = request.snapshot.partition(place)
        if facts is None or facts.end_offset is None:
            continue
        if committed.offset >= facts.end_offset:
            found[place] = 0
            continue
        if not request.viewer.may_read(committed.topic):
            continue
        try:
            if committed.topic not in readers:
                readers[committed.topic] = request.console.records(committed.topic, request.viewer)
            records = readers[committed.topic].read(
                committed.partition, committed.offset, facts.end_offset, 1
            )
        except (CordwoodError, OSError):
            continue
        if records and records[0].timestamp_ms is not None and records[0].timestamp_ms >= 0:
            found[place] = max(request.now_ms - records[0].timestamp_ms, 0)
    return found


# --- resetting -------------------------------------------------------------------------------

RESETS: Final = {
    "start": "To the start of the log",
    "end": "To the end of the log",
    "offset": "To an offset",
    "time": "To a time",
    "shift": "By a number of records",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRow:
    topic: str
    partition: int
    current: int
    target: int
    start_offset: int
    end_offset: int

    @property
    def moved(self) -> int:
        return self.target - self.current


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetView:
    """The form, and the preview of what it would do."""

    name: str
    to: str
    value: str
    topic: str
    topics: tuple[str, ...]
    rows: tuple[ResetRow, ...]
    has_preview: bool
    choices: dict[str, str]
    members: int | None
    problem: str | None = None


def show_reset(request: PageRequest) -> ResetView:
    group = group_of(request)
    request.check_may_change()
    to = request.choice("to", RESETS, "start")
    topics = tuple(sorted({committed.topic for committed in group.committed}))
    chosen = request.text("topic")
    has_preview = "to" in request.parameters
    rows: tuple[ResetRow, ...] = ()
    problem = None
    if has_preview:
        try:
            rows = tuple(plan_reset(request, group, to, request.text("value"), chosen or None))
        except BadParameterError as error:
            problem = str(error)
            has_preview = False
    _, members, _ = _members(request, group.name)
    return ResetView(
        name=group.name,
        to=to,
        value=request.text("value"),
        topic=chosen,
        topics=topics,
        rows=rows,
        has_preview=has_preview,
        choices=RESETS,
        members=None if members is None else len(members),
        problem=problem,
    )


def plan_reset(
    request: PageRequest, group: GroupFacts, to: str, value: str, topic: str | None
) -> list[ResetRow]:
    """Where each committed offset would go. Nothing is changed."""
    found: list[ResetRow] = []
    by_topic: dict[str, dict[int, int]] = {}
    for committed in group.committed:
        if topic is None or committed.topic == topic:
            by_topic.setdefault(committed.topic, {})[committed.partition] = committed.offset
    for name, offsets in sorted(by_topic.items()):
        if name not in request.snapshot.topics:
            continue
        records = request.console.records(name, request.viewer)
        extents = records.extents()
        at = records.offsets_at(_moment(value)) if to == "time" else {}
        for number, current in sorted(offsets.items()):
            extent = extents.get(number)
            if extent is None:
                continue
            wanted = _target(to, value, current, extent, at.get(number, extent.end))
            found.append(
                ResetRow(
                    topic=name,
                    partition=number,
                    current=current,
                    target=extent.clamp(wanted),
                    start_offset=extent.start,
                    end_offset=extent.end,
                )
            )
    return found


def _target(to: str, value: str, current: int, extent: Extent, at: int) -> int:
    match to:
        case "start":
            return extent.start
        case "end":
            return extent.end
        case "time":
            return at
        case "offset":
            return _whole(value)
        case _:
            return current + _whole(value, may_be_negative=True)


def _moment(value: str) -> int:
    try:
        return parse_moment_ms(value)
    except (ValueError, OverflowError) as error:
        raise BadParameterError(
            f"{value[:40]!r} is not a time such as 2026-11-17T09:00 (UTC)."
        ) from error


def _whole(value: str, *, may_be_negative: bool = False) -> int:
    digits = value.removeprefix("-").removeprefix("+") if may_be_negative else value
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise BadParameterError(f"{value[:40]!r} is not a whole number.")
    return int(value)
