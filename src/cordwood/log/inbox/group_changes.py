"""The port for changes of groups that are requested through the inbox."""

from typing import Protocol

from cordwood.log.inbox.store_change import CommitGroup
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.topics.group import Group


class GroupChanges(Protocol):
    """Makes changes of groups. Called in the thread that serves the inbox.

    A change that cannot be made raises `LogError`, and nothing is changed.
    """

    def commit(self, change: CommitGroup) -> None: ...
    def forget(self, change: ForgetGroup) -> None: ...


class DirectGroupChanges:
    """Changes committed offsets without asking anyone: for a store that no broker serves."""

    def __init__(self, offsets: CommittedOffsets) -> None:
        self._offsets = offsets

    def commit(self, change: CommitGroup) -> None:
        Group(change.group, self._offsets).commit(change.offsets)

    def forget(self, change: ForgetGroup) -> None:
        if change.places is None or change.places:
            Group(change.group, self._offsets).forget(*(change.places or ()))
