"""A console: its configuration, the store it looks at, and its viewers."""

import logging
import secrets
from collections.abc import Callable
from typing import Final

from cordwood.clock import Clock, SystemClock
from cordwood.console.console_config import ConsoleConfig
from cordwood.console.decoding.value_decoders import visible
from cordwood.console.facts.broker_access import BrokerAccess
from cordwood.console.facts.directory_census import (
    DirectoryCensus,
    OpenedDirectories,
    open_directories,
)
from cordwood.console.facts.events import CHANGE, Event
from cordwood.console.facts.local_files import local_directories
from cordwood.console.facts.segment_survey import SegmentSurvey
from cordwood.console.facts.snapshot_keeper import SnapshotKeeper
from cordwood.console.facts.topic_records import BrokerRecords, DirectoryRecords, TopicRecords
from cordwood.console.request_guard import FormTokens, RequestGuard
from cordwood.console.sessions import Sessions, Viewer
from cordwood.errors import CordwoodError

logger = logging.getLogger(__name__)

_SECRET_BYTES: Final = 32
_SHOWN_AFTER_S: Final = 5.0  # how long a change waits until it can be seen


class Console:
    """Owns the read-only store, the connections and the thread that takes snapshots.

    Any thread may use it. `start` and `close` are for the thread that made it.
    """

    def __init__(self, config: ConsoleConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.guard = RequestGuard(names=config.names, scheme=config.scheme)
        self.tokens = FormTokens(secrets.token_bytes(_SECRET_BYTES))
        self.sessions = Sessions()
        self.access = BrokerAccess(config.addresses, config.security) if config.addresses else None
        self.opened = self._open_files()
        self.survey: SegmentSurvey | None = None
        census: DirectoryCensus | None = None
        if self.opened is not None:
            census = DirectoryCensus(self.opened.store, free_bytes_min=self.opened.free_bytes_min)
            self.survey = SegmentSurvey(self.opened.store, self.clock, self.opened.defaults)
        self.keeper = SnapshotKeeper(
            census=census,
            broker=self.access if config.has_own_access else None,
            clock=self.clock,
            interval_s=config.interval_s,
        )
        self.started_ms = self.clock.now_ms()
        self._everybody = Viewer(self.access, may_change=config.allows_changes)

    def _open_files(self) -> OpenedDirectories | None:
        """The files of the store: those that were named, or those of a broker on this machine."""
        paths = self.config.directories
        if not paths and self.access is not None and self.config.has_own_access:
            try:
                with self.access.connected() as cluster:
                    paths = local_directories(cluster)
            except (CordwoodError, OSError) as error:
                logger.info("the broker does not tell where its files are: %s", error)
        return open_directories(paths) if paths else None

    def start(self) -> None:
        self.keeper.start()

    def close(self) -> None:
        """Safe to repeat."""
        self.keeper.stop()
        self.sessions.close()
        if self.access is not None:
            self.access.close()
        if self.opened is not None and not self.opened.store.is_closed:
            self.opened.store.close()

    # --- viewers -----------------------------------------------------------------------------

    @property
    def everybody(self) -> Viewer:
        """The viewer of a console without a login."""
        assert not self.config.needs_login
        return self._everybody

    def records(self, topic: str, viewer: Viewer) -> TopicRecords:
        """The records of a topic. The caller has checked that the viewer may read them."""
        if self.opened is not None:
            return DirectoryRecords(self.opened.store, topic)
        assert viewer.access is not None
        return BrokerRecords(viewer.access, topic)

    def audit(self, viewer: Viewer, address: str, text: str, change: Callable[[], None]) -> None:
        """Make a change, and note who made it, whether or not it succeeded."""
        who = visible(viewer.user or "somebody without a login")
        text = visible(text)
        facts = {"event": "console-change", "user": viewer.user, "address": address}
        try:
            change()
        except Exception as error:
            logger.warning(
                "%s at %s failed to: %s: %s", who, address, text, error, extra={"facts": facts}
            )
            self._note(viewer, "warning", f"Failed: {text}: {error}")
            raise
        logger.info("%s at %s: %s", who, address, text, extra={"facts": facts})
        self._note(viewer, "info", text)
        self.keeper.take_now(_SHOWN_AFTER_S, after_change=True)

    def _note(self, viewer: Viewer, severity: str, text: str) -> None:
        self.keeper.note(Event(self.clock.now_ms(), severity, CHANGE, text, user=viewer.user))
