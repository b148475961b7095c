"""Changes: each is confirmed by the name of what it changes, and noted with who made it.

They go through the broker, as the viewer, so its access rules decide. Without a broker they are
requested from the owner of the directory, or made here if it has none.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from cordwood.console.pages.config_page import check_value
from cordwood.console.pages.group_pages import RESETS, group_of, plan_reset
from cordwood.console.pages.page import BadParameterError, PageRequest, Redirect
from cordwood.errors import ConfigError
from cordwood.library import request_change
from cordwood.log.inbox.store_change import CommitGroup, StoreChange
from cordwood.log.inbox.topic_change import AlterTopic, ForgetGroup
from cordwood.remote.remote_groups import RemoteGroups
from cordwood.remote.remote_topics import RemoteTopics
from cordwood.value_class import replace

DONE: Final[Mapping[str, str]] = {
    "config": "The configuration was changed.",
    "reset": "The offsets were reset.",
    "deleted": "The group was deleted.",
}


def change_config(request: PageRequest) -> Redirect:
    """Set or reset one key of a topic."""
    topic = request.topic()
    request.check_may_change()
    key, value = request.form.get("key", "").strip(), request.form.get("value", "").strip()
    _check_confirmed(request, topic.name)
    if not key:
        raise BadParameterError("Choose a key.")
    try:
        check_value(key, value)
    except ConfigError as error:
        raise BadParameterError(str(error)) from error
    changes = {key: value or None}
    text = (
        f"set {key} = {value} for topic {topic.name}"
        if value
        else (f"reset {key} of topic {topic.name} to its default")
    )

    def change() -> None:
        access = request.viewer.access
        if access is None:
            _ask_owner(request, AlterTopic(topic=topic.name, config=changes))
            return
        with access.connected() as cluster:
            RemoteTopics(cluster).alter_config(topic.name, changes)

    request.console.audit(request.viewer, request.address, text, change)
    return Redirect(location=f"/topics/{topic.name}/config?done=config", message=DONE["config"])


def reset_group(request: PageRequest) -> Redirect:
    """Commit other offsets for a group without members."""
    request.check_may_change()
    asked = _with_form(request)
    group = group_of(asked)
    _check_confirmed(request, group.name)
    to = request.form.get("to", "")
    if to not in RESETS:
        raise BadParameterError("Choose where to.")
    rows = plan_reset(
        request, group, to, request.form.get("value", "").strip(), request.form.get("topic") or None
    )
    if not rows:
        raise BadParameterError("The group has no committed offsets there.")
    offsets = {(row.topic, row.partition): (row.target, "") for row in rows}
    where = f"{RESETS[to].lower()} {request.form.get('value', '')}".strip()
    text = f"reset {len(rows)} offsets of group {group.name}: {where}"

    def change() -> None:
        access = request.viewer.access
        if access is None:
            _ask_owner(request, CommitGroup(group=group.name, offsets=offsets))
            return
        with access.connected() as cluster:
            RemoteGroups(cluster).commit(group.name, offsets)

    request.console.audit(request.viewer, request.address, text, change)
    return Redirect(
        location=f"/groups/view?name={quote(group.name, safe='')}&done=reset", message=DONE["reset"]
    )


def delete_group(request: PageRequest) -> Redirect:
    """Remove a group without members, with its committed offsets."""
    request.check_may_change()
    group = group_of(_with_form(request))
    _check_confirmed(request, group.name)

    def change() -> None:
        access = request.viewer.access
        if access is None:
            _ask_owner(request, ForgetGroup(group=group.name))
            return
        with access.connected() as cluster:
            RemoteGroups(cluster).delete(group.name)

    text = f"delete group {group.name}"
    request.console.audit(request.viewer, request.address, text, change)
    return Redirect(location="/groups?done=deleted", message=DONE["deleted"])


def _with_form(request: PageRequest) -> PageRequest:
    return replace(request, parameters=request.form)


def _check_confirmed(request: PageRequest, name: str) -> None:
    if request.form.get("confirm", "") != name:
        raise BadParameterError(f"To confirm, type the name exactly: {name}")


def _ask_owner(request: PageRequest, change: StoreChange) -> None:
    opened = request.console.opened
    assert opened is not None
    first, *others = opened.store.data_dirs
    request_change(first, change, data_dirs=others, defaults=opened.defaults)
