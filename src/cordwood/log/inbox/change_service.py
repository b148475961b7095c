"""The owner's side of the inbox: makes the changes that others ask for, and answers.

One request after the other, on whichever thread serves; those that take long go on beside them,
each on a thread of its own. Whatever is wrong with a request is said
in its answer and is no trouble to the store: a request is data from outside.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import Enum
from itertools import chain
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import (
    CordwoodError,
    FormatError,
    LogClosedError,
    LogError,
    TopicExistsError,
)
from cordwood.format.staged_batches import PlaceName
from cordwood.log.inbox.background_changes import LongChanges
from cordwood.log.inbox.change_inbox import ChangeInbox
from cordwood.log.inbox.staged_rewrite import StagedSwap
from cordwood.log.inbox.store_change import (
    DONE,
    REFUSED,
    SKIPPED,
    ChangeAnswer,
    ChangeRequest,
    CommitGroup,
    PublishBatches,
    StoreChange,
    SwapSegments,
    parse_request,
)
from cordwood.log.inbox.topic_change_service import GroupForgetter, TopicChangeService
from cordwood.log.inbox.upkeep_change import (
    ArchiveTopics,
    CompactTopic,
    LongChange,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
)
from cordwood.log.inbox.upkeep_change_service import UpkeepChangeService
from cordwood.log.publishing.publication import Part
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.publishing_store import PublishingStore
from cordwood.storage.files import FileSystem
from cordwood.storage.staged_file import StagedFile

logger = logging.getLogger(__name__)

GroupCommitter = Callable[[CommitGroup], None]

_LOOK_S: Final = 0.1  # for other requests, while one that takes long is waited for


class Served(Enum):
    """What became of a request that was claimed."""

    ANSWERED = "answered"
    BEGUN = "begun"
    PUT_BACK = "put back"


class ChangeService:
    """Serves the inbox of one store. Any thread may; while one does, others wait.

    commit_group   commits a group's offsets; whoever coordinates groups puts its own way here
    """

    def __init__(
        self,
        store: PublishingStore,
        fs: FileSystem,
        clock: Clock,
        commit_group: GroupCommitter,
        forget_group: GroupForgetter,
        upkeep: UpkeepChangeService,
    ) -> None:
        self.inbox = ChangeInbox(fs, store.path)
        self.commit_group = commit_group
        self.topics = TopicChangeService(store, forget_group)
        self._upkeep = upkeep
        self._store = store
        self._fs = fs
        self._clock = clock
        self._serving = threading.Lock()
        self._counting = threading.Lock()
        self._answered = 0  # on threads of their own, and not yet counted by `serve`
        self._long = LongChanges(clock, self.inbox.note_progress)

    def serve(self, *, wait: bool = True, meanwhile: Callable[[], None] | None = None) -> int:
        """Answer every request that waits; return how many that were.

        What takes long goes on beside the others. Without `wait` it is only begun; else it is
        waited for, requests that come meanwhile are served too, and `meanwhile` is called a few
        times a second.
        """
        answered = self._serve_waiting()
        while wait and self._long.is_busy:
            self._long.wait(_LOOK_S)
            answered += self._serve_waiting()
            if meanwhile is not None:
                meanwhile()
        return answered + self._take_answered()

    def close(self) -> None:
        """Wait for what takes long: the store has begun to close, which ends it soon."""
        self._long.join()

    def _serve_waiting(self) -> int:
        answered = 0
        with self._serving:
            self._long.pulse()
            for request_id in self.inbox.waiting():
                if self._long.holds(request_id):
                    continue
                content = self.inbox.claim(request_id)
                if content is None:
                    continue
                outcome = self._serve_one(request_id, content)
                if outcome is Served.PUT_BACK:
                    break
                answered += 1 if outcome is Served.ANSWERED else 0
        return answered

    def _serve_one(self, request_id: str, content: bytes) -> "Served":
        try:
            request = parse_request(content)
        except FormatError as error:
            return self._finish(request_id, None, _refusal(error))
        change = request.change
        try:
            self._check_deadline(request)
            if isinstance(change, LongChange):
                self._long.begin(
                    request_id,
                    lambda progress: self._attempt(lambda: self._upkeep.make(change, progress)),
                    lambda answer: self._finish_long(request_id, change, answer),
                )
                return Served.BEGUN
        except LogError as error:
            return self._finish(request_id, change, _refusal(error))
        answer = self._attempt(lambda: self._make(request_id, change))
        return self._finish(request_id, change, answer)

    def _finish_long(
        self, request_id: str, change: LongChange, answer: ChangeAnswer | None
    ) -> None:
        """On a thread of its own."""
        try:
            served = self._finish(request_id, change, answer)
        except OSError as error:
            # Made, and nobody can be told; left where it is, it would be made again and again.
            logger.error("the answer to a request could not be written: %s", error)
            self.inbox.forget(request_id)
            return
        if served is Served.ANSWERED:
            with self._counting:
                self._answered += 1

    def _take_answered(self) -> int:
        with self._counting:
            count, self._answered = self._answered, 0
        return count

    def _finish(
        self, request_id: str, change: StoreChange | None, answer: ChangeAnswer | None
    ) -> "Served":
        """Answer; without an answer leave it to the next owner."""
        if answer is None:
            self.inbox.put_back(request_id)
            return Served.PUT_BACK
        if isinstance(change, PublishBatches):
            for staging_id in {file.staging_id for file in change.files}:
                self.inbox.discard_files(staging_id)
        self.inbox.answer(request_id, answer)
        return Served.ANSWERED

    def sweep(self) -> None:
        """Remove what dead requesters left behind."""
        self.inbox.sweep(self._clock.now_ms())

    def _attempt(self, make: Callable[[], ChangeAnswer]) -> ChangeAnswer | None:
        """What became of it; None when we are closing, and the next owner is to make it."""
        try:
            return make()
        except (CordwoodError, OSError) as error:
            if isinstance(error, LogClosedError) and self._store.is_closed:
                return None
            return _refusal(error)
        except Exception as error:
            # A request must not end the owner's thread, whatever it has found in us.
            logger.exception("a request for a change failed")
            return ChangeAnswer(outcome=REFUSED, reason=f"{type(error).__name__}: {error}")

    def _check_deadline(self, request: ChangeRequest) -> None:
        late_ms = self._clock.now_ms() - request.deadline_ms
        if late_ms > 0:
            raise LogError(f"it came {late_ms} ms after its deadline: nobody waits for it")

    def _make(self, request_id: str, change: StoreChange) -> ChangeAnswer:
        match change:
            case PublishBatches():
                return self._publish(change)
            case SwapSegments():
                log = self._store.topic(change.topic).partition(change.partition)
                place = self._store.place_of(log)
                paths = [self.inbox.file_path(request_id, file.name) for file in change.files]
                return StagedSwap(self._fs, log, place, change, paths).run()
            case CommitGroup():
                self.commit_group(change)
                return ChangeAnswer(outcome=DONE)
            case RollTopic() | CompactTopic() | ArchiveTopics() | SnapshotStore() | RestoreTopic():
                return self._upkeep.make(change, WorkProgress())
            case _:
                return self.topics.make(change)

    # --- publishing --------------------------------------------------------------------------

    def _publish(self, change: PublishBatches) -> ChangeAnswer:
        store = self._store
        if store.publisher.has_published(change.publication):
            return ChangeAnswer(outcome=SKIPPED)
        with ExitStack() as opened:
            files = [
                opened.enter_context(
                    StagedFile(
                        self._fs,
                        self.inbox.file_path(file.staging_id, file.name),
                        size=file.size,
                    )
                )
                for file in change.files
            ]
            sizes = _sizes(files)
            for topic, partitions in change.topics.items():
                self._ensure_topic(topic, partitions)
            parts = [self._part(place, size, files) for place, size in sizes.items()]
            published = store.publisher.publish(change.publication, parts)
        return ChangeAnswer(
            outcome=SKIPPED if published.is_repeated else DONE,
            facts={"offsets": [[*place, *offsets] for place, offsets in published.offsets.items()]},
        )

    def _ensure_topic(self, name: str, partitions: int) -> None:
        if self._store.find_topic(name) is None:
            try:
                self._store.create_topic(name, partitions=partitions)
            except TopicExistsError:
                return  # someone was faster

    def _part(self, place: PlaceName, size: int, files: Sequence[StagedFile]) -> Part:
        topic, number = place
        log = self._store.topic(topic).partition(number)

        def batches() -> Iterator[memoryview]:
            size_max = log.config.max_message_bytes
            return chain.from_iterable(file.batches(place, size_max=size_max) for file in files)

        return Part(log=log, place=self._store.place_of(log), batches=batches, size=size)


def _sizes(files: Sequence[StagedFile]) -> dict[PlaceName, int]:
    totals: dict[PlaceName, int] = {}
    for file in files:
        for place, size in file.sizes().items():
            totals[place] = totals.get(place, 0) + size
    return totals


def _refusal(error: Exception) -> ChangeAnswer:
    logger.warning("a request for a change was refused: %s", error)
    return ChangeAnswer(outcome=REFUSED, reason=_described(error))


def _described(error: BaseException) -> str:
    notes = getattr(error, "__notes__", [])
    return "; ".join([f"{type(error).__name__}: {error}", *notes])
