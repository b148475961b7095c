"""The owner's side of the inbox: makes the changes that others ask for, and answers.

One request after the other, on whichever thread serves. Whatever is wrong with a request is said
in its answer and is no trouble to the store: a request is data from outside.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

from varve.clock import Clock
from varve.errors import (
    FormatError,
    LogClosedError,
    LogError,
    TopicExistsError,
    VarveError,
)
from varve.format.staged_batches import PlaceName
from varve.log.change_inbox import ChangeInbox
from varve.log.publication import Part
from varve.log.publishing_store import PublishingStore
from varve.log.staged_swap import StagedSwap
from varve.log.store_change import (
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
from varve.log.topic_change_service import GroupForgetter, TopicChangeService
from varve.storage.files import FileSystem
from varve.storage.staged_file import StagedFile

logger = logging.getLogger(__name__)

GroupCommitter = Callable[[CommitGroup], None]


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
    ) -> None:
        self.inbox = ChangeInbox(fs, store.path)
        self.commit_group = commit_group
        self.topics = TopicChangeService(store, forget_group)
        self._store = store
        self._fs = fs
        self._clock = clock
        self._serving = threading.Lock()

    def serve(self) -> int:
        """Answer every request that waits; return how many that were."""
        answered = 0
        with self._serving:
            for request_id in self.inbox.waiting():
                content = self.inbox.claim(request_id)
                if content is None:
                    continue
                answer = self._answer(request_id, content)
                if answer is None:
                    self.inbox.put_back(request_id)
                    break
                self._discard_files(content)
                self.inbox.answer(request_id, answer)
                answered += 1
        return answered

    def _discard_files(self, content: bytes) -> None:
        with contextlib.suppress(FormatError):
            change = parse_request(content).change
            if isinstance(change, PublishBatches):
                for staging_id in {file.staging_id for file in change.files}:
                    self.inbox.discard_files(staging_id)

    def sweep(self) -> None:
        """Remove what dead requesters left behind."""
        self.inbox.sweep(self._clock.now_ms())

    def _answer(self, request_id: str, content: bytes) -> ChangeAnswer | None:
        """What became of it; None when we are closing, and the next owner is to make it."""
        try:
            request = parse_request(content)
            self._check_deadline(request)
            return self._make(request_id, request.change)
        except (VarveError, OSError) as error:
            if isinstance(error, LogClosedError) and self._store.is_closed:
                return None
            logger.warning("a request for a change was refused: %s", error)
            return ChangeAnswer(outcome=REFUSED, reason=_described(error))
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


def _described(error: BaseException) -> str:
    notes = getattr(error, "__notes__", [])
    return "; ".join([f"{type(error).__name__}: {error}", *notes])
