"""A group log without a file: what is appended is kept in a list, at once or when a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.protocol.error_code import ErrorCode
from fakes.manual_scheduler import ManualScheduler

Done = Callable[[ErrorCode], None]


class MemoryGroupLog:
    """Satisfies `GroupLog`. `records` is what got in, in order.

    `fail_with` refuses what comes; with `is_held` appends wait for `release`.
    """

    def __init__(self, scheduler: ManualScheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[tuple[Sequence[GroupRecord], Done]] = []
        self.records: list[GroupRecord] = []
        self.fail_with: ErrorCode | None = None
        self.is_held = False

    def append(self, group_id: str, records: Sequence[GroupRecord], done: Done) -> None:
        self._waiting.append((list(records), done))
        if not self.is_held:
            self.release()

    def append_pending(
        self,
        group_id: str,
        records: Sequence[GroupRecord],
        producer: ProducerIdentity,
        done: Done,
        guard: VerificationGuard | None = None,
    ) -> None:
        self.append(group_id, records, done)

    def refresh(self, done: Done) -> None:
        self._scheduler.call_soon(lambda: done(ErrorCode.none))

    def release(self) -> None:
        """Let what waits be appended, or fail."""
        waiting, self._waiting = self._waiting, []
        for records, done in waiting:
            if self.fail_with is None:
                self.records += records
            self._scheduler.call_soon(partial(done, self.fail_with or ErrorCode.none))

    @property
    def table(self) -> dict[bytes, bytes | None]:
        """The newest value of each key."""
        return dict(self.records)
