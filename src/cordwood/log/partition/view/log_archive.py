"""The archive of a log as its writer sees it: older segments that read as the log's beginning."""

import logging

from cordwood.errors import StorageError
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchiveJoin
from cordwood.log.reading.log_source import LogView
from cordwood.quantities import Offset
from cordwood.storage.segment import Segment

logger = logging.getLogger(__name__)


class LogArchive:
    """Joins the local segments of one log with what its archive holds, if it has one."""

    def __init__(self, holder: StateHolder) -> None:
        self._holder = holder
        self._join: ArchiveJoin | None = None

    def attach(self, source: ArchivedSegments | None) -> None:
        """Read what `source` holds as the beginning of this log; None: no archive."""
        self._join = None if source is None else ArchiveJoin(source)

    def view(self) -> LogView:
        """The whole log: what only the archive has, then the local segments."""
        join, local = self._join, self.local_view
        return local if join is None else join.over(local)

    @property
    def local_view(self) -> LogView[Segment]:
        """The part of the log that lies in its own directory.

        Not cached: a cached view would keep the files of deleted segments open.
        """
        state = self._holder.state
        return LogView(state.segments, state.start, state.high_watermark)

    @property
    def is_attached(self) -> bool:
        """Whether the log has an archive."""
        return self._join is not None

    @property
    def is_settled(self) -> bool:
        """Whether `view` needs no object store. If not, it must not be called in an event loop."""
        return self._join is None or self._join.is_settled(self.local_view)

    @property
    def known_start_offset(self) -> Offset:
        """The start of the whole log; the local start if only an object store knows more."""
        if self._join is None or not self.is_settled:
            return self._holder.state.start
        try:
            return self.view().start
        except (OSError, StorageError) as error:
            logger.warning("%s: the start of its archive is unknown: %s", self._holder.name, error)
            return self._holder.state.start

    @property
    def announced_start(self) -> Offset:
        """The start that a leader tells its followers: what lies before it is deleted for good.

        Not where the local log starts, if an archive has what comes before: a follower that took
        that for the start would not read the archive any more. 0 if it is not known yet, which
        deletes nothing. Needs no object store.
        """
        join = self._join
        if join is None:
            return self._holder.state.start
        if not self.is_settled:
            return Offset(0)
        try:
            return self.view().start
        except (OSError, StorageError):
            return Offset(0)

    @property
    def may_forget(self) -> bool:
        """Whether it is for this replica to decide what is deleted for good."""
        return self._join is None or self._join.source.may_change

    @property
    def archived_up_to(self) -> Offset | None:
        """Local segments that end here or before may be deleted; None without an archive."""
        join = self._join
        if join is None:
            return None
        try:
            return join.source.state().end
        except (OSError, StorageError) as error:
            logger.warning("%s: the end of its archive is unknown: %s", self._holder.name, error)
            return Offset(0)

    def refresh(self) -> None:
        """Look again: another process may have changed the archive."""
        if self._join is not None:
            self._join.source.refresh()

    def forget_from(self, offset: Offset) -> None:
        """Forget `offset` and everything after it: these offsets will be given again."""
        if self._join is not None:
            source = self._join.source
            source.keep(source.state().start, offset)

    def holds(self, offset: Offset) -> bool:
        """Whether the archive ends behind `offset`."""
        return self._join is not None and offset < self._join.source.state().end

    def forget_before(self, offset: Offset) -> None:
        """Forget everything below `offset`, if the archive begins below it."""
        if self._join is None:
            return
        source = self._join.source
        state = source.state()
        if state.segments and state.start < offset <= self.view().high_watermark:
            source.keep(offset, state.end)

    def empty_at(self, offset: Offset) -> None:
        """Forget everything; the log continues at `offset`."""
        if self._join is not None:
            self._join.source.keep(offset, offset)
