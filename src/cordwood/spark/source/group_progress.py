"""A stream's progress as a consumer group's committed offsets, for the tools that show lag.

The checkpoint alone decides where a stream continues; these commits only inform others. So they
happen in the background, only the newest offsets are committed, and a failure is only a warning.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Final

from cordwood.errors import CordwoodError
from cordwood.library import request_change
from cordwood.log.inbox.store_change import CommitGroup
from cordwood.spark.source.topic_choice import TopicPartition

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
_FLUSH_S: Final = 10.0


class GroupProgress:
    """Commits offsets in its own thread. Any thread may call it."""

    def __init__(self, group: str, directories: tuple[str, ...]) -> None:
        self._group = group
        self._directories = directories
        self._changed = threading.Condition()
        self._wanted: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._is_busy = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit these soon; return at once."""
        with self._changed:
            if self._is_closed or dict(positions) == self._wanted:
                return
            self._wanted = dict(positions)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="cordwood-group-progress", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float = _FLUSH_S) -> None:
        """Wait until the last request is committed or has failed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._wanted == self._committed and not self._is_busy, timeout_s
            )

    def close(self) -> None:
        """Finish the commit in progress and stop."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_FLUSH_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._wanted != self._committed)
                if self._is_closed:
                    return
                positions = self._wanted
                self._is_busy = True
            self._send(positions)
            with self._changed:
                self._committed = positions  # not retried after a failure: the next commit is newer
                self._is_busy = False
                self._changed.notify_all()

    def _send(self, positions: Mapping[TopicPartition, int]) -> None:
        change = CommitGroup(
            group=self._group,
            offsets={partition: (offset, "") for partition, offset in positions.items()},
        )
        try:
            request_change(
                self._directories[0],
                change,
                timeout_s=_ANSWER_S,
                data_dirs=self._directories[1:],
            )
        except (CordwoodError, OSError) as error:
            logger.warning("could not commit offsets to group %s: %s", self._group, error)
