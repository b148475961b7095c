"""Appends the records of one group to the log, in order and without holes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from cordwood.broker.groups.journal.group_log import Done, GroupLog
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass, field

# A batch must be smaller than the topic's max.message.bytes. The assignment of a large group is
# larger than that.
_PART_BYTES_MAX: Final = 256 * 1024


@dataclass(slots=True, eq=False)
class _Part:
    records: Sequence[GroupRecord]
    listeners: list[Done] = field(default_factory=list)


class GroupJournal:
    """Appends for one group, in order. For the control loop.

    `done` is called after all earlier appends of the group are durable as well, even if the call
    itself has no records: its answer may depend on the earlier changes.

    Records that could not be appended are written before the next ones, so that the log has no
    hole once it can be written again. `leftovers` are keys in the log that have no meaning any
    more; tombstones for them are written in the same way.
    """

    def __init__(self, group_id: str, group_log: GroupLog, leftovers: Iterable[bytes] = ()) -> None:
        self._group_id = group_id
        self._group_log = group_log
        self._under_way: list[_Part] = []
        self._lost: dict[bytes, bytes | None] = dict.fromkeys(leftovers)

    @property
    def lost_keys(self) -> Collection[bytes]:
        """Keys whose newest record is not in the log."""
        return self._lost.keys()

    def append(self, records: Sequence[GroupRecord], done: Done) -> None:
        """Call `done` with `none` once the records are durable, otherwise with an error code.

        It is called at once if there is nothing to wait for.
        """
        if not (records or self._lost):
            if self._under_way:
                self._under_way[-1].listeners.append(done)
            else:
                done(ErrorCode.none)
            return
        parts = _parts([*self._lost.items(), *records])
        self._lost.clear()
        codes: list[ErrorCode] = []
        for part in parts:
            part.listeners.append(codes.append)
        parts[-1].listeners.append(lambda _: done(_worst(codes)))
        for part in parts:
            self._under_way.append(part)
            self._group_log.append(self._group_id, part.records, self._finisher(part))

    def _finisher(self, part: _Part) -> Callable[[ErrorCode], None]:
        def finish(code: ErrorCode) -> None:
            self._under_way.remove(part)
            if code is not ErrorCode.none:
                self._keep(part)
            for listener in part.listeners:
                listener(code)

        return finish

    def _keep(self, part: _Part) -> None:
        newer = {key for later in self._under_way for key, _ in later.records}
        self._lost.update((key, value) for key, value in part.records if key not in newer)


def _worst(codes: Sequence[ErrorCode]) -> ErrorCode:
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


def _parts(records: Sequence[GroupRecord]) -> list[_Part]:
    parts: list[_Part] = []
    size, start = 0, 0
    for place, (key, value) in enumerate(records):
        size += len(key) + len(value or b"")
        if size > _PART_BYTES_MAX and place > start:
            parts.append(_Part(records[start:place]))
            size, start = len(key) + len(value or b""), place
    parts.append(_Part(records[start:]))
    return parts
